#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes train_expect.h: losses and weights of two SGD steps of an MLP and a small CNN.

Independent of the library: forward passes in numpy, gradients by the complex step (a derivative to
machine precision without any rule of differentiation). Run: train_expect.py > train_expect.h"""
import numpy as np

RATE = 0.1

def fill(count, seed):
    """The same deterministic numbers as the test's fill()."""
    return np.sin(np.arange(count) * 0.7 + seed) * 0.5

def relu(x):
    return np.where(x.real > 0, x, 0)

def loss_of(scores, labels):
    scores = scores - scores.real.max(axis=1, keepdims=True)
    log_prob = scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))
    return -log_prob[np.arange(len(labels)), labels].mean()

def conv(x, w, b, pad):
    x = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    n, _, height, width = x.shape
    m, _, kh, kw = w.shape
    y = np.zeros((n, m, height - kh + 1, width - kw + 1), dtype=complex)
    for i in range(y.shape[2]):
        for j in range(y.shape[3]):
            y[:, :, i, j] = np.einsum("nchw,mchw->nm", x[:, :, i:i + kh, j:j + kw], w) + b
    return y

def batch_norm(x, scale, bias):
    mean = x.mean(axis=(0, 2, 3), keepdims=True)
    var = ((x - mean) ** 2).mean(axis=(0, 2, 3), keepdims=True)
    shape = (1, -1, 1, 1)
    return (x - mean) / np.sqrt(var + 1e-5) * scale.reshape(shape) + bias.reshape(shape)

def max_pool(x):
    n, c, h, w = x.shape
    windows = x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5).reshape(n, c, h // 2, w // 2, 4)
    best = windows.real.argmax(axis=-1)[..., None]
    return np.take_along_axis(windows, best, axis=-1)[..., 0]

MLP = [(4, 3), (4,), (3, 4), (3,)]
def mlp(p, x):
    return relu(x @ p[0].T + p[1]) @ p[2].T + p[3]

CNN = [(2, 1, 3, 3), (2,), (2,), (2,), (3, 2, 2, 2), (3,), (3, 3), (3,)]
def cnn(p, x):
    x = max_pool(relu(batch_norm(conv(x, p[0], p[1], 1), p[2], p[3])))
    return conv(x, p[4], p[5], 0).mean(axis=(2, 3)) @ p[6].T + p[7]

def train(name, shapes, model, x, labels):
    weights = [fill(int(np.prod(s)), i + 1).reshape(s) for i, s in enumerate(shapes)]
    losses = []
    for step in range(3):
        losses.append(loss_of(model([w.astype(complex) for w in weights], x), labels).real)
        if step == 2:
            break
        grads = []
        for k, w in enumerate(weights):
            g = np.zeros_like(w)
            for at in np.ndindex(*w.shape):
                moved = [v.astype(complex) for v in weights]
                moved[k][at] += 1e-30j
                g[at] = loss_of(model(moved, x), labels).imag / 1e-30
            grads.append(g)
        weights = [w - RATE * g for w, g in zip(weights, grads)]
    print(f"static const double k_{name}_losses[] = {{{', '.join(repr(float(v)) for v in losses)}}};")
    flat = np.concatenate([w.ravel() for w in weights])
    print(f"static const double k_{name}_weights[] = {{")
    for i in range(0, len(flat), 4):
        print("    " + " ".join(repr(float(v)) + "," for v in flat[i:i + 4]))
    print("};")

print("// SPDX-License-Identifier: Apache-2.0")
print("// Written by train_expect.py: do not edit.")
train("mlp", MLP, mlp, fill(12, 20).reshape(4, 3), np.array([0, 2, 1, 2]))
train("cnn", CNN, cnn, fill(72, 30).reshape(2, 1, 6, 6), np.array([2, 0]))
