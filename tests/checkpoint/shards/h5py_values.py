"""Compare every dataset of HDF5 files with expected values, as h5py sees them.

usage: h5py_values.py LIST
LIST has one line per dataset: the HDF5 file, the dataset, its shape ("37,53"), and a file of little-endian float32
values in row-major order, separated by tabs. Files may hold no other dataset than those listed, but holdfast/record.
"""
import sys

import h5py
import numpy

wrong = 0


def complain(text):
    global wrong
    wrong += 1
    print(text)


listed = {}
with open(sys.argv[1]) as lines:
    for line in lines:
        path, dataset, shape, values = line.rstrip("\n").split("\t")
        shape = tuple(int(n) for n in shape.split(","))
        listed.setdefault(path, {})[dataset] = (shape, values)

datasets = 0
for path, expected in listed.items():
    with h5py.File(path, "r") as file:
        seen = []
        file.visititems(lambda name, item: seen.append(name) if isinstance(item, h5py.Dataset) else None)
        for name in set(seen) - set(expected) - {"holdfast/record"}:
            complain(f"{path}: {name} is not expected")
        for name, (shape, values) in expected.items():
            if name not in seen:
                complain(f"{path}: {name} is missing")
                continue
            datasets += 1
            want = numpy.fromfile(values, dtype="<f4").reshape(shape)
            have = file[name][...].astype("<f4")  # bf16 is a type that numpy has not: h5py widens it
            if have.shape != want.shape or not numpy.array_equal(have.view("<u4"), want.view("<u4")):
                complain(f"{path}: {name} has other values")
print(f"{datasets} datasets, {wrong} problems")
sys.exit(wrong != 0)
