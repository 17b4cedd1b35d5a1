#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TEST-TIMEOUT 120
# Broken model files at the command line: exit 3, one sentence on stderr, nothing on stdout. And what
# inspect prints of a good one.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bad=0
check() { # file, exit code, text
    local code=0
    "$HONE" inspect --no-plan "$1" >"$work/out" 2>"$work/err" || code=$?
    [ "$code" = "$2" ] && [ ! -s "$work/out" ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -q "^hone: .*$3" "$work/err" && return
    echo "$1: exit $code, expected $2 with '$3'"; cat "$work/err"; bad=1
}
# The largest seeds of the fuzzer, cut at every 64th byte and at every byte near the start.
for seed in $(ls -S "$HONE_SOURCE_DIR"/tests/fuzz/corpus_onnx/s*.onnx | head -3); do
    size=$(stat -c %s "$seed")
    for cut in 0 1 2 3 $(seq 64 64 $((size - 1))); do
        head -c "$cut" "$seed" >"$work/cut.onnx"
        check "$work/cut.onnx" 3 "cut.onnx"
    done
done
printf 'this is a text file, no model\n' >"$work/text.onnx"
check "$work/text.onnx" 3 "no ONNX"
head -c 4096 /dev/zero >"$work/zero.onnx"
check "$work/zero.onnx" 3 "field number"
check "$work/missing.onnx" 3 "missing.onnx"
check "$work" 3 "regular file"

# A convolution net with free dims: costs appear when they are bound.
net=$HONE_SOURCE_DIR/tests/fuzz/corpus_onnx/s42.onnx
"$HONE" inspect --no-plan "$net" >"$work/out"
grep -q 'costs *unknown: axis 2 of input .x. is free (H)' "$work/out" || { cat "$work/out"; bad=1; }
"$HONE" inspect --no-plan --json --shape x=1x2x8x8 "$net" >"$work/out"
# 3x3 convolution of 2 channels to 3 at 8x8: 2 * 64 * 3 * 18 FLOP; Gemm of 3 to 2: 2 * 6.
for fact in '.inputs[0].shape == ["N", 2, "H", "W"]' '.parameters == 63' '.total.nodes == 5' '.opsets[""] == 17' \
    '[.ops[] | select(.op == "Conv")][0] | .flops >= 6912 and .flops <= 7104' '[.ops[] | select(.op == "Gemm")][0].nodes == 1' '.total.uncosted == 0' \
    '.assumption | test("\\(H\\) = 8")' '.plan == null'; do
    jq -e "$fact" "$work/out" >"$work/fact" || { echo "not so: $fact"; jq -c . "$work/out"; bad=1; }
done
code=0
"$HONE" inspect --shape y=1 "$net" >"$work/out" 2>"$work/err" || code=$?
[ "$code" = 2 ] || { echo "a wrong --shape gives exit $code"; cat "$work/err"; bad=1; }
exit $bad
