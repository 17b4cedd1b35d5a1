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
"$HONE" nccl - < "$here/nccl/healthy-a100-8.log" | grep -q '^healthy, 8 ranks on 1 node'
# Bad input: one sentence, exit 3, nothing on stdout. No file: exit 2. --check: exit 1.
code=0; echo 'connection refused by the bakery' | "$HONE" nccl - > "$split/out" 2> "$split/err" || code=$?
[ $code = 3 ] && [ ! -s "$split/out" ] && [ "$(wc -l < "$split/err")" = 1 ]
code=0; "$HONE" nccl 2> /dev/null || code=$?; [ $code = 2 ]
code=0; "$HONE" nccl --check "$here/nccl/nvls-401.log" > /dev/null || code=$?; [ $code = 1 ]
"$HONE" nccl --check "$here/nccl/healthy-2node-slurm.log" > /dev/null
echo "files, exits and evidence agree"
