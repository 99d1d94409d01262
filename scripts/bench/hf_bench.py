"""What scripts/bench/hf.sh says.

  hf_bench.py HOLDFAST_TOOL HOLDFAST_TRAIN SCRATCH LAYERS ROUNDS
"""

import json
import math
import mmap
import os
import pathlib
import random
import shutil
import statistics
import struct
import subprocess
import sys
import time

import hf_ranks

WIDTH, FFN, VOCABULARY, FILES = 2048, 5504, 32000, 2
BLOCK = 8 << 20
LAYERS_OF_RANKS = 2  # the state of a training run takes 14 times as much as the files


def shapes(layers):
    out = {"model.embed_tokens.weight": [VOCABULARY, WIDTH]}
    for layer in range(layers):
        at = f"model.layers.{layer}."
        out |= {at + f"self_attn.{x}_proj.weight": [WIDTH, WIDTH] for x in "qkvo"}
        out |= {at + f"mlp.{x}_proj.weight": [FFN, WIDTH] for x in ("gate", "up")}
        out |= {at + "mlp.down_proj.weight": [WIDTH, FFN]}
        out |= {at + f"{x}_layernorm.weight": [WIDTH] for x in ("input", "post_attention")}
    return out | {"model.norm.weight": [WIDTH], "lm_head.weight": [VOCABULARY, WIDTH]}


def write_direct(path, head, total, block):
    """`head` fills whole blocks of 4096; then `block` again and again, past the page cache."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o644)
    room = mmap.mmap(-1, len(head) or mmap.PAGESIZE)
    room[: len(head)] = head
    if head:
        os.write(fd, room)
    written = len(head)
    while written < total:
        written += os.write(fd, block)
    os.ftruncate(fd, total)
    os.fsync(fd)
    os.close(fd)


def make_model(folder, layers, block):
    folder.mkdir()
    tensors = list(shapes(layers).items())
    each = -(-len(tensors) // FILES)
    weight_map = {}
    for number in range(FILES):
        name = f"model-{number + 1:05}-of-{FILES:05}.safetensors"
        header, at = {}, 0
        for tensor, shape in tensors[number * each : (number + 1) * each]:
            size = 2
            for extent in shape:
                size *= extent
            header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
            weight_map[tensor] = name
            at += size
        text = json.dumps(header).encode()
        text += b" " * (-(len(text) + 8) % 4096)
        write_direct(folder / name, struct.pack("<Q", len(text)) + text, 8 + len(text) + at, block)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": WIDTH,
        "intermediate_size": FFN, "num_hidden_layers": layers, "num_attention_heads": 16, "num_key_value_heads": 16,
        "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16",
    }
    (folder / "config.json").write_text(json.dumps(config))


def measure(command):
    """Seconds and the largest memory in MiB of one process."""
    begin = time.monotonic()
    child = os.posix_spawn(command[0], [str(word) for word in command], os.environ,
                           file_actions=[(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)])
    _, status, usage = os.wait4(child, 0)
    if status != 0:
        sys.exit(f"{command} failed")
    return time.monotonic() - begin, usage.ru_maxrss / 1024


def raw(folder, readable, read_bytes, write_bytes):
    """Seconds of two programs at once: one reads so many bytes, one writes so many, both past the page cache."""
    begin = time.monotonic()
    target = folder / "raw"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    reader = subprocess.Popen(["dd", f"if={readable}", "of=/dev/null", "bs=8M", f"count={read_bytes // BLOCK}", "iflag=direct"], **quiet)
    writer = subprocess.Popen(["dd", "if=/dev/zero", f"of={target}", "bs=8M", f"count={write_bytes // BLOCK}", "oflag=direct", "conv=fsync"], **quiet)
    assert reader.wait() == 0 and writer.wait() == 0
    seconds = time.monotonic() - begin
    target.unlink()
    return seconds


def size_of(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main(tool, train, scratch, layers, rounds):
    block = mmap.mmap(-1, BLOCK)
    # Weights as they are: of one magnitude, and different.
    numbers = random.Random(1)
    block[:] = b"".join(struct.pack("<H", numbers.getrandbits(8) | 0x3C00 | numbers.getrandbits(1) << 15) for _ in range(1 << 12)) * (BLOCK >> 13)
    model = scratch / "model"
    make_model(model, layers, block)
    bytes_in = size_of(model)
    big = scratch / "big"  # to read from, as large as the largest that is read
    write_direct(big, b"", 2 * bytes_in, block)
    results = {}
    for number in range(rounds):
        for what in ("import", "export", "export_fp32"):
            if what == "import":
                out = scratch / "checkpoint"
                if out.exists():
                    shutil.rmtree(out)
                command, read_bytes = [tool, "ckpt", "import", model, out], bytes_in
            else:
                out = scratch / "out"
                command = [tool, "ckpt", "export", scratch / "checkpoint", out] + (["--dtype", "fp32"] if "fp32" in what else [])
                read_bytes = 2 * bytes_in
            seconds, rss = measure(command)
            written = size_of(out)
            plain = raw(scratch, big, read_bytes, written)
            if what != "import":
                shutil.rmtree(out)
            results.setdefault(what, []).append({"s": seconds, "raw_s": plain, "rss_mib": rss, "written": written})
            print(f"round {number + 1} of {rounds}: {what} {seconds:.2f} s, raw {plain:.2f} s, {rss:.0f} MiB", file=sys.stderr, flush=True)
    largest = 4 * max(math.prod(shape) for shape in shapes(layers).values())  # as fp32
    report = {"bytes": bytes_in, "largest_tensor_mib": largest >> 20, "load_average": os.getloadavg()[0]}
    for what, all_rounds in results.items():
        median = lambda key: statistics.median(r[key] for r in all_rounds)
        report[what] = {
            "seconds": round(median("s"), 2), "written": all_rounds[0]["written"],
            "written_mb_s": round(all_rounds[0]["written"] / 1e6 / median("s")),
            "over_raw": round(statistics.median(r["raw_s"] / r["s"] for r in all_rounds), 2), "peak_mib": round(median("rss_mib")),
            "peak_over_largest_tensor": round(median("rss_mib") * (1 << 20) / largest, 2),
        }
    layers_of_ranks = min(layers, LAYERS_OF_RANKS)
    for folder in ("checkpoint", "model"):
        shutil.rmtree(scratch / folder)
    big.unlink()
    make_model(scratch / "model", layers_of_ranks, block)
    report["ranks"] = hf_ranks.measure(tool, train, scratch, scratch / "model", shapes(layers_of_ranks))
    assert report["ranks"]["extra_over_largest_tensor"] <= 1, report["ranks"]
    print("RESULT " + json.dumps(report))


if __name__ == "__main__":
    main(*map(pathlib.Path, sys.argv[1:4]), int(sys.argv[4]), int(sys.argv[5]))
