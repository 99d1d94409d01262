"""As fsdp.py, and each step is kept in the memory of its node and of a partner node (snapshot buffers): a lost node costs
the step that was under way. Checkpoints are for the loss of more than that. A line that ends in `# hf` protects it:

    grep -v '# hf$' fsdp_buffers.py >unprotected.py

However often it is interrupted, it ends in the bits of a run that was not: data are a function of step and rank.
"""

import argparse
import hashlib
import pathlib
import time  # hf
from typing import Any, Dict

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard

import holdfast  # hf
from holdfast.snapshots import StateDict  # hf

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


def folder_of(folder: pathlib.Path, step: int) -> pathlib.Path:
    return folder / f"step-{step:08d}"


def newest(folder: pathlib.Path) -> int:
    # DCP writes .metadata last.
    return max((int(path.parent.name[5:]) for path in folder.glob("step-*/.metadata")), default=0)


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> Dict[str, Any]:
    weights, moments = get_state_dict(model, optimizer)
    return {"model": weights, "optim": moments}


def digest(model: nn.Module) -> str:
    found = hashlib.sha256()
    for _, tensor in sorted(model.state_dict().items()):
        found.update(tensor.full_tensor().numpy().tobytes())
    return found.hexdigest()[:16]


def vote(hf: holdfast.Client, step: int, folder: pathlib.Path, rank: int) -> None:  # hf
    files = list(folder.glob(f"__{rank}_*"))  # hf
    hf.vote(step, str(folder), files=len(files), bytes=sum(path.stat().st_size for path in files))  # hf


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

    hf = holdfast.open()  # hf
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    torch.manual_seed(1)
    model = Model()
    mesh = dist.init_device_mesh("cpu", (world,))
    for block in model.blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    snapshots = StateDict(hf, optimizer)  # hf
    step = newest(args.dir)
    step = max(hf.newest, hf.sealed, 0) if hf.supervised else step  # hf
    if step > 0:
        state = state_of(model, optimizer)
        in_memory = False
        in_memory = snapshots.load(state) >= 0  # hf
        if not in_memory:
            dcp.load(state, checkpoint_id=folder_of(args.dir, step))
        set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optim"])
    hf.restored(step, "shared" if step > 0 else "fresh")  # hf

    while step < args.steps:
        tokens = batch(step, rank)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        saves = step % args.every == 0 or step == args.steps
        hf.at(step, "optimizer")  # hf
        hf.metrics(loss.item(), tokens=step * world * BATCH * SEQUENCE)  # hf
        snapshots.save(state_of(model, optimizer), step)  # hf
        order = orders(hf, step)  # hf
        saves = saves or order.save or order.stop  # hf
        if saves:
            hf.at(step, "checkpoint")  # hf
            dcp.save(state_of(model, optimizer), checkpoint_id=folder_of(args.dir, step))
            vote(hf, step, folder_of(args.dir, step), rank)  # hf
        if order.stop: break  # hf

    end = digest(model)
    if rank == 0:
        print(f"step {step}: digest {end}", flush=True)
    dist.destroy_process_group()
    if step < args.steps:  # hf
        raise SystemExit(holdfast.EXIT_STOPPED)  # hf
    hf.finished(step)  # hf


main()
