#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TEST-TIMEOUT 600
# Every real model and every model of the ONNX backend suite: read, written, read again as the same
# graph, or refused with a sentence. Where Python has onnxruntime, the written real models check clean
# and give the outputs of the originals.
set -euo pipefail
data=$HONE_SOURCE_DIR/../shared/data
[ -d "$data/models" ] || { echo "skipped: no ../shared/data/models"; exit 77; }
work=$HONE_BUILD_DIR/field-onnx
mkdir -p "$work/suite" "$work/out"
tool=$HONE_BUILD_DIR/tests/t_onnx_roundtrip
for archive in "$data"/onnx/*.tar.xz; do
    [ -e "$archive" ] || continue
    [ -e "$work/suite/.done" ] || tar -xJf "$archive" -C "$work/suite"
done
touch "$work/suite/.done"

status=0
for model in "$data"/models/*/model.onnx; do
    echo "$model $work/out/$(basename "$(dirname "$model")").onnx"
done | "$tool" - >"$work/models.txt" || status=1
find "$work/suite" -name '*.onnx' | LC_ALL=C sort | sed "s|$| $work/out/suite.onnx|" |
    "$tool" - >"$work/suite.txt" || status=1
for part in models suite; do
    printf '%s: %s read and written, %s unsupported, %s failed\n' $part "$(grep -c '^ok' "$work/$part.txt")" \
        "$(grep -c '^unsupported' "$work/$part.txt")" "$(grep -c '^failed' "$work/$part.txt")"
    grep '^failed' "$work/$part.txt" | head -40 || true
    grep '^unsupported' "$work/$part.txt" | sed -E "s/^unsupported [^:]*: //; s/ \(.*//; s/'[^']*'/'...'/g" |
        sort | uniq -c | sort -rn || true
done
[ "$(grep -c '^ok' "$work/models.txt")" -ge 23 ] || { echo "fewer than 23 real models are read"; status=1; }

if python3 -c 'import onnx, onnxruntime' 2>/dev/null; then
    python3 "$(dirname "$0")/onnx_outputs.py" "$data/models" "$work/out" || status=1
else
    echo "outputs not compared: Python has no onnxruntime"
fi
exit $status
