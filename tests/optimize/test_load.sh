#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Verdicts on a busy machine: with a process that hogs one core beside them, runs of hone optimize keep and
# refuse the same strategies where the effect exceeds 5 %. The long form, over real models, is
# bench/verdicts_under_load.py. TEST-TIMEOUT 240 TEST-SERIAL
set -u
dir=$(mktemp -d)
hog=
trap 'rm -rf "$dir"; [ -z "$hog" ] || kill "$hog"' EXIT
fail() { echo "FAILED: $*"; exit 1; }
python3 - "$dir/data.npz" <<'PY' || exit 1
import array, random, struct, sys, zipfile
random.seed(5)
head = "{'descr': '<f4', 'fortran_order': False, 'shape': (64, 1, 28, 28), }"
head += " " * (-(len(head) + 11) % 64) + "\n"
data = array.array("f", (max(0.0, random.gauss(0.3, 0.35)) for _ in range(64 * 784))).tobytes()
with zipfile.ZipFile(sys.argv[1], "w") as z:
    z.writestr("image.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)
PY
python3 -c 'import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
while os.getppid() != 1: sum(range(100000))' &
hog=$!
for run in 1 2 3; do
    "$HONE" optimize "$HONE_SOURCE_DIR/examples/fashion/fashion_resnet.onnx" -o "$dir/o.onnx" --data "$dir/data.npz" --only graph,int8,int8-dynamic \
        --budget 50 --batch 8 --seconds 0.2 --seed $run --report "$dir/r$run" >"$dir/out" 2>&1 || fail "run $run: $(cat "$dir/out")"
done
python3 - "$dir" <<'PY' || fail "verdicts differ"
import json, statistics, sys
runs = [{s["name"]: s for s in json.load(open(f"{sys.argv[1]}/r{k}/report.json"))["strategies"]} for k in (1, 2, 3)]
compared = differ = 0
for name in runs[0]:
    rows = [r[name] for r in runs]
    speeds = [r["speedup"] for r in rows if r["speedup"]]
    effect = statistics.median(speeds) if speeds else 1
    if 1 / 1.05 <= effect <= 1.05:
        continue
    compared += 1
    if len({r["kept"] for r in rows}) > 1:
        differ += 1
        print(name, *[f"{r['kept']}: {r['reason']}" for r in rows], sep="\n  ")
if not compared:
    print("no strategy has an effect above 5 %")
sys.exit(differ > 0 or not compared)
PY
echo "the same verdicts beside a busy core"
