#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns Debian's dataset-fashion-mnist into train.npz (4,000 images) and test.npz (all 10,000):
`image` float32 Nx1x28x28 in 0..1, `labels` int64. Needs nothing beyond the standard library.

    make_data.py OUT_DIR [DATASET_DIR]
"""
import array, gzip, struct, sys, zipfile

out = sys.argv[1]
data = sys.argv[2] if len(sys.argv) > 2 else "/usr/share/datasets/fashion-mnist"


def npy(descr, shape, raw):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape!r}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + raw


def write(name, images, labels, count):
    pixels = gzip.open(f"{data}/{images}").read()[16:16 + count * 784]
    classes = gzip.open(f"{data}/{labels}").read()[8:8 + count]
    table = [v / 255 for v in range(256)]
    floats = array.array("f", (table[p] for p in pixels)).tobytes()
    longs = array.array("q", list(classes)).tobytes()
    with zipfile.ZipFile(f"{out}/{name}", "w", zipfile.ZIP_STORED) as z:
        z.writestr("image.npy", npy("<f4", (count, 1, 28, 28), floats))
        z.writestr("labels.npy", npy("<i8", (count,), longs))


write("train.npz", "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", 4000)
write("test.npz", "t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz", 10000)
