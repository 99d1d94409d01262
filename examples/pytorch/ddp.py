"""A small language model in data parallel (DDP). A line that ends in `# hf` protects it; without these lines it is the
script as it was:

    grep -v '# hf$' ddp.py >unprotected.py

However often it is interrupted, it ends in the bits of a run that was not: data are a function of step and rank, and the
sums of gradients have one order.
"""

import argparse
import hashlib
import os
import pathlib
import sys  # hf
import time  # hf

import torch
import torch.distributed as dist
from torch import nn

import holdfast  # hf

VOCABULARY, WIDTH, SEQUENCE, BATCH = 256, 64, 32, 4


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        blocks = [nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True) for _ in range(2)]
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(self.embedding(tokens)))


def batch(step: int, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1_000_003 * step + rank)
    first = torch.randint(0, VOCABULARY, (BATCH, 1), generator=generator)
    return (first + 7 * torch.arange(SEQUENCE + 1)) % VOCABULARY


def file_of(folder: pathlib.Path, step: int) -> pathlib.Path:
    return folder / f"step-{step:08d}.pt"


def save(path: pathlib.Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Complete and on disk, or not there. The size of the file."""
    aside = path.with_suffix(".new")
    with open(aside, "wb") as file:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
    return path.stat().st_size


def newest(folder: pathlib.Path) -> int:
    return max((int(path.stem[5:]) for path in folder.glob("step-*.pt")), default=0)


def digest(model: nn.Module) -> str:
    found = hashlib.sha256()
    for _, tensor in sorted(model.state_dict().items()):
        found.update(tensor.numpy().tobytes())
    return found.hexdigest()[:16]


def orders(hf: holdfast.Client, step: int) -> holdfast.Order:  # hf
    while True:  # what rank 0 is told, for all; holds while that is the order  # hf
        order = [hf.orders()]  # hf
        dist.broadcast_object_list(order)  # hf
        if order[0].save or not order[0].pause:  # hf
            return order[0]  # hf
        hf.at(step, "paused")  # hf
        time.sleep(0.1)  # hf


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=pathlib.Path, required=True, help="where its checkpoints are")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--every", type=int, default=20, help="steps from one checkpoint to the next")
    args = parser.parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)

    hf = holdfast.open()  # hf
    hf.at(-1, "restoring")  # hf
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    model = Model()
    # Without it DDP arranges its buckets anew after the first step, so that a restart would change the order of sums.
    parallel = nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    step = newest(args.dir)
    step = max(hf.newest, 0) if hf.supervised else step  # hf
    if step > 0:
        state = torch.load(file_of(args.dir, step), weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    hf.restored(step, "shared" if step > 0 else "fresh")  # hf

    while step < args.steps:
        hf.at(step, "forward")  # hf
        tokens = batch(step, rank)
        logits = parallel(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        saves = step % args.every == 0 or step == args.steps
        hf.at(step, "optimizer")  # hf
        hf.metrics(loss.item(), tokens=step * world * BATCH * SEQUENCE)  # hf
        order = orders(hf, step)  # hf
        saves = saves or order.save or order.stop  # hf
        if saves:
            hf.at(step, "checkpoint")  # hf
            size = save(file_of(args.dir, step), model, optimizer) if rank == 0 else 0
            hf.vote(step, str(file_of(args.dir, step)), files=int(rank == 0), bytes=size)  # hf
        if order.stop:  # hf
            break  # hf

    if rank == 0:
        print(f"step {step}: digest {digest(model)}", flush=True)
    dist.destroy_process_group()
    if step < args.steps:  # hf
        sys.exit(holdfast.EXIT_STOPPED)  # hf
    hf.finished(step)  # hf


main()
