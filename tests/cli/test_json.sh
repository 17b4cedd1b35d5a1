# SPDX-License-Identifier: Apache-2.0
# TEST-TIMEOUT 180
# --json: one JSON document on standard output and nothing else, with stable keys; errors on stderr only.
set -u
dir=$(mktemp -d); trap 'rm -rf "$dir"' EXIT
bad=0
python3 - "$dir" <<'PY'
# y = relu(x) and y = relu(z) as ONNX files, one folder of test data that fits and one that does not.
import os, struct, sys
def varint(n):
    out = b""
    while n > 127: out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])
def number(field, n): return varint(field << 3) + varint(n)
def text(field, b): return varint(field << 3 | 2) + varint(len(b)) + b
def value(name, dims):
    shape = b"".join(text(1, number(1, d)) for d in dims)
    return text(1, name) + text(2, text(1, number(1, 1) + text(2, shape)))
def model(inp, dims):
    node = text(1, inp) + text(2, b"y") + text(4, b"Relu")
    graph = text(1, node) + text(2, b"g") + text(11, value(inp, dims)) + text(12, value(b"y", dims))
    return number(1, 8) + text(7, graph) + text(8, number(2, 17))
def tensor(values): return number(1, 1) + number(1, len(values)) + number(2, 1) + text(9, struct.pack("<%df" % len(values), *values))
root = sys.argv[1]
def write(path, data):
    os.makedirs(os.path.dirname(os.path.join(root, path)) or root, exist_ok=True)
    open(os.path.join(root, path), "wb").write(data)
write("x.onnx", model(b"x", [1, 3])); write("z.onnx", model(b"z", [1, 3])); write("wide.onnx", model(b"x", [1, 4]))
for name, y in (("good", [0, 2, 0]), ("wrong", [0, 3, 0])):
    write(name + "/model.onnx", model(b"x", [1, 3]))
    write(name + "/test_data_set_0/input_0.pb", tensor([-1, 2, -3]))
    write(name + "/test_data_set_0/output_0.pb", tensor(y))
PY
expect() { # exit code (a pattern), then facts about the document, "--", command
    local code=$1 facts=() got fact; shift
    while [ "$1" != -- ]; do facts+=("$1"); shift; done; shift
    "$HONE" "$@" >"$dir/out" 2>"$dir/err"; got=$?
    [[ $got == $code ]] || { echo "hone $*: exit $got, not $code"; cat "$dir/err"; bad=1; }
    python3 -c 'import json,sys; t=open(sys.argv[1],"rb").read().decode("utf-8"); json.loads(t); assert t.endswith("\n")' "$dir/out" ||
        { echo "hone $*: no JSON document"; head -c 300 "$dir/out"; bad=1; }
    for fact in "${facts[@]}"; do
        jq -e "$fact" "$dir/out" >/dev/null || { echo "hone $*: not so: $fact"; jq -c . "$dir/out" | head -c 1000; bad=1; }
    done
}
refuse() { # exit code, text on stderr, command: nothing on stdout, one sentence
    local code=$1 text=$2 got; shift 2
    "$HONE" "$@" >"$dir/out" 2>"$dir/err"; got=$?
    [ $got = "$code" ] && [ ! -s "$dir/out" ] && [ "$(wc -l <"$dir/err")" = 1 ] && grep -q "^hone: .*$text" "$dir/err" ||
        { echo "hone $*: exit $got, not $code with '$text'"; cat "$dir/out" "$dir/err"; bad=1; }
}
expect 0 '.samples == 1' '.top1 == null' '.outputs[0] | .name == "y" and .dtype == "f32" and .shape == [1, 3] and .nan == 0 and .min >= 0' \
    -- run --json "$dir/x.onnx"
expect 0 '.samples == 1' '.outputs[0] | .max == 2 and .min == 0' -- run --json --data "$dir/good" "$dir/x.onnx"
expect 1 '.passed == 1 and .failed == 1 and .skipped == 0' '.steps == null' '.models | length == 2' '.models[0] | .verdict == "passed" and .reason == null' \
    '.models[1] | .verdict == "failed" and (.reason | test("output .y. differs"))' '.models[1].folder | endswith("/wrong")' -- check --json "$dir"
# A scripted card computes nothing, but the steps stand there.
fakes=${HONE_BUILD_DIR:-$(dirname "$HONE")}/fakes
HONE_CUDA_LIB=$fakes/libcuda_run.so HONE_NVRTC_LIB=$fakes/libnvrtc.so HONE_STORE=off \
    expect 1 '.failed == 2' '.steps == {card: 2, host: 0, between: 0, host_by_op: {}}' -- check --device cuda --json "$dir"
expect 0 '.latency_ms.p50 > 0' 'has("profile") | not' -- bench --json --seconds 0.05 "$dir/x.onnx"
expect 0 '.profile | length == 1' '.profile[0] | .op == "Relu" and .us > 0 and .share > 0.99' -- bench --json --profile --seconds 0.05 "$dir/x.onnx"
expect 0 '.speedup > 0 and (.speedup_ci | length) == 2 and .differences == null' -- bench --json --seconds 0.1 "$dir/x.onnx" --vs "$dir/x.onnx"
[ ! -s "$dir/err" ] || { echo "equal models: a warning"; cat "$dir/err"; bad=1; }
expect 0 '.differences | test("input 0 is .x. in one and .z.")' -- bench --json --seconds 0.1 "$dir/x.onnx" --vs "$dir/z.onnx"
grep -q "^hone: warning: .*are not given the same work: input 0 is 'x' in one" "$dir/err" || { echo "other names: no warning"; bad=1; }
expect 0 '.differences | test("f32.*3.* in one and f32.*4")' -- bench --json --seconds 0.1 "$dir/x.onnx" --vs "$dir/wide.onnx"
expect 0 '.model.sha256 | length == 64' '.baseline.latency_ms.p50 > 0' '.result.latency_ms.p50 > 0' '.strategies | length > 0' '.strategies[0] | has("kept") and has("reason") and .was_kept == null' \
    '.aa.pairs > 0' '.command | startswith("hone optimize")' -- optimize --json --seconds 0.05 "$dir/x.onnx" -o "$dir/o.onnx" --report "$dir/report"
cmp -s "$dir/out" "$dir/report/report.json" || { echo "--json prints another document than report.json"; bad=1; }
[ -s "$dir/o.onnx" ] || { echo "optimize --json wrote no model"; bad=1; }
# 1: a verdict changed, which so short a measurement may well give; or it made no candidate at all.
"$HONE" optimize --json --seconds 0.05 "$dir/x.onnx" --recheck "$dir/report/report.json" >"$dir/out" 2>"$dir/err"
[ $? = 3 ] && grep -q "nothing can be measured again" "$dir/err" ||
    expect '[01]' '.result == null and .total == null' -- optimize --json --seconds 0.05 "$dir/x.onnx" --recheck "$dir/report/report.json"

for command in "run --json" "bench --json" "inspect --json" "optimize --json -o $dir/p.onnx"; do refuse 3 "missing.onnx" $command "$dir/missing.onnx"; done
refuse 3 "no model.onnx" check --json "$dir/report"
for option in --replay --recheck; do
    out="-o $dir/p.onnx"; [ $option = --replay ] || out=
    refuse 3 "cannot open '$dir/none.json': No such file" optimize "$dir/x.onnx" $out $option "$dir/none.json"
    printf '{"a": 1,\n"b": oops}' >"$dir/bad.json"
    refuse 3 "'$dir/bad.json' is no report: what stands at line 2" optimize "$dir/x.onnx" $out $option "$dir/bad.json"
    refuse 3 "not a regular file\|is a folder\|Is a directory\|holds no decisions" optimize "$dir/x.onnx" $out $option "$dir"
done
[ ! -e "$dir/p.onnx" ] || { echo "a refused run left an output file"; bad=1; }
for command in run check bench inspect optimize doctor; do "$HONE" help $command | grep -q -- --json || { echo "help $command does not name --json"; bad=1; }; done
exit $bad
