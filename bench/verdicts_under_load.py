#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do verdicts stand on a busy machine? Runs of `hone optimize`, with a process that hogs one core beside
them, must keep and refuse the same strategies where the effect exceeds 5 %.

    verdicts_under_load.py HONE MODELS_DIR [--runs 5] [--seconds 1] [--only-models a,b] [--only NAMES]

Prints a table: of each strategy the speed-ups of all runs and the verdicts. Exit 1 when a strategy whose
effect exceeds 5 % (median of the runs; an answer outside the budget counts as well) has two verdicts.
"""
import argparse, json, os, statistics, subprocess, sys, tempfile
import numpy as np

arguments = argparse.ArgumentParser()
arguments.add_argument("hone")
arguments.add_argument("models")
arguments.add_argument("--runs", type=int, default=5)
arguments.add_argument("--seconds", default="1")
arguments.add_argument("--only-models", default="filetype_magika,face_rfb320,bert-ts,vit_cifar_ibp,cifar_resnet2b")
arguments.add_argument("--only", default="graph,int8,int8-dynamic,bf16,threads")
arguments.add_argument("--no-hog", action="store_true")
o = arguments.parse_args()
rng = np.random.default_rng(11)


def data_of(name, folder):
    """(data set, options): what the model is judged on. Made numbers where no real ones are at hand."""
    path = f"{folder}/{name}.npz"
    if name == "filetype_magika":
        return f"{o.models}/{name}/samples.npz", []
    if name == "bert-ts":
        mask = np.ones((64, 64), np.int64)
        mask[::2, 40:] = 0
        np.savez(path, ids=rng.integers(0, 50, (64, 64)), mask=mask)
        return path, ["--batch", "4"]
    shape, key, rows = {"face_rfb320": ((3, 240, 320), "input", 24), "vit_cifar_ibp": ((3, 32, 32), "input", 256),
                        "cifar_resnet2b": ((3, 32, 32), "input.1", 256)}[name]
    # Smooth pictures: sums of a few waves.
    y, x = np.mgrid[0:1:shape[1] * 1j, 0:1:shape[2] * 1j]
    a = rng.standard_normal((rows, shape[0], 4, 3))
    pictures = sum(np.cos(6 * a[:, :, k, 0, None, None] * y + 6 * a[:, :, k, 1, None, None] * x + a[:, :, k, 2, None, None]) for k in range(4))
    np.savez(path, **{key: (pictures / 2).astype(np.float32)})
    return path, ["--batch", "16"] if name == "vit_cifar_ibp" else []


def one(name, data, extra, folder, seed):
    report = f"{folder}/report"
    r = subprocess.run([o.hone, "optimize", f"{o.models}/{name}/model.onnx", "-o", f"{folder}/out.onnx", "--data", data, "--budget", "5",
                        "--seconds", o.seconds, "--seed", str(seed), "--only", o.only, "--report", report, *extra], capture_output=True, text=True)
    if r.returncode:
        sys.exit(f"{name}: {r.stderr.strip()}")
    return {s["name"]: s for s in json.load(open(f"{report}/report.json"))["strategies"]}


def verdict(s):
    return "kept" if s["kept"] else "refused" if s["decision"] is not None else "none"


hog = None if o.no_hog else subprocess.Popen([sys.executable, "-c", "import os\nos.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\nwhile True: pass"])
flips = large = 0
print("| model | strategy | speed-up in each run | verdicts | effect above 5 % |\n|---|---|---|---|---|", flush=True)
try:
    with tempfile.TemporaryDirectory() as folder:
        for name in o.only_models.split(","):
            data, extra = data_of(name, folder)
            runs = [one(name, data, extra, folder, k) for k in range(o.runs)]
            for s in runs[0]:
                rows = [r[s] for r in runs]
                speeds = [r["speedup"] for r in rows if r["speedup"]]
                verdicts = [verdict(r) for r in rows]
                middle = statistics.median(speeds) if speeds else 1
                big = abs(np.log(middle)) > np.log(1.05) or any(r["reason"].startswith("accuracy") for r in rows)
                same = len({v == "kept" for v in verdicts}) == 1
                if not same:
                    for k, r in enumerate(rows):
                        print(f"run {k}: {r['reason']}", file=sys.stderr)
                large += big
                flips += big and not same
                counts = ", ".join(f"{verdicts.count(v)} {v}" for v in dict.fromkeys(verdicts))
                print(f"| {name} | {s} | {' '.join(f'{v:.2f}' for v in speeds) or '-'} | {counts} | {'yes' if big else 'no'}{'' if same else ', DIFFERS' if big else ', differs'} |", flush=True)
finally:
    if hog:
        hog.kill()
        hog.wait()
print(f"\n{large} strategies with an effect above 5 %, {flips} of them with two verdicts in {o.runs} runs of {o.seconds} s{'' if o.no_hog else ', one core hogged'}")
sys.exit(flips > 0)
