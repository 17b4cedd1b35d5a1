#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Real models against onnxruntime. TEST-TIMEOUT 600
set -u
models="$HONE_SOURCE_DIR/../shared/data/models"
[ -d "$models" ] || exit 77
python=$("$HONE_SOURCE_DIR/scripts/peers") || exit 77
exec "$python" "$HONE_SOURCE_DIR/tests/field/compare_models.py" "$HONE" "$models"
