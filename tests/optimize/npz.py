# SPDX-License-Identifier: Apache-2.0
# Writes .npz files with nothing but Python's own library, for tests: `save(path, name=array, ...)` with array a
# (descr, shape, bytes) of NumPy's format 1.0.
import struct
import zipfile


def npy(descr, shape, raw):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape!r}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + raw


def save(path, **arrays):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for name, array in arrays.items():
            z.writestr(f"{name}.npy", npy(*array))
