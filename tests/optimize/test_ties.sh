# SPDX-License-Identifier: Apache-2.0
# TEST-TIMEOUT 120
# The strategy ties: a model whose two products have the same weights loses one copy, one whose weights
# differ in one number does not.
set -u
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
python3 - "$dir" <<'PY'
import struct, sys
def varint(n):
    out = b""
    while n > 127: out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])
def number(field, n): return varint(field << 3) + varint(n)
def text(field, b): return varint(field << 3 | 2) + varint(len(b)) + b
def value(name):
    shape = b"".join(text(1, number(1, d)) for d in (1, 64))
    return text(1, name) + text(2, text(1, number(1, 1) + text(2, shape)))
def weight(name, last):
    values = [((i * 37) % 101 - 50) / 400 for i in range(4095)] + [last]
    return text(5, number(1, 64) + number(1, 64) + number(2, 1) + text(8, name) + text(9, struct.pack("<4096f", *values)))
def node(op, inputs, output): return text(1, b"".join(text(1, i) for i in inputs) + text(2, output) + text(4, op))
for name, last in (("tied", 0.5), ("apart", 0.25)):
    graph = node(b"MatMul", (b"x", b"a"), b"h") + node(b"Tanh", (b"h",), b"t") + node(b"MatMul", (b"t", b"b"), b"y")
    graph += text(2, b"g") + weight(b"a", 0.5) + weight(b"b", last) + text(11, value(b"x")) + text(12, value(b"y"))
    open(f"{sys.argv[1]}/{name}.onnx", "wb").write(number(1, 8) + text(7, graph) + text(8, number(2, 17)))
PY
opt() { "$HONE" optimize --only ties --objective size --seconds 0.1 --threads 1 --json "$@"; }
opt "$dir/tied.onnx" -o "$dir/out.onnx" >"$dir/json" || fail "optimize"
jq -e '.strategies[0] | .name == "ties" and .kept and .decision.weights == 1 and .decision.bytes == 16384' "$dir/json" >/dev/null || fail "$(jq -c .strategies "$dir/json")"
[ "$(stat -c %s "$dir/out.onnx")" -lt $(($(stat -c %s "$dir/tied.onnx") - 16000)) ] || fail "the file is no smaller"
"$HONE" run --json "$dir/tied.onnx" | jq -c .outputs >"$dir/a"; "$HONE" run --json "$dir/out.onnx" | jq -c .outputs >"$dir/b"
cmp -s "$dir/a" "$dir/b" || fail "other results: $(cat "$dir/a" "$dir/b")"
opt "$dir/apart.onnx" -o "$dir/out2.onnx" >"$dir/json" || fail "optimize"
jq -e '.strategies[0] | .kept == false and (.reason | test("no weight stands in the file twice"))' "$dir/json" >/dev/null || fail "$(jq -c .strategies "$dir/json")"
cmp -s "$dir/apart.onnx" "$dir/out2.onnx" || fail "the copy differs"
