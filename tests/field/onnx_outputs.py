#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""usage: onnx_outputs.py MODELS WRITTEN
Runs MODELS/NAME/model.onnx and WRITTEN/NAME.onnx in onnxruntime on the same inputs (stored ones, else random):
the interface must be the same, the outputs equal to rounding, and the written file must pass onnx.checker."""
import glob, os, sys
import numpy as np
import onnx, onnxruntime as ort
from onnx import numpy_helper as nh

ort.set_default_logger_severity(4)
TYPES = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": bool,
         "tensor(uint8)": np.uint8, "tensor(double)": np.float64, "tensor(float16)": np.float16}

def feeds(folder, session):
    stored = sorted(glob.glob(f"{folder}/test_data_set_0/input_*.pb"))
    if stored:
        tensors = [onnx.load_tensor(p) for p in stored]
        return {i.name: nh.to_array(t) for i, t in zip(session.get_inputs(), tensors)}
    rng = np.random.RandomState(1)
    def make(i):
        shape = [d if isinstance(d, int) else {"height": 64, "width": 64}.get(d, 1) for d in i.shape]
        if i.name == "input" and len(shape) == 2: shape[1] = 512  # samples of audio
        kind = TYPES[i.type]
        if i.name == "sr": return np.array(16000, kind).reshape(shape)
        if kind in (np.float32, np.float64, np.float16): return rng.rand(*shape).astype(kind)
        return rng.randint(0, 2, shape).astype(kind)
    return {i.name: make(i) for i in session.get_inputs()}

def options():
    o = ort.SessionOptions()
    o.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return o

def interface(path):
    # As the file declares it: a session may know more. Weights that old files list as inputs are none.
    graph = onnx.load(path).graph
    weights = {t.name for t in graph.initializer}
    dims = lambda v: [d.dim_param or (d.dim_value if d.HasField("dim_value") else None) for d in v.type.tensor_type.shape.dim]
    return [[(v.name, v.type.tensor_type.elem_type, dims(v)) for v in group if v.name not in weights] for group in (graph.input, graph.output)]

bad = 0
for folder in sorted(glob.glob(sys.argv[1] + "/*")):
    name = os.path.basename(folder)
    try:
        path = f"{sys.argv[2]}/{name}.onnx"
        onnx.checker.check_model(path, full_check=True)
        a, b = (ort.InferenceSession(p, options(), providers=["CPUExecutionProvider"]) for p in (f"{folder}/model.onnx", path))
        before, after = interface(f"{folder}/model.onnx"), interface(path)
        if before != after: raise ValueError(f"the interface {before} became {after}")
        inputs = feeds(folder, a)
        worst = 0.0
        for x, y in zip(a.run(None, inputs), b.run(None, inputs)):
            if x.shape != y.shape or x.dtype != y.dtype: raise ValueError(f"{x.shape} {x.dtype} became {y.shape} {y.dtype}")
            if x.size: worst = max(worst, float(np.max(np.abs(x.astype(float) - y.astype(float))) / (np.max(np.abs(x)) + 1e-9)))
        if worst > 1e-5: raise ValueError(f"outputs differ by {worst:.3g}")
        print(f"{name}: same interface, outputs within {worst:.2g}")
    except Exception as e:
        print(f"FAILED {name}: {str(e)[:600]}")
        bad += 1
sys.exit(bad != 0)
