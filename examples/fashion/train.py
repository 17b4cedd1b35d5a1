#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains the demo's network on Fashion-MNIST and writes it as ONNX (needs PyTorch and onnx).

    python3 train.py /usr/share/datasets/fashion-mnist fashion_resnet.onnx

A small residual network (168,000 weights): 28x28 grey images, three stages, global average pool.
BatchNormalization is left in the file on purpose, as exporters leave it: folding it is hone's work.
"""
import gzip, sys
import numpy as np, torch, torch.nn as nn, torch.nn.functional as F
import onnx
from onnx import helper as oh, numpy_helper as nh, TensorProto as tp

data, out = sys.argv[1], sys.argv[2]
epochs = int(sys.argv[3]) if len(sys.argv) > 3 else 60
dev = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(1)


def read(name, skip):
    return np.frombuffer(gzip.open(f"{data}/{name}").read(), np.uint8, offset=skip)


def images(name):
    return torch.tensor(read(name, 16).reshape(-1, 1, 28, 28).astype(np.float32) / 255).to(dev)


xt, xv = images("train-images-idx3-ubyte.gz"), images("t10k-images-idx3-ubyte.gz")
yt = torch.tensor(read("train-labels-idx1-ubyte.gz", 8).astype(np.int64)).to(dev)
yv = torch.tensor(read("t10k-labels-idx1-ubyte.gz", 8).astype(np.int64)).to(dev)
MEAN, STD = 0.2860, 0.3530


def cbr(i, o, s=1):
    return nn.Sequential(nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o))


class Net(nn.Module):
    def __init__(self, c=(32, 64, 96)):
        super().__init__()
        self.stem = cbr(1, c[0])
        self.a1, self.a2 = cbr(c[0], c[0]), cbr(c[0], c[0])
        self.d1 = cbr(c[0], c[1])
        self.b1, self.b2 = cbr(c[1], c[1]), cbr(c[1], c[1])
        self.d2 = cbr(c[1], c[2])
        self.fc = nn.Linear(c[2], 10)

    def forward(self, x):
        x = F.relu(self.stem(x))
        x = F.relu(x + self.a2(F.relu(self.a1(x))))
        x = F.relu(self.d1(F.max_pool2d(x, 2)))
        x = F.relu(x + self.b2(F.relu(self.b1(x))))
        x = F.relu(self.d2(F.max_pool2d(x, 2)))
        return self.fc(x.mean((2, 3)))


net = Net().to(dev)
opt = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
batch = 256
steps = epochs * (len(xt) // batch)
sched = torch.optim.lr_scheduler.OneCycleLR(opt, 0.2, total_steps=steps)


def augment(x):
    n = len(x)
    flip = torch.rand(n, device=dev) < 0.5
    x = torch.where(flip[:, None, None, None], x.flip(3), x)
    p = F.pad(x, (2, 2, 2, 2))
    dx, dy = torch.randint(0, 5, (n,), device=dev), torch.randint(0, 5, (n,), device=dev)
    r = torch.arange(28, device=dev)
    x = p[torch.arange(n, device=dev)[:, None, None], 0, (dy[:, None] + r)[:, :, None], (dx[:, None] + r)[:, None, :]][:, None]
    cx, cy = torch.randint(0, 28, (n,), device=dev), torch.randint(0, 28, (n,), device=dev)
    hole = ((r[None] - cy[:, None]).abs() < 5)[:, :, None] & ((r[None] - cx[:, None]).abs() < 5)[:, None, :]
    return torch.where(hole[:, None] & (torch.rand(n, device=dev) < 0.5)[:, None, None, None], torch.zeros_like(x), x)


for epoch in range(epochs):
    net.train()
    perm = torch.randperm(len(xt), device=dev)
    for i in range(len(xt) // batch):
        idx = perm[i * batch:(i + 1) * batch]
        opt.zero_grad(set_to_none=True)
        with torch.autocast(dev, torch.bfloat16, enabled=dev == "cuda"):
            loss = F.cross_entropy(net((augment(xt[idx]) - MEAN) / STD), yt[idx], label_smoothing=0.05)
        loss.backward()
        opt.step()
        sched.step()
    net.eval()
    with torch.no_grad():
        acc = (net((xv - MEAN) / STD).argmax(1) == yv).float().mean().item()
    print(f"epoch {epoch} loss {loss.item():.4f} top-1 {acc:.4f}", flush=True)

# ---- as ONNX: opset 17, free batch, pixels 0..1 as input ------------------------------------------
net = net.cpu().eval()
w = {k: v.detach().numpy().astype(np.float32) for k, v in net.state_dict().items() if v.dtype.is_floating_point}
nodes, inits = [], []


def const(name, value):
    inits.append(nh.from_array(np.asarray(value, np.float32), name))
    return name


def conv_bn(name, x):
    const(f"{name}.weight", w[f"{name}.0.weight"])
    nodes.append(oh.make_node("Conv", [x, f"{name}.weight"], [f"{name}.conv"], name=f"{name}.conv", kernel_shape=[3, 3], pads=[1, 1, 1, 1]))
    bn = [const(f"{name}.bn.{k}", w[f"{name}.1.{k}"]) for k in ("weight", "bias", "running_mean", "running_var")]
    nodes.append(oh.make_node("BatchNormalization", [f"{name}.conv", *bn], [f"{name}.out"], name=f"{name}.bn", epsilon=1e-5))
    return f"{name}.out"


def op(kind, name, *x, **attrs):
    nodes.append(oh.make_node(kind, list(x), [name], name=name, **attrs))
    return name


x = op("Div", "scaled", op("Sub", "centred", "image", const("mean", MEAN)), const("std", STD))
x = op("Relu", "stem.relu", conv_bn("stem", x))
y = op("Relu", "a1.relu", conv_bn("a1", x))
x = op("Relu", "a.relu", op("Add", "a.add", x, conv_bn("a2", y)))
x = op("MaxPool", "pool1", x, kernel_shape=[2, 2], strides=[2, 2])
x = op("Relu", "d1.relu", conv_bn("d1", x))
y = op("Relu", "b1.relu", conv_bn("b1", x))
x = op("Relu", "b.relu", op("Add", "b.add", x, conv_bn("b2", y)))
x = op("MaxPool", "pool2", x, kernel_shape=[2, 2], strides=[2, 2])
x = op("Relu", "d2.relu", conv_bn("d2", x))
x = op("Flatten", "flat", op("GlobalAveragePool", "gap", x), axis=1)
op("Gemm", "logits", x, const("fc.weight", w["fc.weight"]), const("fc.bias", w["fc.bias"]), transB=1)
graph = oh.make_graph(nodes, "fashion_resnet",
                      [oh.make_tensor_value_info("image", tp.FLOAT, ["n", 1, 28, 28])],
                      [oh.make_tensor_value_info("logits", tp.FLOAT, ["n", 10])], inits)
model = oh.make_model(graph, opset_imports=[oh.make_opsetid("", 17)], ir_version=8, producer_name="hone-examples")
onnx.checker.check_model(model, full_check=True)
onnx.save(model, out)
try:
    import onnxruntime as ort
    s = ort.InferenceSession(out, providers=["CPUExecutionProvider"])
    p = np.concatenate([s.run(None, {"image": xv[i:i + 500].cpu().numpy()})[0] for i in range(0, 10000, 500)])
    print("onnxruntime top-1", (p.argmax(1) == yv.cpu().numpy()).mean())
except ImportError:
    pass
