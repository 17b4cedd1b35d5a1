#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# INT8 models made from real ones, in onnxruntime. TEST-TIMEOUT 600 TEST-SERIAL
set -u
models="$HONE_SOURCE_DIR/../shared/data/models"
[ -d "$models" ] || exit 77
python=$("$HONE_SOURCE_DIR/scripts/peers") || exit 77
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" "$HONE_SOURCE_DIR/tests/field/optimize_models.py" "$HONE" "$models" "$work"
