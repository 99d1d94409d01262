"""PyTorch's side of scripts/bench/checkpoint.sh: torch.distributed.checkpoint on the tensors of
holdfast_checkpoint_bench, as DTensors cut along their rows.

  checkpoint_torch.py --folder FOLDER --layers N [--turns 3]

One process per rank, RANK of WORLD_SIZE, that meet in the file RENDEZVOUS. Rank 0 ends with a line of JSON, medians in
seconds, each until the last rank is done:
  save_s            dcp.save, which syncs its files
  stall_s           dcp.async_save until it returns, staging into fresh memory, its default
  cached_stall_s    the same, staging into memory that it keeps (from the second save on)
  async_s           dcp.async_save until its files are written
  load_s            dcp.load into the same tensors, nothing of the files in memory
"""

import argparse
import json
import os
import shutil
import statistics
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard


def shapes(layers, vocabulary=32000, width=1024, ffn=2752):
    """Those of checkpoint_bench.cpp."""
    yield "model.embed_tokens.weight", (vocabulary, width)
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        for name in "qkvo":
            yield prefix + f"self_attn.{name}_proj.weight", (width, width)
        for name in ("gate", "up"):
            yield prefix + f"mlp.{name}_proj.weight", (ffn, width)
        yield prefix + "mlp.down_proj.weight", (width, ffn)
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield prefix + name + ".weight", (width,)
    yield "model.norm.weight", (width,)
    yield "lm_head.weight", (vocabulary, width)


def state_of(layers, mesh):
    torch.manual_seed(dist.get_rank())
    rows = lambda shape: (shape[0] // dist.get_world_size(), *shape[1:])
    return {
        f"{family}/{name}": DTensor.from_local(torch.rand(rows(shape)), mesh, [Shard(0)])
        for family in ("model", "exp_avg", "exp_avg_sq")
        for name, shape in shapes(layers)
    }


def timed(work):
    """Seconds until the last rank is done, and what the work returned."""
    dist.barrier()
    begin = time.perf_counter()
    result = work()
    dist.barrier()
    return time.perf_counter() - begin, result


def forget(folder):
    for name in os.listdir(folder):
        fd = os.open(os.path.join(folder, name), os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    parser.add_argument("--layers", type=int, required=True)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method="file://" + os.environ["RENDEZVOUS"], rank=int(os.environ["RANK"]), world_size=int(os.environ["WORLD_SIZE"])
    )
    rank = dist.get_rank()
    state = state_of(options.layers, init_device_mesh("cpu", (dist.get_world_size(),)))
    seconds = {}

    def note(name, value):
        seconds.setdefault(name, []).append(value)

    def remove(folder):
        dist.barrier()
        if rank == 0:
            shutil.rmtree(folder, ignore_errors=True)
        dist.barrier()

    folder = os.path.join(options.folder, "dcp")
    kept = DefaultStager(StagingOptions(False, False, False, False))  # no pinned memory where there is no GPU
    for turn in range(options.turns):
        remove(folder)
        note("save_s", timed(lambda: dcp.save(state, checkpoint_id=folder))[0])
        if rank == 0:
            forget(folder)
        for tensor in state.values():
            tensor.to_local().fill_(float("nan"))
        note("load_s", timed(lambda: dcp.load(state, checkpoint_id=folder))[0])
        assert all(bool(torch.isfinite(tensor.to_local()).all()) for tensor in state.values())
        for stager, name in ((None, "stall_s"), (kept, "cached_stall_s")):
            remove(folder)
            dist.barrier()
            begin = time.perf_counter()
            stall, future = timed(lambda: dcp.async_save(state, checkpoint_id=folder, async_stager=stager))
            getattr(future, "upload_completion", future).result()
            dist.barrier()
            if stager is None:
                note(name, stall)
                note("async_s", time.perf_counter() - begin)
            elif turn > 0:
                note(name, stall)
    remove(folder)
    if rank == 0:
        size = sum(tensor.to_local().nbytes for tensor in state.values()) * dist.get_world_size()
        print(json.dumps({"torch": torch.__version__, "bytes": size} | {k: statistics.median(v) for k, v in seconds.items()}))
    dist.destroy_process_group()


main()
