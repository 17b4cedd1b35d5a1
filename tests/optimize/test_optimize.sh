#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job from the command line on the demo's network with made images: report keys, replay to
# the same bytes, refusals, nothing lost on errors. TEST-TIMEOUT 240
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
model=$HONE_SOURCE_DIR/examples/fashion/fashion_resnet.onnx
fail() { echo "FAILED: $*"; exit 1; }
PYTHONPATH=$HONE_SOURCE_DIR/tests/optimize python3 - "$dir" <<'PY' || exit 1
import array, npz, random, sys
random.seed(3)
def write(name, count, value):
    data = array.array("f", (value() for _ in range(count * 784))).tobytes()
    npz.save(f"{sys.argv[1]}/{name}", image=("<f4", (count, 1, 28, 28), data))
write("data.npz", 64, lambda: max(0.0, random.gauss(0.3, 0.35)))
npz.save(f"{sys.argv[1]}/other.npz", pixels=("<f4", (1, 1, 28, 28), bytes(784 * 4)))
PY
opt() { "$HONE" optimize "$model" --seconds 0.2 --threads 1 --batch 16 "$@"; }

# int8 by force: the file, the report, the replay.
opt -o "$dir/a.onnx" --data "$dir/data.npz" --only int8 --force int8 --budget 50 --report "$dir/r" >"$dir/out" 2>&1 || fail "optimize: $(cat "$dir/out")"
grep -q '^int8 .*kept' "$dir/out" || fail "int8 is not kept: $(cat "$dir/out")"
for key in model.sha256 device.isa baseline.latency_ms.p50 baseline.throughput_per_s baseline.peak_memory_bytes \
    result.file_bytes result.accuracy.cosine aa.speedup_ci command decisions; do
    jq -e ".${key} != null" "$dir/r/report.json" >/dev/null || fail "report.json lacks $key"
done
jq -e '.baseline | has("energy_j_per_sample")' "$dir/r/report.json" >/dev/null || fail "energy key"
jq -e '.strategies[0] | .name == "int8" and .kept and (.speedup_ci | length == 2)' "$dir/r/report.json" >/dev/null || fail "strategies"
jq -e '[.layers[] | select(.precision == "int8")] | length >= 5' "$dir/r/report.json" >/dev/null || fail "layers"
opt -o "$dir/b.onnx" --replay "$dir/r/report.json" >/dev/null 2>&1 || fail "replay"
cmp "$dir/a.onnx" "$dir/b.onnx" || fail "the replayed model differs"
"$HONE" inspect "$dir/a.onnx" | grep -q QuantizeLinear || fail "no QuantizeLinear in the output"
[ "$(stat -c %s "$dir/a.onnx")" -lt $(( $(stat -c %s "$model") / 3 )) ] || fail "the int8 file is not much smaller"

# The page stands alone and shows what the report says.
page=$dir/r/report.html
for word in 'Before and after' 'Strategies' 'Precision by layer' 'heaviest steps' '--replay report.json' '<svg'; do
    grep -q -- "$word" "$page" || fail "report.html lacks '$word'"
done
! grep -Eq '<script|src=|href=|url\(' "$page" || fail "report.html fetches something"

# The chain was measured again by a process of its own, and a recheck of the report measures once more.
jq -e '.fresh.pairs >= 7' "$dir/r/report.json" >/dev/null || fail "no fresh process"
"$HONE" optimize "$model" --recheck "$dir/r/report.json" --data "$dir/data.npz" --seconds 0.2 --threads 1 --batch 16 --budget 50 >"$dir/out" 2>&1
[ $? -le 1 ] || fail "recheck: $(cat "$dir/out")"
grep -q '^[01] of 1 verdicts changed$' "$dir/out" || fail "recheck says nothing: $(cat "$dir/out")"

# Objectives: fp16 storage is for size; what serves another objective says so; a time limit ends the run.
opt -o "$dir/h.onnx" --data "$dir/data.npz" --only fp16,threads --force fp16 --objective size --report "$dir/h" >"$dir/out" 2>&1 || fail "size: $(cat "$dir/out")"
grep -q '^fp16 .*kept.*file size 0\.[45]' "$dir/out" || fail "fp16 is not kept for size: $(cat "$dir/out")"
grep -q '^threads .*not tried: it serves latency' "$dir/out" || fail "threads serves no size: $(cat "$dir/out")"
[ "$(stat -c %s "$dir/h.onnx")" -lt $(( $(stat -c %s "$model") * 6 / 10 )) ] || fail "fp16 storage is not small"
opt -o "$dir/h2.onnx" --replay "$dir/h/report.json" >/dev/null 2>&1 || fail "replay of fp16"
cmp "$dir/h.onnx" "$dir/h2.onnx" || fail "the replayed fp16 model differs"
opt -o "$dir/d.onnx" --data "$dir/data.npz" --only int8-dynamic --force int8-dynamic --objective size --budget 50 --report "$dir/d" >"$dir/out" 2>&1 || fail "int8-dynamic: $(cat "$dir/out")"
"$HONE" inspect "$dir/d.onnx" | grep -q DynamicQuantizeLinear || fail "no product by the range of the call: $(cat "$dir/out")"
opt -o "$dir/d2.onnx" --replay "$dir/d/report.json" >/dev/null 2>&1 || fail "replay of int8-dynamic"
cmp "$dir/d.onnx" "$dir/d2.onnx" || fail "the replayed int8-dynamic model differs"
opt -o "$dir/t.onnx" --data "$dir/data.npz" --time-limit 0.01 >"$dir/out" 2>&1 || fail "time limit: $(cat "$dir/out")"
grep -q '^int8 .*not tried: the time limit of 0.01 s is used up' "$dir/out" || fail "no word on the time limit: $(cat "$dir/out")"
opt -o "$dir/w.onnx" --objective throughput --only batch --batch 1 --report "$dir/w" >"$dir/out" 2>&1 || fail "batch: $(cat "$dir/out")"
grep -Eq '^batch .*(kept.*rows a call|more rows a second|no effect)' "$dir/out" || fail "batch says nothing: $(cat "$dir/out")"

# No data: the lossy strategy is not tried; nothing kept gives the input's bytes.
opt -o "$dir/c.onnx" --only int8 >"$dir/out" 2>&1 || fail "optimize without data: $(cat "$dir/out")"
grep -q 'not tried: no calibration data' "$dir/out" || fail "no word on missing data"
cmp "$model" "$dir/c.onnx" || fail "nothing kept, yet the output is no copy"

# Weights in a file of their own: nothing kept and another folder, the output has them inside; a copy
# of the model file alone could not be loaded there.
python3 - "$dir" <<'PY' || exit 1
import os, struct, sys
def field(n, data): # length-delimited or varint
    if isinstance(data, int): return bytes([n << 3, data])
    data = data.encode() if isinstance(data, str) else data
    assert len(data) < 128 * 128
    size = bytes([len(data)]) if len(data) < 128 else bytes([len(data) & 127 | 128, len(data) >> 7])
    return bytes([n << 3 | 2]) + size + data
def value(name): # float32, 4 x 4
    dims = field(1, field(1, 4)) * 2
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, dims)))
weight = bytes([8, 4, 8, 4]) + field(2, 1) + field(8, "w") + field(13, field(1, "location") + field(2, "w.data")) + bytes([14 << 3, 1])
node = field(1, "x") + field(1, "w") + field(2, "y") + field(4, "MatMul")
graph = field(1, node) + field(2, "g") + field(5, weight) + field(11, value("x")) + field(12, value("y"))
os.makedirs(f"{sys.argv[1]}/far")
open(f"{sys.argv[1]}/ext.onnx", "wb").write(field(1, 8) + field(7, graph) + field(8, field(2, 13)))
open(f"{sys.argv[1]}/w.data", "wb").write(struct.pack("<16f", *range(16)))
PY
"$HONE" optimize "$dir/ext.onnx" -o "$dir/far/ext.onnx" --seconds 0.05 --only graph >"$dir/out" 2>&1 || fail "external data: $(cat "$dir/out")"
grep -q 'the input with its external weights' "$dir/out" || fail "no word on the weights: $(cat "$dir/out")"
"$HONE" run "$dir/far/ext.onnx" >/dev/null || fail "the output does not run"
[ "$(ls -A "$dir/far")" = ext.onnx ] || fail "left beside the output: $(ls -A "$dir/far")"

# Labels that are no classes of the model are refused: ignored, they would drop the metric unsaid.
PYTHONPATH=$HONE_SOURCE_DIR/tests/optimize python3 - "$dir" <<'PY' || exit 1
import npz, struct, sys
for name, labels in {"beyond": ("<i8", (1,), struct.pack("<q", 10)), "below": ("<i8", (1,), struct.pack("<q", -1)),
                     "real": ("<f4", (1,), struct.pack("<f", 1))}.items():
    npz.save(f"{sys.argv[1]}/{name}.npz", image=("<f4", (1, 1, 28, 28), bytes(784 * 4)), labels=labels)
PY

# collect: real inputs of runs add up to calibration data; made ones are refused.
"$HONE" collect "$model" -o "$dir/calib.npz" --data "$dir/data.npz" --most 3 >"$dir/out" 2>&1 || fail "collect: $(cat "$dir/out")"
grep -q "^3 rows in" "$dir/out" || fail "collect: $(cat "$dir/out")"
"$HONE" collect "$model" -o "$dir/calib.npz" --data "$dir/data.npz" --most 5 --batch 2 >"$dir/out" 2>&1 || fail "collect again: $(cat "$dir/out")"
grep -q "^5 rows in" "$dir/out" || fail "collect does not add up: $(cat "$dir/out")"
"$HONE" run "$model" --data "$dir/calib.npz" >"$dir/out" 2>&1 || fail "collected data do not run: $(cat "$dir/out")"
grep -q "^5 samples" "$dir/out" || fail "collected data: $(cat "$dir/out")"
"$HONE" collect "$model" -o "$dir/none.npz" >/dev/null 2>&1
[ $? = 2 ] || fail "collect takes made inputs"

# Errors: right status, one sentence, no output file.
expect() { # status, then arguments
    local want=$1 got
    shift
    "$HONE" optimize "$@" >/dev/null 2>"$dir/err"
    got=$?
    [ $got = "$want" ] || fail "exit $got where $want is due: $* ($(cat "$dir/err"))"
    [ "$(wc -l <"$dir/err")" = 1 ] || fail "not one sentence: $(cat "$dir/err")"
    [ ! -e "$dir/none.onnx" ] || fail "an output file was left by: $*"
    ! ls -d "$dir"/.hone-* >/dev/null 2>&1 || fail "a temporary file was left by: $*"
}
expect 2 "$model"
expect 2 "$model" -o "$dir/none.onnx" --objective beauty
expect 2 "$model" -o "$dir/none.onnx" --budget 0
expect 2 "$model" -o "$dir/none.onnx" --time-limit -1
expect 2 "$model" -o "$dir/none.onnx" --recheck "$dir/r/report.json"
expect 3 "$model" -o "$dir/none.onnx" --data "$dir/other.npz"
expect 3 "$model" -o "$dir/none.onnx" --data "$dir/missing.npz"
for labels in beyond below real; do expect 3 "$model" -o "$dir/none.onnx" --data "$dir/$labels.npz"; done
expect 3 "$dir/data.npz" -o "$dir/none.onnx"
expect 3 "$model" -o "$dir/none.onnx" --replay "$dir/data.npz"
jq '.model.sha256 = "0"' "$dir/r/report.json" >"$dir/wrong.json"
expect 3 "$model" -o "$dir/none.onnx" --replay "$dir/wrong.json"
expect 5 "$model" -o "$dir/no/such/folder.onnx" --seconds 0.05 --only graph
echo "the main job holds"
