# SPDX-License-Identifier: Apache-2.0
"""Inputs for real models, and the design's tolerance: what the field tests and bench/ share."""
import numpy as np

RTOL, ATOL = 1e-4, 1e-6
# Free dims that need a sensible value, several each: dynamic shapes are part of the test.
SHAPES = {
    "face_yunet_dynamic": [{"input": (1, 3, 320, 320)}, {"input": (2, 3, 160, 224)}],
    "vad_silero": [{"input": (1, 512), "state": (2, 1, 128), "sr": ()}, {"input": (3, 256), "state": (2, 3, 128), "sr": ()}],
    "vad_silero_ifless": [{"input": (1, 512), "state": (2, 1, 128), "sr": ()}, {"input": (1, 512), "state": (2, 1, 128), "sr": ()}],
    "bert-ts": [{"ids": (1, 7), "mask": (1, 7)}, {"ids": (3, 24), "mask": (3, 24)}],
}
DT = {"tensor(float)": np.float32, "tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(bool)": np.bool_, "tensor(double)": np.float64}


def make_inputs(session, model, shapes, seed):
    rng = np.random.default_rng(seed)
    feeds = {}
    for i in session.get_inputs():
        shape = shapes.get(i.name) or tuple(d if isinstance(d, int) and d > 0 else 2 for d in i.shape)
        if i.name in shapes:
            shape = shapes[i.name]
        dt = DT[i.type]
        if model == "detect_yolox_nano":
            # Pixels 0..255 of a smooth picture. On white noise the network is so badly conditioned
            # that onnxruntime itself lies 6.9e-4 from a double-precision evaluation (ours 2.8e-4).
            coarse = rng.uniform(0, 255, (shape[0], 3, 14, 14))
            y = np.linspace(0, 13, shape[2])
            k = np.minimum(y.astype(int), 12)
            t = (y - k)[:, None]
            rows = coarse[:, :, k] * (1 - t) + coarse[:, :, k + 1] * t
            feeds[i.name] = (rows[..., k] * (1 - t.T) + rows[..., k + 1] * t.T).astype(np.float32)
        elif i.name == "sr":
            feeds[i.name] = np.array(16000 if seed % 2 == 0 else 8000, np.int64)
        elif dt == np.float32:
            feeds[i.name] = rng.standard_normal(shape).astype(np.float32)
        elif model == "filetype_magika":
            feeds[i.name] = rng.integers(0, 257, shape).astype(dt)
        elif i.name == "mask":
            m = np.ones(shape, dt)
            m[..., shape[-1] // 2:] = 0
            m[0] = 1
            feeds[i.name] = m
        else:
            feeds[i.name] = rng.integers(0, 50, shape).astype(dt)
    return feeds


def differs(ref, got):
    if ref.shape != got.shape or ref.dtype != got.dtype:
        return f"{got.dtype}{got.shape} where {ref.dtype}{ref.shape} is due"
    if ref.size == 0:
        return None
    a, b = ref.astype(np.float64), got.astype(np.float64)
    if (np.isnan(a) != np.isnan(b)).any():
        return "NaN on one side"
    worst, bound = np.nanmax(np.abs(a - b)), RTOL * np.nanmax(np.abs(a)) + ATOL
    return None if worst <= bound else f"max diff {worst:.3g}, bound {bound:.3g}"
