#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Recurrent layers on a card: hone against PyTorch's (cuDNN's) on the same weights and inputs.

    bench/gpu/recurrent.py HONE

Prints a table: milliseconds of one layer over all steps, the input on the card for both, and how far apart
the outputs are."""
import json, os, subprocess, sys, tempfile
import numpy as np, onnx, torch
from onnx import TensorProto, helper, numpy_helper

hone = sys.argv[1]
CASES = [("LSTM", 128, 1, 256, 256), ("LSTM", 128, 32, 512, 512), ("LSTM", 64, 128, 1024, 1024), ("GRU", 128, 32, 512, 512),
         ("LSTM", 32, 1, 128, 64), ("GRU", 100, 1, 64, 128)]
ORDER = {"LSTM": [0, 3, 1, 2], "GRU": [1, 0, 2]}  # gates of ONNX out of PyTorch's


def gates(weight, kind):
    parts = np.split(weight.detach().cpu().numpy(), len(ORDER[kind]))
    return np.concatenate([parts[i] for i in ORDER[kind]])


def model(kind, layer, dtype, steps, batch, width, hidden, path):
    w, r = gates(layer.weight_ih_l0, kind)[None], gates(layer.weight_hh_l0, kind)[None]
    b = np.concatenate([gates(layer.bias_ih_l0, kind), gates(layer.bias_hh_l0, kind)])[None]
    weights = [numpy_helper.from_array(np.ascontiguousarray(v.astype(dtype)), n) for v, n in ((w, "W"), (r, "R"), (b, "B"))]
    extra = {"linear_before_reset": 1} if kind == "GRU" else {}
    node = helper.make_node(kind, ["x", "W", "R", "B"], ["y"], hidden_size=hidden, **extra)
    t = TensorProto.FLOAT16 if dtype == np.float16 else TensorProto.FLOAT
    graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("x", t, [steps, batch, width])],
                              [helper.make_tensor_value_info("y", t, [steps, 1, batch, hidden])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), path)


def torch_ms(layer, x):
    for _ in range(5):
        layer(x)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for _ in range(7):
        begin.record()
        for _ in range(10):
            layer(x)
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 10)
    return sorted(times)[3]


print("| layer | steps | batch | in | hidden | type | hone ms | torch ms | ratio | difference |\n|---|--:|--:|--:|--:|---|--:|--:|--:|--:|")
torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
with tempfile.TemporaryDirectory() as d, torch.no_grad():
    for kind, steps, batch, width, hidden in CASES:
        for dtype in (np.float32, np.float16):
            torch.manual_seed(1)
            half = torch.float16 if dtype == np.float16 else torch.float32
            layer = getattr(torch.nn, kind)(width, hidden).cuda().to(half)
            layer.flatten_parameters()
            x = torch.randn(steps, batch, width, device="cuda").to(half)
            path = f"{d}/m.onnx"
            model(kind, layer, dtype, steps, batch, width, hidden, path)
            np.save(f"{d}/x.npy", x.cpu().numpy())
            run = subprocess.run([hone, "run", path, "--device", "cuda", "--input", f"x={d}/x.npy", "--output-dir", d], capture_output=True, text=True)
            bench = subprocess.run([hone, "bench", path, "--device", "cuda", "--resident", "--seconds", "0.3", "--json", "--input", f"x={d}/x.npy"],
                                   capture_output=True, text=True)
            if run.returncode or bench.returncode:
                print(f"| {kind} | {steps} | {batch} | {width} | {hidden} | {np.dtype(dtype).name} | failed: {run.stderr.strip()} {bench.stderr.strip()} |")
                continue
            stats = json.loads(bench.stdout)
            mine = stats["latency_ms"]["p50"] if isinstance(stats.get("latency_ms"), dict) else stats["p50_ms"]
            want = layer(x)[0].float().cpu().numpy()
            got = np.load(f"{d}/0_0.npy").astype(np.float32)[:, 0]
            theirs = torch_ms(layer, x)
            print(f"| {kind} | {steps} | {batch} | {width} | {hidden} | {np.dtype(dtype).name} | {mine:.3f} | {theirs:.3f} | {theirs / mine:.2f} |"
                  f" {np.abs(want - got).max() / np.abs(want).max():.1e} |", flush=True)
