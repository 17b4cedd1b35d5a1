#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random single-op models with onnxruntime's outputs, as test-data folders for `hone check`.

usage: ort_cases.py FOLDER [SEED]. Attributes and sizes are drawn at random; what onnxruntime refuses
to run is drawn again. Known deviations of onnxruntime from the standard are left out where noted."""
import os, sys
import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

ort.set_default_logger_severity(4)
folder, seed = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
rng = np.random.default_rng(seed)
F = np.float32

def pick(*choices): return choices[rng.integers(len(choices))]
def ints(lo, hi, n): return [int(v) for v in rng.integers(lo, hi + 1, n)]
def data(*shape): return rng.standard_normal(shape).astype(F)

def window(n, attrs, pool):
    attrs["strides"] = ints(1, 3, n)
    attrs["dilations"] = ints(1, 2, n)
    mode = pick("NOTSET", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    if mode == "NOTSET":
        attrs["pads"] = [int(rng.integers(0, k)) for k in attrs["kernel_shape"] * 2] if pool else ints(0, 2, 2 * n)
    else:
        attrs["auto_pad"] = mode
        if pool or mode.startswith("SAME"): attrs["dilations"] = [1] * n
        # Pools with gaps between windows: onnxruntime pads by a negative amount, the standard not.
        if pool and mode.startswith("SAME"): attrs["strides"] = [min(s, k) for s, k in zip(attrs["strides"], attrs["kernel_shape"])]
    return attrs

def conv():
    n, group = pick(1, 2, 2, 3), pick(1, 1, 2, 3)
    attrs = window(n, {"kernel_shape": ints(1, 3, n), "group": group}, False)
    cin, cout = group * pick(1, 2), group * pick(1, 2)
    ins = [data(pick(1, 2), cin, *ints(4, 9, n)), data(cout, cin // group, *attrs["kernel_shape"])]
    return "Conv", attrs, ins + ([data(cout)] if pick(0, 1) else [])

def conv_transpose():
    n, group = pick(1, 2, 2, 3), pick(1, 1, 2)
    attrs = {"kernel_shape": ints(1, 3, n), "group": group, "strides": ints(1, 3, n), "dilations": ints(1, 2, n)}
    size = ints(2, 5, n)
    form = pick("pads", "pads", "shape")
    if form == "pads":
        attrs["pads"] = [int(rng.integers(0, max(1, k))) for k in attrs["kernel_shape"] * 2]
        attrs["output_padding"] = [int(rng.integers(0, s)) for s in attrs["strides"]]
    else:
        attrs["output_shape"] = [s * t for s, t in zip(size, attrs["strides"])]
    cin, per = group * pick(1, 2), pick(1, 2)
    return "ConvTranspose", attrs, [data(pick(1, 2), cin, *size), data(cin, per, *attrs["kernel_shape"]), data(per * group)]

def pool():
    op, n = pick("MaxPool", "AveragePool", "AveragePool", "LpPool"), pick(1, 2, 2, 3)
    attrs = window(n, {"kernel_shape": ints(1, 4, n)}, True)
    if op == "LpPool":
        attrs["p"] = pick(1, 2, 3)
        attrs.pop("ceil_mode", None)
    else: attrs["ceil_mode"] = pick(0, 1)
    if op == "AveragePool": attrs["count_include_pad"] = pick(0, 1)
    size = ints(4, 9, n)
    pads = attrs.get("pads", [0] * 2 * n)
    for i in range(n):  # a window larger than its input: onnxruntime rounds the quotient towards zero
        if size[i] + pads[i] + pads[n + i] < (attrs["kernel_shape"][i] - 1) * attrs["dilations"][i] + 1: raise ValueError("window")
    return op, attrs, [data(pick(1, 2), 2, *size)]

def rnn():
    op = pick("RNN", "GRU", "LSTM", "LSTM")
    gates, per = {"RNN": (1, 1), "GRU": (3, 2), "LSTM": (4, 3)}[op]
    direction = pick("forward", "reverse", "bidirectional")
    dirs = 2 if direction == "bidirectional" else 1
    seq, batch, width, hidden = ints(1, 5, 4)
    attrs = {"direction": direction, "hidden_size": hidden}
    if pick(0, 1): attrs["activations"] = [pick("Sigmoid", "Tanh", "Relu", "HardSigmoid", "Softsign") for _ in range(per * dirs)]
    if pick(0, 0, 1): attrs["clip"] = 0.5
    if op == "GRU": attrs["linear_before_reset"] = pick(0, 1)
    if op == "LSTM": attrs["input_forget"] = pick(0, 0, 1)
    lens = rng.integers(1, seq + 1, batch).astype(np.int32)
    lens[rng.integers(batch)] = seq
    ins = [data(seq, batch, width), data(dirs, gates * hidden, width), data(dirs, gates * hidden, hidden),
           data(dirs, 2 * gates * hidden) if pick(0, 1) else None, lens if pick(0, 1) else None,
           data(dirs, batch, hidden) if pick(0, 1) else None]
    if op == "LSTM": ins += [data(dirs, batch, hidden) if pick(0, 1) else None, data(dirs, 3 * hidden) if pick(0, 1) else None]
    return op, attrs, ins, 3 if op == "LSTM" else 2

def resize():
    mode = pick("nearest", "nearest", "linear", "linear", "cubic")
    attrs = {"mode": mode, "coordinate_transformation_mode": pick("half_pixel", "asymmetric", "pytorch_half_pixel", "align_corners",
                                                                 "half_pixel_symmetric", "tf_crop_and_resize")}
    if mode == "nearest": attrs["nearest_mode"] = pick("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
    if mode == "nearest" and attrs["coordinate_transformation_mode"] == "half_pixel_symmetric":
        attrs["nearest_mode"] = "round_prefer_floor"  # floor and ceil of whole numbers hang on the last bit
    if mode == "cubic":
        attrs["cubic_coeff_a"] = pick(-0.5, -0.75)
        attrs["exclude_outside"] = pick(0, 1) if attrs["coordinate_transformation_mode"] != "tf_crop_and_resize" else 0
    x = data(1, 2, *ints(3, 8, 2))
    roi = np.array([0, 0, 0.113, -0.217, 1, 1, 0.829, 1.073], F) if attrs["coordinate_transformation_mode"] == "tf_crop_and_resize" else None
    if roi is not None: attrs["extrapolation_value"] = 7.0
    # A crop that keeps a dim's size: onnxruntime does not crop it.
    # Fractional scales with aligned corners: onnxruntime rounds the length first, the standard does not.
    if pick(0, 1) or attrs["coordinate_transformation_mode"] in ("align_corners", "half_pixel_symmetric"):
        size = ints(2, 12, 2)
        if roi is not None and (size[0] == x.shape[2] or size[1] == x.shape[3]): raise ValueError("not cropped")
        return "Resize", attrs, [x, roi, None, np.array([1, 2, *size], np.int64)]
    return "Resize", attrs, [x, roi, np.array([1, 1, *rng.uniform(0.4, 2.5, 2)], F)]

def grid_sample():
    n = pick(2, 2, 3)
    attrs = {"mode": pick("linear", "nearest", "cubic") if n == 2 else pick("linear", "nearest"),
             "padding_mode": pick("zeros", "border", "reflection"), "align_corners": pick(0, 1)}
    x = data(2, 2, *ints(2, 5, n))
    return "GridSample", attrs, [x, rng.uniform(-1.6, 1.6, (2, *ints(2, 4, n), n)).astype(F)]

def roi_align():
    attrs = {"mode": "avg", "coordinate_transformation_mode": pick("half_pixel", "output_half_pixel"), "output_height": pick(1, 2, 3),
             "output_width": pick(1, 2, 3), "sampling_ratio": pick(0, 1, 2), "spatial_scale": pick(1.0, 0.5)}
    low = rng.uniform(-1, 4, (3, 2))
    rois = np.concatenate([low, low + rng.uniform(0.1, 6, (3, 2))], 1).astype(F)
    return "RoiAlign", attrs, [data(2, 2, 6, 7), rois, np.array([0, 1, 1], np.int64)]

def nms():
    low = rng.uniform(0, 3, (2, 12, 2))
    boxes = np.concatenate([low, low + rng.uniform(0.2, 2, (2, 12, 2))], 2).astype(F)
    return "NonMaxSuppression", {"center_point_box": pick(0, 1)}, [boxes, rng.random((2, 2, 12)).astype(F), np.array([pick(2, 20)], np.int64),
                                                                  np.array([pick(0.1, 0.4, 0.7)], F), np.array([pick(0.0, 0.3)], F)]

def quantize():
    low, high, dtype = pick((0, 255, np.uint8), (-128, 127, np.int8))
    x = (data(3, 4, 5) * 20).astype(F)
    form = pick("tensor", "axis")
    shape = () if form == "tensor" else (4,)
    scale = rng.uniform(0.1, 2, shape).astype(F)
    zero = rng.integers(low, high + 1, shape).astype(dtype)
    attrs = {} if form == "tensor" else {"axis": 1}
    if pick(0, 1): return "QuantizeLinear", attrs, [x, np.asarray(scale, F), np.asarray(zero, dtype)]
    return "DequantizeLinear", attrs, [rng.integers(low, high + 1, (3, 4, 5)).astype(dtype), np.asarray(scale, F), np.asarray(zero, dtype)]

def qlinear_conv():
    group = pick(1, 2)
    attrs = window(2, {"kernel_shape": ints(1, 3, 2), "group": group}, False)
    cin, cout, u8 = group * 2, group * 2, np.uint8
    per = pick((), (cout,))
    return "QLinearConv", attrs, [rng.integers(0, 256, (1, cin, 6, 7)).astype(u8), np.array(0.02, F), np.array(120, u8),
                                  rng.integers(-127, 128, (cout, cin // group, *attrs["kernel_shape"])).astype(np.int8),
                                  np.asarray(rng.uniform(0.005, 0.02, per), F), np.zeros(per, np.int8), np.array(0.05, F), np.array(100, u8),
                                  rng.integers(-200, 200, cout).astype(np.int32)]

def norm():
    op = pick("LayerNormalization", "GroupNormalization", "InstanceNormalization", "BatchNormalization", "LRN", "LpNormalization", "Softmax", "LogSoftmax")
    x = data(2, 4, 3, 5)
    if op == "LayerNormalization":
        axis = pick(-1, 1, 2, 3)
        return op, {"axis": axis}, [x, data(*x.shape[axis:]), data(*x.shape[axis:])]
    if op == "GroupNormalization": return op, {"num_groups": pick(1, 2, 4)}, [x, data(4), data(4)]
    if op == "InstanceNormalization": return op, {}, [x, data(4), data(4)]
    if op == "BatchNormalization": return op, {}, [x, data(4), data(4), data(4), np.abs(data(4)) + F(0.1)]
    if op == "LRN": return op, {"size": pick(1, 3, 5), "alpha": 0.5, "beta": 0.6, "bias": 1.5}, [x]
    if op == "LpNormalization": return op, {"axis": pick(-1, 0, 1), "p": pick(1, 2)}, [x]
    return op, {"axis": pick(-1, 0, 1, 2)}, [x]

def einsum():
    equation, shapes = pick(("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]), ("ij,kj", [(2, 3), (4, 3)]), ("...ij->...ji", [(2, 3, 4)]),
                            ("bhid,bhjd->bhij", [(1, 2, 3, 4), (1, 2, 5, 4)]), ("ii->i", [(3, 3)]), ("i,ij,j->", [(2,), (2, 3), (3,)]),
                            ("...a,...b->...ab", [(2, 3), (2, 4)]))
    return "Einsum", {"equation": equation}, [data(*s) for s in shapes]

KINDS = [(conv, 40), (conv_transpose, 30), (pool, 40), (rnn, 40), (resize, 50), (grid_sample, 25), (roi_align, 12), (nms, 10), (quantize, 12),
         (qlinear_conv, 12), (norm, 30), (einsum, 10)]

def make(case, where):
    op, attrs, ins, outs = (*case, 1)[:4]
    names = ["" if x is None else f"i{k}" for k, x in enumerate(ins)]
    fixed = {2, 3} if op == "Resize" else set()
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), x.shape) for k, (n, x) in enumerate(zip(names, ins))
             if x is not None and k not in fixed]
    consts = [numpy_helper.from_array(x, n) for k, (n, x) in enumerate(zip(names, ins)) if x is not None and k in fixed]
    results = [helper.make_empty_tensor_value_info(f"o{k}") for k in range(outs)]
    node = helper.make_node(op, names, [r.name for r in results], **attrs)
    model = helper.make_model(helper.make_graph([node], op, infos, results, consts), opset_imports=[helper.make_opsetid("", 21)], ir_version=9)
    feeds = {n: x for k, (n, x) in enumerate(zip(names, ins)) if x is not None and k not in fixed}
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs = session.run(None, feeds)
    if any(o.size == 0 for o in outputs) and op != "NonMaxSuppression": raise ValueError("empty")
    for info, o in zip(results, outputs): info.CopyFrom(helper.make_tensor_value_info(info.name, helper.np_dtype_to_tensor_dtype(o.dtype), None))
    del model.graph.output[:]
    model.graph.output.extend(results)
    os.makedirs(f"{where}/test_data_set_0", exist_ok=True)
    onnx.save(model, f"{where}/model.onnx")
    for k, (n, x) in enumerate(feeds.items()): open(f"{where}/test_data_set_0/input_{k}.pb", "wb").write(numpy_helper.from_array(x, n).SerializeToString())
    for k, o in enumerate(outputs): open(f"{where}/test_data_set_0/output_{k}.pb", "wb").write(numpy_helper.from_array(o, f"o{k}").SerializeToString())
    open(f"{where}/attrs.txt", "w").write(f"{op} {attrs} {[None if x is None else x.shape for x in ins]}\n")

for kind, count in KINDS:
    made = tries = 0
    while made < count and tries < 20 * count:
        tries += 1
        try:
            make(kind(), f"{folder}/{kind.__name__}_{made:02d}")
            made += 1
        except Exception as error:  # refused by onnxruntime: draw again
            last = error
    if made < count:
        print(f"{kind.__name__}: {made} of {count} cases: {last}")
        sys.exit(1)
