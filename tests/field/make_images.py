#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real photographs for the vision models, from the pictures that scikit-image and scikit-learn ship:
random crops at several scales, as .npz.

    make_images.py OUT.npz INPUT_NAME HEIGHT WIDTH COUNT MEAN STD
"""
import os, sys
import numpy as np, skimage, skimage.io, skimage.transform
from sklearn.datasets import load_sample_images

out, name, h, w, count, mean, std = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:6]), *map(float, sys.argv[6:8])
folder = os.path.join(os.path.dirname(skimage.__file__), "data")
names = ["astronaut.png", "chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png", "hubble_deep_field.jpg", "retina.jpg"]
photos = [skimage.io.imread(f"{folder}/{n}")[..., :3] for n in names] + list(load_sample_images().images)
rng = np.random.default_rng(5)
images = np.empty((count, 3, h, w), np.float32)
for k in range(count):
    p = photos[k % len(photos)]
    scale = rng.uniform(0.35, 1.0)
    ch = int(min(p.shape[0], p.shape[1] * h / w) * scale)
    cw = int(ch * w / h)
    y, x = rng.integers(0, p.shape[0] - ch + 1), rng.integers(0, p.shape[1] - cw + 1)
    crop = skimage.transform.resize(p[y:y + ch, x:x + cw], (h, w), anti_aliasing=True) * 255
    if rng.random() < 0.5:
        crop = crop[:, ::-1]
    images[k] = ((crop - mean) / std).transpose(2, 0, 1)
np.savez(out, **{name: images})
