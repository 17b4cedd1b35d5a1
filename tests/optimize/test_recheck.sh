#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The committed report of the demo's network, made on another day, is measured again: what had an effect of
# more than 5 % keeps its verdict, and the decisions still give a file. TEST-TIMEOUT 200 TEST-SERIAL
set -u
here=$HONE_SOURCE_DIR/examples/fashion
report=$here/report/report.json
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
[ "${HONE_TEST_SLOW:-1}" = 1 ] || exit 77 # instrumented code has other speeds
again() { "$HONE" optimize "$here/fashion_resnet.onnx" --recheck "$report" --data "$here/sample.npz" --batch 50 --budget 2 \
    --threads 1 --seconds 0.5 --json >"$dir/again.json" 2>"$dir/err"; }
# Strategies whose interval lies beyond 5 % on either side, as "name kept".
strong() { jq -r '.strategies[] | select(.speedup_ci != null and (.speedup_ci[0] > 1.05 or .speedup_ci[1] < 0.952)) | "\(.name) \(.kept)"' "$1"; }
[ -n "$(strong "$report")" ] || fail "the report has no strategy with an effect"
again
[ $? -le 1 ] || fail "recheck: $(cat "$dir/err")"
here_isa=$(jq -r .device.isa "$dir/again.json") there_isa=$(jq -r .device.isa "$report")
changed=$(jq -r '.strategies[] | select(.kept != .was_kept) | .name' "$dir/again.json")
while read -r name kept; do
    jq -e --arg n "$name" '.strategies[] | select(.name == $n)' "$dir/again.json" >/dev/null || fail "$name was not measured again"
    [ "$here_isa" = "$there_isa" ] || continue
    ! grep -qx "$name" <<<"$changed" ||
        fail "$name was kept=$kept and is not now: $(jq -r --arg n "$name" '.strategies[] | select(.name == $n) | .reason' "$dir/again.json")"
done < <(strong "$report")
"$HONE" optimize "$here/fashion_resnet.onnx" -o "$dir/out.onnx" --replay "$report" --seconds 0.1 --threads 1 >/dev/null 2>"$dir/err" || fail "replay: $(cat "$dir/err")"
"$HONE" run "$dir/out.onnx" --data "$here/sample.npz" --batch 50 >"$dir/out" 2>&1 || fail "the replayed model does not run: $(cat "$dir/out")"
top1=$(sed -n 's/^top-1 \([0-9.]*\) .*/\1/p' "$dir/out")
awk -v t="$top1" 'BEGIN { exit !(t >= 0.90) }' || fail "top-1 $top1 of the replayed model"
[ "$here_isa" = "$there_isa" ] || { echo "the report is of $there_isa, this is $here_isa: verdicts may differ"; exit 0; }
echo "effects above 5 % keep their verdict: $(strong "$report" | tr '\n' ' ')"
