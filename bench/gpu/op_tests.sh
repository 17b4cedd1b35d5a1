#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every operator test and model test folder (model.onnx with test_data_set_N) on a card: what passes, what
# fails, and which operators' steps ran on the host. Ends with 1 where a case fails.
#
#   bench/gpu/op_tests.sh HONE FOLDER OUT [PROCESSES]
#
# FOLDER is searched for cases, such as the data/node of ONNX's backend tests or a folder of models.
# Each process is one `hone check --device cuda`: what loses the card loses its own cases only.
set -eu
[ $# -ge 3 ] || { sed -n '6p' "$0" | cut -c5-; exit 2; }
hone=$1 cases=$2 out=$3 processes=${4:-12}
mkdir -p "$out"
find "$cases" -type d -name test_data_set_0 | sort | xargs -r -n1 dirname > "$out/cases"
[ -s "$out/cases" ] || { echo "no test_data_set_0 below $cases"; exit 2; }
jobs=
for ((i = 0; i < processes; i++)); do
    awk -v i="$i" -v n="$processes" 'NR % n == i' "$out/cases" > "$out/cases.$i"
    [ -s "$out/cases.$i" ] || continue
    # At most 200 folders a call; each tells its sums in its last lines.
    (rc=0; xargs -n 200 timeout 300 "$hone" check --device cuda --verbose < "$out/cases.$i" || rc=$?
     [ "$rc" = 0 ] || echo "process $i ended with $rc") > "$out/part.$i" 2>&1 &
    jobs="$jobs $!"
done
for job in $jobs; do wait "$job" || true; done
cat "$out"/part.* > "$out/all"
rm "$out"/part.* "$out"/cases.*
verdicts() { grep -c "^$1 /" "$out/all" || true; }
echo "cases $(wc -l < "$out/cases"): $(verdicts passed) passed, $(verdicts FAILED) failed, $(verdicts skipped) skipped"
echo "steps on the host, by operator:"
sed -n 's/^steps: .* on the host: //p' "$out/all" | tr ',' '\n' |
    awk '{n[$1] += $2} END {for (op in n) print n[op], op}' | sort -k1,1nr -k2 | sed 's/^/  /'
grep '^FAILED' "$out/all" || true
told=$(($(verdicts passed) + $(verdicts FAILED) + $(verdicts skipped)))
[ "$told" = "$(wc -l < "$out/cases")" ] || { echo "$((told)) cases told of: a process ended early"; grep '^process' "$out/all"; exit 1; }
! grep -q '^FAILED' "$out/all"
