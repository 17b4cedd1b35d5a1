#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# TEST-TIMEOUT 120
# optimize replaces nothing that it reads but the model itself: not its weights, its data, its reports.
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*" >&2; exit 1; }
model=$HONE_SOURCE_DIR/examples/fashion/fashion_resnet.onnx
quick=(--seconds 0.02 --only graph)
refused() { # FILE THAT STAYS, WORDS, ARGUMENTS
    local file=$1 words=$2 before
    shift 2
    before=$(sha256sum <"$file")
    (cd "$dir" && "$HONE" optimize "$@" "${quick[@]}") >"$dir/log" 2>"$dir/err" && fail "accepted: $*"
    grep -q "$words" "$dir/err" || fail "$*: $(cat "$dir/err")"
    [ "$before" = "$(sha256sum <"$file")" ] || fail "$file was replaced by: $*"
}
cp "$model" "$dir/m.onnx"
cp "$HONE_SOURCE_DIR/examples/fashion/sample.npz" "$dir/d.npz" 2>/dev/null || cp "$HONE_SOURCE_DIR"/examples/fashion/*.npz "$dir/d.npz"
mkdir "$dir/folder" && cp "$dir/d.npz" "$dir/folder/a.npz"
refused "$dir/d.npz" "data that is read" m.onnx --data d.npz --batch 50 -o d.npz
ln "$dir/d.npz" "$dir/other.npz"
refused "$dir/d.npz" "data that is read" m.onnx --data d.npz --batch 50 -o other.npz
refused "$dir/folder/a.npz" "data that is read" m.onnx --data folder --batch 50 -o ./folder/a.npz
for out in report.json ./report.html "$dir/report.json"; do
    (cd "$dir" && "$HONE" optimize m.onnx -o "$out" --report . "${quick[@]}") 2>"$dir/err" && fail "-o $out --report ."
    grep -q "the model would be lost" "$dir/err" || fail "$(cat "$dir/err")"
done
(cd "$dir" && "$HONE" optimize m.onnx -o o.onnx --report r "${quick[@]}") >/dev/null 2>"$dir/err" || fail "$(cat "$dir/err")"
refused "$dir/r/report.json" "report that is followed" m.onnx --replay r/report.json -o r/report.json
# In place is fine, and so is a name beside the data.
(cd "$dir" && "$HONE" optimize m.onnx -o m.onnx "${quick[@]}") >/dev/null 2>"$dir/err" || fail "in place: $(cat "$dir/err")"
(cd "$dir" && "$HONE" optimize m.onnx -o report.json "${quick[@]}" --report r) >/dev/null 2>"$dir/err" || fail "$(cat "$dir/err")"
# The weights beside a model.
python=$("$HONE_SOURCE_DIR/scripts/peers") || exit 0
"$python" - "$dir" <<'PY'
import sys, onnx, numpy as np
from onnx import helper as h, numpy_helper as nh
w = nh.from_array(np.ones((64, 64), np.float32), "w")
m = h.make_model(h.make_graph([h.make_node("MatMul", ["x", "w"], ["y"])], "g", [h.make_tensor_value_info("x", 1, [1, 64])],
                              [h.make_tensor_value_info("y", 1, [1, 64])], [w]), opset_imports=[h.make_opsetid("", 17)], ir_version=8)
onnx.save(m, sys.argv[1] + "/e.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
PY
refused "$dir/weights.bin" "model's weights" e.onnx -o weights.bin
exit 0
