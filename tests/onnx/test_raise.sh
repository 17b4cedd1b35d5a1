#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# TEST-TIMEOUT 120
# Old operator versions against their raised forms, both run by onnxruntime, where that is installed;
# the exported files pass onnx.checker; schema.def is what the generator writes.
set -euo pipefail
python=$("$HONE_SOURCE_DIR/scripts/peers") || exit 77
here=$(dirname "$0")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" "$here/raise_models.py" make "$folder"
for model in "$folder"/*.onnx; do echo "$model ${model%.onnx}.out.onnx"; done |
    "$HONE_BUILD_DIR/tests/t_onnx_roundtrip" - | grep -v '^ok' && exit 1
"$python" "$here/raise_models.py" compare "$folder"
# The two tables against the standard itself, where the installed package knows opset 27.
if "$python" -c 'import sys, onnx.defs; sys.exit(onnx.defs.onnx_opset_version() < 27)'; then
    "$python" "$HONE_SOURCE_DIR/scripts/gen-onnx-schema" --check
    "$python" "$here/raise_models.py" rows "$HONE_SOURCE_DIR/src/onnx/raise.def"
fi
