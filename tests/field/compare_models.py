#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs real models through hone and onnxruntime on the same inputs and compares all outputs within
the design's tolerance: |a - b| <= 1e-4 * max|ref| + 1e-6. Also: stored reference outputs, twins that
must agree with each other, and no Conv, MatMul or Gemm on the reference path.

    compare_models.py HONE MODELS_DIR [NAME...]
"""
import json, os, subprocess, sys, tempfile
import numpy as np, onnxruntime as ort
from model_inputs import SHAPES, differs, make_inputs

hone, root = sys.argv[1], sys.argv[2]
names = sys.argv[3:] or sorted(os.listdir(root))
TWINS = [("face_rfb320", "face_rfb320_simplified"), ("speech_gtcrn", "speech_gtcrn_simple"), ("vad_silero", "vad_silero_ifless")]


def run_hone(path, feeds, order, extra=()):
    with tempfile.TemporaryDirectory() as d:
        args = [hone, "run", path, "--output-dir", d, *extra]
        for k, (name, value) in enumerate(feeds.items()):
            np.save(f"{d}/in{k}.npy", value)
            args += ["--input", f"{name}={d}/in{k}.npy"]
        r = subprocess.run(args, capture_output=True, text=True)
        if r.returncode:
            raise RuntimeError(r.stderr.strip())
        return [np.load(f"{d}/0_{k}.npy") for k in range(order)]


failed = 0


def say(ok, what, why=""):
    global failed
    failed += not ok
    print(("ok     " if ok else "FAILED ") + what + (": " + why if why else ""))


sessions = {}
for name in names:
    path = f"{root}/{name}/model.onnx"
    so = ort.SessionOptions()
    so.intra_op_num_threads, so.log_severity_level = 2, 3
    s = sessions[name] = ort.InferenceSession(path, so, providers=["CPUExecutionProvider"])
    for k, shapes in enumerate(SHAPES.get(name, [{}, {}])):
        feeds = make_inputs(s, name, shapes, k)
        try:
            refs = s.run(None, feeds)
            got = run_hone(path, feeds, len(refs))
            why = [f"{o.name}: {w}" for o, r, g in zip(s.get_outputs(), refs, got) if (w := differs(r, g))]
            say(not why, f"{name} inputs {k}", "; ".join(why))
        except RuntimeError as e:
            say(False, f"{name} inputs {k}", str(e))
    with tempfile.TemporaryDirectory() as d:
        args = [hone, "bench", path, "--seconds", "0.02", "--json"]
        for k, (n, value) in enumerate(make_inputs(s, name, SHAPES.get(name, [{}])[0], 0).items()):
            np.save(f"{d}/{k}.npy", value)
            args += ["--input", f"{n}={d}/{k}.npy"]
        r = subprocess.run(args, capture_output=True, text=True)
    stats = json.loads(r.stdout) if r.returncode == 0 else None
    say(stats is not None and stats["heavy_reference_steps"] == 0, f"{name} heavy steps on fast paths",
        r.stderr.strip() if stats is None else f"{stats['heavy_steps']} heavy, {stats['heavy_reference_steps']} of them and {stats['reference_steps']} of {stats['steps']} in all on the reference path")

for a, b in TWINS:
    if a not in names or b not in names:
        continue
    shapes = SHAPES.get(a, [{}])[0]
    feeds = make_inputs(sessions[a], a, shapes, 5 - 5 % 2)
    try:
        ya = run_hone(f"{root}/{a}/model.onnx", feeds, len(sessions[a].get_outputs()))
        other = {n.name: v for n, v in zip(sorted(sessions[b].get_inputs(), key=lambda i: i.name), [feeds[k] for k in sorted(feeds)])}
        yb = run_hone(f"{root}/{b}/model.onnx", {i.name: other[i.name] for i in sessions[b].get_inputs()}, len(ya))
        # The simplified face_rfb320 ends before the boxes are decoded: its scores alone are comparable.
        pairs = list(zip(ya, yb))[:1] if a == "face_rfb320" else zip(ya, yb)
        why = [w for p, q in pairs if (w := differs(p, q))]
        say(not why, f"twins {a} and {b}", "; ".join(why))
    except (RuntimeError, KeyError) as e:
        say(False, f"twins {a} and {b}", str(e))

r = subprocess.run([hone, "check", root], capture_output=True, text=True)
say(r.returncode == 0, "stored reference outputs", r.stdout.strip().split("\n")[-1])
print(f"{failed} failed")
sys.exit(failed > 0)
