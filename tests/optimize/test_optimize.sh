#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The main job from the command line on the demo's network with made images: report keys, replay to
# the same bytes, refusals, nothing lost on errors. TEST-TIMEOUT 240
set -u
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
model=$HONE_SOURCE_DIR/examples/fashion/fashion_resnet.onnx
fail() { echo "FAILED: $*"; exit 1; }
python3 - "$dir" <<'PY' || exit 1
import array, random, struct, sys, zipfile
random.seed(3)
def npy(descr, shape, raw):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape!r}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + raw
def write(name, count, value):
    data = array.array("f", (value() for _ in range(count * 784))).tobytes()
    with zipfile.ZipFile(f"{sys.argv[1]}/{name}", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("image.npy", npy("<f4", (count, 1, 28, 28), data))
write("data.npz", 64, lambda: max(0.0, random.gauss(0.3, 0.35)))
with zipfile.ZipFile(f"{sys.argv[1]}/other.npz", "w") as z:
    z.writestr("pixels.npy", npy("<f4", (1, 1, 28, 28), bytes(784 * 4)))
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

# No data: the lossy strategy is not tried; nothing kept gives the input's bytes.
opt -o "$dir/c.onnx" --only int8 >"$dir/out" 2>&1 || fail "optimize without data: $(cat "$dir/out")"
grep -q 'not tried: no calibration data' "$dir/out" || fail "no word on missing data"
cmp "$model" "$dir/c.onnx" || fail "nothing kept, yet the output is no copy"

# Errors: right status, one sentence, no output file.
expect() { # status, then arguments
    local want=$1 got
    shift
    "$HONE" optimize "$@" >/dev/null 2>"$dir/err"
    got=$?
    [ $got = "$want" ] || fail "exit $got where $want is due: $* ($(cat "$dir/err"))"
    [ "$(wc -l <"$dir/err")" = 1 ] || fail "not one sentence: $(cat "$dir/err")"
    [ ! -e "$dir/none.onnx" ] || fail "an output file was left by: $*"
    ! ls "$dir"/none.onnx.tmp* >/dev/null 2>&1 || fail "a temporary file was left by: $*"
}
expect 2 "$model"
expect 2 "$model" -o "$dir/none.onnx" --objective beauty
expect 2 "$model" -o "$dir/none.onnx" --budget 0
expect 3 "$model" -o "$dir/none.onnx" --data "$dir/other.npz"
expect 3 "$model" -o "$dir/none.onnx" --data "$dir/missing.npz"
expect 3 "$dir/data.npz" -o "$dir/none.onnx"
expect 3 "$model" -o "$dir/none.onnx" --replay "$dir/data.npz"
jq '.model.sha256 = "0"' "$dir/r/report.json" >"$dir/wrong.json"
expect 3 "$model" -o "$dir/none.onnx" --replay "$dir/wrong.json"
expect 5 "$model" -o "$dir/no/such/folder.onnx" --seconds 0.05 --only graph
echo "the main job holds"
