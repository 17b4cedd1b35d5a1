#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same network in float32, marked float16 and as int8 in QDQ form, to be timed against each other on a card:

    int8_pairs.py FOLDER && hone bench FOLDER/ffn-f16.onnx --vs FOLDER/ffn-int8.onnx --device cuda --resident

ffn: what a transformer does between attentions, 4,096 rows of 768 to 3,072 and back, twice, with Gelu, residual and
LayerNormalization. conv: three bottlenecks of ResNet-50's first stage, batch 32. Weights are random."""
import sys
import numpy as np
import onnx
from onnx import TensorProto, helper as h, numpy_helper

rng = np.random.default_rng(1)


class Net:
    def __init__(self, kind):
        self.kind, self.nodes, self.weights, self.marked, self.count = kind, [], [], [], 0

    def name(self, what):
        self.count += 1
        return f"{what}{self.count}"

    def const(self, value, dtype=np.float32):
        n = self.name("c")
        self.weights.append(numpy_helper.from_array(np.asarray(value, dtype), n))
        return n

    def op(self, op, *inputs, **attrs):
        n = self.name(op.lower())
        self.nodes.append(h.make_node(op, list(inputs), [n], name=n, **attrs))
        return n

    def quantised(self, x, most):
        """As the optimiser writes it: around zero."""
        if self.kind != "int8":
            return x
        s, z = self.const(most / 127), self.const(0, np.int8)
        return self.op("DequantizeLinear", self.op("QuantizeLinear", x, s, z), s, z)

    def weight(self, w, axis):
        if self.kind != "int8":
            return self.const(w)
        scale = np.abs(w).max(axis=tuple(i for i in range(w.ndim) if i != axis)) / 127
        shape = [-1 if i == axis else 1 for i in range(w.ndim)]
        q = np.rint(w / scale.reshape(shape)).astype(np.int8)
        return self.op("DequantizeLinear", self.const(q, np.int8), self.const(scale), self.const(np.zeros(scale.size), np.int8), axis=axis)

    def layer(self, op, *inputs, **attrs):
        n = self.op(op, *inputs, **attrs)
        self.marked.append(n)
        return n

    def save(self, path, x, y):
        graph = h.make_graph(self.nodes, "g", [h.make_tensor_value_info("x", TensorProto.FLOAT, x)], [h.make_tensor_value_info(y, TensorProto.FLOAT, None)], self.weights)
        model = h.make_model(graph, opset_imports=[h.make_opsetid("", 20)], ir_version=9)
        if self.kind != "f32":
            h.set_model_props(model, {"hone.f16": "\n".join(self.marked)})
        onnx.save(model, path)


def ffn(kind, path, rows=4096, d=768, blocks=1):
    n, x = Net(kind), "x"
    for _ in range(blocks):
        up, down = rng.normal(0, 0.03, (d, 4 * d)), rng.normal(0, 0.03, (4 * d, d))
        q = n.quantised(x, 5)
        a = n.op("Gelu", n.op("Add", n.layer("MatMul", q, n.weight(up.astype(np.float32), 1)), n.const(rng.normal(0, 0.1, 4 * d))))
        b = n.op("Add", n.layer("MatMul", n.quantised(a, 5), n.weight(down.astype(np.float32), 1)), n.const(rng.normal(0, 0.1, d)))
        x = n.op("LayerNormalization", n.op("Add", b, x), n.const(np.ones(d)), n.const(np.zeros(d)))
    n.save(path, [rows, d], x)


def conv(kind, path, batch=32, size=56, wide=256, narrow=64, blocks=3):
    n, x = Net(kind), "x"
    for _ in range(blocks):
        w = [rng.normal(0, (1 / s[1] / s[2] / s[3]) ** 0.5, s).astype(np.float32) for s in ((narrow, wide, 1, 1), (narrow, narrow, 3, 3), (wide, narrow, 1, 1))]
        q = n.quantised(x, 6)
        a = n.op("Relu", n.layer("Conv", q, n.weight(w[0], 0), n.const(np.zeros(narrow)), kernel_shape=[1, 1]))
        b = n.op("Relu", n.layer("Conv", n.quantised(a, 4), n.weight(w[1], 0), n.const(np.zeros(narrow)), kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
        c = n.layer("Conv", n.quantised(b, 4), n.weight(w[2], 0), n.const(np.zeros(wide)), kernel_shape=[1, 1])
        x = n.op("Relu", n.op("Add", c, q))
    n.save(path, [batch, wide, size, size], n.op("GlobalAveragePool", n.quantised(x, 8)))



folder = sys.argv[1]
for kind in ("f32", "f16", "int8"):
    rng = np.random.default_rng(1)
    ffn(kind, f"{folder}/ffn-{kind}.onnx")
    conv(kind, f"{folder}/conv-{kind}.onnx")
