"""The memory of ranks that begin with a Hugging Face folder, beside the same run from random weights. Part of
scripts/bench/hf_bench.py.
"""

import math
import os
import pathlib
import struct
import subprocess

RANKS = 4
BEGUN = "training starts at"  # what rank 0 says when all ranks have their weights, before the first step
MIB = 1 << 20


def token_file(tool, scratch, vocabulary):
    raw = scratch / "tokens.u16"
    raw.write_bytes(struct.pack("<4096H", *(i * 7 % vocabulary for i in range(4096))))
    out = scratch / "tokens.bin"
    subprocess.run([tool, "data", "prepare", "--input", raw, "--output", out, "--format", "u16", "--vocabulary",
                    str(vocabulary)], check=True, capture_output=True)
    return out


def peaks(mpirun):
    """The largest resident set so far of each rank that `mpirun` (its process) has started, in bytes."""
    found = []
    for status in pathlib.Path("/proc").glob("[0-9]*/status"):
        try:
            lines = dict(line.split(":", 1) for line in status.read_text().splitlines())
        except OSError:
            continue  # it has gone
        if int(lines["PPid"]) == mpirun and lines["Name"].strip() == "holdfast-train":
            found.append(int(lines["VmHWM"].split()[0]) * 1024)
    return found


def run(train, scratch, model, tokens, weights):
    """Peaks of all ranks, when each has its weights."""
    name = scratch / ("ranks-files" if weights else "ranks-random")
    name.with_suffix(".toml").write_text("")
    settings = {
        "model.file": model, "data.tokens": tokens, "train.steps": 1000, "train.sequence": 32, "train.global_batch": RANKS,
        "train.micro_batch": 1, "train.device": "cpu", "optim.warmup_steps": 0,
        "shard.strategy": "full_shard", "checkpoint.every": 0,
    } | ({"model.weights": model} if weights else {})
    command = ["mpirun", "-n", str(RANKS), "--oversubscribe", "--bind-to", "none", train, name.with_suffix(".toml"),
               "--run-dir", name]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    environment = os.environ | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMP_NUM_THREADS": "1"}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    said, found = [], []
    try:
        for line in child.stdout:
            said.append(line)
            if BEGUN in line:
                found = peaks(child.pid)
                break
    finally:
        child.terminate()  # mpirun, which ends its ranks
        child.communicate()
    assert len(found) == RANKS, "".join(said)
    return found


def measure(tool, train, scratch, model, shapes):
    """`shapes`: name -> extents, of the model's tensors."""
    tokens = token_file(tool, scratch, shapes["model.embed_tokens.weight"][0])
    random, files = (run(train, scratch, model, tokens, weights) for weights in (False, True))
    sizes = [4 * math.prod(shape) for shape in shapes.values()]  # as fp32
    extra = max(files) - max(random)
    return {
        "ranks": RANKS, "model_mib": round(sum(sizes) / MIB), "shard_mib": round(sum(sizes) / RANKS / MIB),
        "largest_tensor_mib": round(max(sizes) / MIB), "peak_random_mib": round(max(random) / MIB),
        "peak_files_mib": round(max(files) / MIB), "extra_mib": round(extra / MIB),
        "extra_over_largest_tensor": round(extra / max(sizes), 2),
    }
