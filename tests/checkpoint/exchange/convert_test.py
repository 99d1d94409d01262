#!/usr/bin/python3
"""holdfast ckpt import, export and consolidate against other people's readers.

    convert_test.py HOLDFAST_TOOL SCRATCH

Writes a safetensors file of its own, takes it through a checkpoint and back, and compares bytes: with a reader of the
format as its README describes it, and with h5py.
"""
import json
import os
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import h5py
import numpy

MODEL = """[model]
name = "converted"
vocabulary = 97
width = 16
layers = 2
heads = 4
kv_heads = 2
ffn = 37
max_sequence = 64
tied_embeddings = false
qkv_bias = true
"""


def tensors_of():
    """Hugging Face names and shapes of MODEL."""
    width, kv, ffn, vocabulary = 16, 8, 37, 97
    shapes = {"model.embed_tokens.weight": [vocabulary, width]}
    for layer in range(2):
        at = f"model.layers.{layer}."
        shapes |= {
            at + "input_layernorm.weight": [width],
            at + "post_attention_layernorm.weight": [width],
            at + "self_attn.o_proj.weight": [width, width],
            at + "mlp.gate_proj.weight": [ffn, width],
            at + "mlp.up_proj.weight": [ffn, width],
            at + "mlp.down_proj.weight": [width, ffn],
        }
        for name, rows in (("q", width), ("k", kv), ("v", kv)):
            shapes[f"{at}self_attn.{name}_proj.weight"] = [rows, width]
            shapes[f"{at}self_attn.{name}_proj.bias"] = [rows]
    return shapes | {"model.norm.weight": [width], "lm_head.weight": [vocabulary, width]}


def write_safetensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values()))


def read_safetensors(path):
    """As strict as the format: the tensors cover the buffer, without holes."""
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header, buffer = json.loads(raw[8 : 8 + length]), raw[8 + length :]
    assert raw[8:9] == b"{"
    assert header.pop("__metadata__", {}) == {"format": "pt"}
    spans = sorted(entry["data_offsets"] for entry in header.values())
    assert [0] + [end for _, end in spans] == [first for first, _ in spans] + [len(buffer)], "holes"
    return {
        name: (entry["dtype"], entry["shape"], buffer[slice(*entry["data_offsets"])]) for name, entry in header.items()
    }


def as_floats(dtype, shape, data):
    """Exactly, with integers: bf16 is the upper half of an fp32."""
    if dtype == "BF16":
        values = (numpy.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    else:
        values = numpy.frombuffer(data, "<f4")
    return values.reshape(shape)


def same_bits(a, b):
    return a.shape == b.shape and numpy.array_equal(a.astype("<f4").view("<u4"), b.astype("<f4").view("<u4"))


def main(tool, scratch):
    def ckpt(*arguments):
        subprocess.run([tool, "ckpt", *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)

    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    (scratch / "model.toml").write_text(MODEL)
    numbers = random.Random(5)
    for dtype, size, option in (("F32", 4, "f32"), ("BF16", 2, "bf16")):
        folder = scratch / dtype
        folder.mkdir()
        tensors = {}
        for name, shape in tensors_of().items():
            # Any bits but NaNs, which need not survive arithmetic: every exponent, denormals, both zeros.
            words = [numbers.getrandbits(8 * size) for _ in range(int(numpy.prod(shape)))]
            top = 0x7F80 << 8 * (size - 2)
            words = [word & ~top if word & top == top else word for word in words]
            tensors[name] = (dtype, shape, b"".join(word.to_bytes(size, "little") for word in words))
        write_safetensors(folder / "in.safetensors", tensors)
        ckpt("import", folder / "in.safetensors", folder / "ck", "--model", scratch / "model.toml")
        ckpt("verify", folder / "ck")
        ckpt("export", folder / "ck", "--safetensors", folder / "out.safetensors", "--dtype", option)
        ckpt("export", folder / "ck", "--safetensors", folder / "both.h5", "--dtype", option, "--polyglot")
        ckpt("consolidate", folder / "ck", folder / "whole.h5")

        assert read_safetensors(folder / "out.safetensors") == tensors
        both = read_safetensors(folder / "both.h5")
        assert both.pop("__hdf5_meta__")[0] == "U8"
        assert both == tensors
        with h5py.File(folder / "both.h5") as one, h5py.File(folder / "whole.h5") as whole:
            assert set(one) == set(tensors)
            assert whole.attrs["step"] == 0
            for name, tensor in tensors.items():
                values = as_floats(*tensor)
                assert same_bits(one[name][()], values), name
                assert same_bits(whole["model"][name][()], values), name
                for family in ("exp_avg", "exp_avg_sq"):
                    assert same_bits(whole["optim"][family][name][()], numpy.zeros_like(values)), name
        ckpt("import", folder / "both.h5", folder / "again", "--model", scratch / "model.toml")
        ckpt("diff", folder / "ck", folder / "again")
        subprocess.run(["h5dump", "-H", folder / "both.h5"], check=True, stdout=subprocess.DEVNULL)
    export_by_python(tool, scratch)
    shutil.rmtree(scratch)


def export_by_python(tool, scratch):
    """What PyTorch writes is asked of the python3 that is first in PATH; here it says how it was called."""
    programs = scratch / "bin"
    programs.mkdir()
    command = [tool, "ckpt", "export", scratch / "F32/ck", "--dcp", "out", "--dtype", "bf16", "--weights-only"]
    run = lambda: subprocess.run(command, capture_output=True, text=True, env={"PATH": str(programs), "PYTHONPATH": "/theirs"})
    none = run()
    assert none.returncode == 1 and "cannot start python3 (No such file or directory)" in none.stderr, none
    (programs / "python3").write_text('#!/bin/sh\necho "$PYTHONPATH $*"\nexit 7\n')
    (programs / "python3").chmod(0o755)
    said = run()
    path, words = said.stdout.rstrip("\n").split(" ", 1)
    assert said.returncode == 7, said
    assert words.startswith("-c import sys;"), words
    assert words.endswith(f" export-dcp {scratch / 'F32/ck'} out --dtype bf16 --weights-only"), words
    ours, theirs = path.split(":")
    assert theirs == "/theirs" and os.path.exists(f"{ours}/holdfast/torch.py"), path
    for more in (["elsewhere"], ["--merge"], ["--polyglot"], ["--safetensors", "a"]):
        assert subprocess.run([*command, *more], capture_output=True).returncode == 2, more

    # A real one takes no module from the working folder.
    (programs / "python3").unlink()
    (programs / "python3").symlink_to(sys.executable)
    foreign = scratch / "foreign"
    (foreign / "holdfast").mkdir(parents=True)
    for module in ("runpy.py", "argparse.py", "numpy.py", "torch.py", "holdfast/__init__.py", "holdfast/torch.py"):
        (foreign / module).write_text(f"open({str(scratch / 'ran')!r}, 'a').write({module!r})\n")
    subprocess.run(command, capture_output=True, env={"PATH": str(programs)}, cwd=foreign)
    assert not (scratch / "ran").exists(), (scratch / "ran").read_text()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
