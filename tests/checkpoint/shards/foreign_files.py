"""Make copies of an HDF5 file that are what a file of ours never is.

usage: foreign_files.py FILE FOLDER
Writes FOLDER/KIND.h5 for every kind of foreign thing: FILE with that thing in it.
"""
import os
import shutil
import sys

import h5py
import numpy


def external_link(file):
    file["model/elsewhere"] = h5py.ExternalLink("/etc/passwd", "/x")


def soft_link(file):
    file["model/elsewhere"] = h5py.SoftLink("/model")


def external_storage(file):
    file.create_dataset("model/elsewhere", (4,), "<f4", external=[("/etc/passwd", 0, 16)])


def chunks(file):
    file.create_dataset("model/extra", (64,), "<f4", chunks=(8,), data=numpy.zeros(64))


def gzip(file):
    file.create_dataset("model/extra", (64,), "<f4", chunks=(8,), compression="gzip", data=numpy.zeros(64))


def unknown_filter(file):
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_chunk((8,))
    creation.set_filter(32015, h5py.h5z.FLAG_OPTIONAL)
    space = h5py.h5s.create_simple((64,))
    h5py.h5d.create(file["model"].id, b"extra", h5py.h5t.IEEE_F32LE, space, creation)


def compact(file):
    creation = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    creation.set_layout(h5py.h5d.COMPACT)
    h5py.h5d.create(file["model"].id, b"extra", h5py.h5t.IEEE_F32LE, h5py.h5s.create_simple((4,)), creation)


def text(file):
    file["model/extra"] = "a string of any length"


def double(file):
    file.create_dataset("model/extra", (4,), "<f8")


def named_type(file):
    file["model/extra"] = numpy.dtype("<f4")


def one_more(file):
    file.create_dataset("model/extra", (4,), "<f4")


def huge(file):
    file.create_dataset("model/extra", (2**60,), "<f4")


def many_dimensions(file):
    file.create_dataset("model/extra", (1,) * 32, "<f4")


def another_source(file):
    name = next(n for n in file["model"] if file["model"][n].is_virtual)
    old = file["model"][name]
    layout = h5py.VirtualLayout(old.shape, "<f4")
    layout[...] = h5py.VirtualSource("/etc/passwd", "x", old.shape)
    del file["model"][name]
    file.create_virtual_dataset("model/" + name, layout)


def missing(file):
    del file["model"][next(iter(file["model"]))]


kinds = [external_link, soft_link, external_storage, chunks, gzip, unknown_filter, compact, text, double, named_type,
         one_more, huge, many_dimensions, another_source, missing]
for kind in kinds:
    path = os.path.join(sys.argv[2], kind.__name__ + ".h5")
    shutil.copyfile(sys.argv[1], path)
    with h5py.File(path, "r+", libver="latest") as opened:
        kind(opened)
