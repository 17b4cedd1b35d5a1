#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TEST-TIMEOUT 120
# Logs that reproduce each trap, and damaged copies of them, read as tests/place/nccl/expect.tsv says.
set -euo pipefail
here="$HONE_SOURCE_DIR/tests/place"
python3 "$here/nccl_check.py" "$HONE" "$here/nccl/expect.tsv" "$here/nccl"
for log in "$here"/nccl/*.{log,txt,json}; do
    grep -q "^$(basename "$log")	" "$here/nccl/expect.tsv" || { echo "no expectation for $log"; exit 1; }
done
# Several files make one job; evidence names its file.
split=$(mktemp -d)
trap 'rm -rf "$split"' EXIT
grep 'trn0:' "$here/nccl/roce-retry-mpirun.log" > "$split/node0.log"
grep 'trn1:' "$here/nccl/roce-retry-mpirun.log" > "$split/node1.log"
"$HONE" nccl --json "$split/node0.log" "$split/node1.log" | jq -e --arg f "$split/node1.log" \
    '.first_rank == 5 and .nodes == 2 and .causes[0].evidence.file == $f and (.causes[0].why | test("remote GID ::ffff:203.0.113.20"))' > /dev/null
# A log a rank, of a job of hundreds.
names=()
for ((i = 0; i < 700; i++)); do names+=("$split/node$((i % 2)).log"); done
"$HONE" nccl --json "${names[@]}" | jq -e '.first_rank == 5 and .nodes == 2' > /dev/null
# One rank uses no link: no ceiling, nothing wrong.
"$HONE" nccl --json - <<'END' | jq -e '.healthy and .performance.ceiling_gbs == null and .performance.explained_by == "none"
    and (.performance.why | test("one rank alone"))' > /dev/null
# Collective test starting: all_reduce_perf
# Using devices
#  Rank  0 Group  0 Pid    900 on       a8n1 device  0 [0000:10:00] NVIDIA A800-SXM4-80GB
#
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
   134217728      33554432     float     sum      -1    155.2  864.81    0.00      0    0.26  516222    0.00      0
  1073741824     268435456     float     sum      -1   1201.1  893.97    0.00      0    0.25 4294967    0.00      0
# Avg bus bandwidth    : 0
END
"$HONE" nccl - < "$here/nccl/healthy-a100-8.log" | grep -q '^healthy, 8 ranks on 1 node'
# Bad input: one sentence, exit 3, nothing on stdout. No file: exit 2. --check: exit 1.
code=0; echo 'connection refused by the bakery' | "$HONE" nccl - > "$split/out" 2> "$split/err" || code=$?
[ $code = 3 ] && [ ! -s "$split/out" ] && [ "$(wc -l < "$split/err")" = 1 ]
code=0; "$HONE" nccl 2> /dev/null || code=$?; [ $code = 2 ]
code=0; "$HONE" nccl --check "$here/nccl/nvls-401.log" > /dev/null || code=$?; [ $code = 1 ]
"$HONE" nccl --check "$here/nccl/healthy-2node-slurm.log" > /dev/null
echo "files, exits and evidence agree"
