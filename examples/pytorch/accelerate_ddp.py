"""A small language model with Accelerate, in data parallel. A line that ends in `# hf` protects it; without these lines it
is the script as it was:

    grep -v '# hf$' accelerate_ddp.py >unprotected.py

However often it is interrupted, it ends in the bits of a run that was not: data are a function of step and rank, and the
sums of gradients have one order.
"""

import argparse
import hashlib
import os
import pathlib
import shutil
import sys  # hf
import time  # hf
from typing import List

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs
from accelerate.utils import broadcast_object_list, set_seed
from torch import nn

import holdfast  # hf

VOCABULARY, WIDTH, SEQUENCE, BATCH = 256, 64, 32, 4


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        blocks = [nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True) for _ in range(2)]
        self.layers = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *blocks, nn.Linear(WIDTH, VOCABULARY))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.layers(tokens)


def batch(step: int, rank: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1_000_003 * step + rank)
    first = torch.randint(0, VOCABULARY, (BATCH, 1), generator=generator)
    return (first + 7 * torch.arange(SEQUENCE + 1)) % VOCABULARY


def folder_of(folder: pathlib.Path, step: int) -> pathlib.Path:
    return folder / f"step-{step:08d}"


def newest(folder: pathlib.Path) -> int:
    return max((int(path.name[5:]) for path in folder.glob("step-*[0-9]")), default=0)


def save(accelerator: Accelerator, path: pathlib.Path) -> List[str]:
    """Complete and on disk, or not there. The names of the files that this rank has written."""
    aside, rank = path.with_suffix(".new"), accelerator.process_index
    if rank == 0:
        shutil.rmtree(aside, ignore_errors=True)
    accelerator.wait_for_everyone()
    accelerator.save_state(str(aside))
    accelerator.wait_for_everyone()
    states = f"random_states_{rank}.pkl"
    mine = [file.name for file in aside.iterdir() if file.name == states or not (rank or file.name.startswith("random_"))]
    for name in mine:
        with open(aside / name, "rb") as file:
            os.fsync(file.fileno())
    accelerator.wait_for_everyone()
    if rank == 0:
        aside.rename(path)
    accelerator.wait_for_everyone()
    return mine


def digest(model: nn.Module) -> str:
    found = hashlib.sha256()
    for _, tensor in sorted(model.state_dict().items()):
        found.update(tensor.numpy().tobytes())
    return found.hexdigest()[:16]


def orders(hf: holdfast.Client, step: int) -> holdfast.Order:  # hf
    while True:  # what rank 0 is told, for all; holds while that is the order  # hf
        order = broadcast_object_list([hf.orders()])[0]  # hf
        if order.save or not order.pause:  # hf
            return order  # hf
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
    torch.set_num_threads(1)
    # Without it DDP arranges its buckets anew after the first step, so that a restart would change the order of sums.
    accelerator = Accelerator(cpu=True, kwargs_handlers=[DistributedDataParallelKwargs(find_unused_parameters=True)])
    torch.use_deterministic_algorithms(True)
    set_seed(1)
    model = Model()
    parallel, optimizer = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    rank, world = accelerator.process_index, accelerator.num_processes

    step = newest(args.dir)
    step = max(hf.newest, 0) if hf.supervised else step  # hf
    if step > 0:
        accelerator.load_state(str(folder_of(args.dir, step)))
    hf.restored(step, "shared" if step > 0 else "fresh")  # hf

    while step < args.steps:
        hf.at(step, "forward")  # hf
        tokens = batch(step, rank)
        loss = nn.functional.cross_entropy(parallel(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        accelerator.backward(loss)
        optimizer.step()
        step += 1
        saves = step % args.every == 0 or step == args.steps
        hf.at(step, "optimizer")  # hf
        hf.metrics(loss.item(), tokens=step * world * BATCH * SEQUENCE)  # hf
        order = orders(hf, step)  # hf
        saves = saves or order.save or order.stop  # hf
        if saves:
            hf.at(step, "checkpoint")  # hf
            names = save(accelerator, folder_of(args.dir, step))
            hf.vote(step, folder_of(args.dir, step), files=names)  # hf
        if order.stop:  # hf
            break  # hf

    if rank == 0:
        print(f"step {step}: digest {digest(model)}", flush=True)
    accelerator.end_training()
    if step < args.steps:  # hf
        sys.exit(holdfast.EXIT_STOPPED)  # hf
    hf.finished(step)  # hf


main()
