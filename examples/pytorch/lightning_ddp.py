"""A small language model with Lightning, in data parallel. A line that ends in `# hf` protects it; without these lines it is
the script as it was:

    grep -v '# hf$' lightning_ddp.py >unprotected.py

However often it is interrupted, it ends in the bits of a run that was not: data are a function of step and rank, and the
sums of gradients have one order.
"""

import argparse
import hashlib
import itertools
import os
import pathlib
import sys  # hf
import time  # hf
from typing import Any, Iterator

import lightning.pytorch as pl
import torch
from torch import nn

import holdfast  # hf

VOCABULARY, WIDTH, SEQUENCE, BATCH = 256, 64, 32, 4


class Batches(torch.utils.data.IterableDataset):
    """The batches of one rank from a step on."""

    def __init__(self, step: int, rank: int) -> None:
        self.step, self.rank = step, rank

    def __iter__(self) -> Iterator[torch.Tensor]:
        for step in itertools.count(self.step):
            generator = torch.Generator().manual_seed(1_000_003 * step + self.rank)
            first = torch.randint(0, VOCABULARY, (BATCH, 1), generator=generator)
            yield (first + 7 * torch.arange(SEQUENCE + 1)) % VOCABULARY


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        blocks = [nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True) for _ in range(2)]
        self.layers = nn.Sequential(nn.Embedding(VOCABULARY, WIDTH), *blocks, nn.Linear(WIDTH, VOCABULARY))

    def training_step(self, tokens: torch.Tensor, index: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self.layers(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def file_of(folder: pathlib.Path, step: int) -> pathlib.Path:
    return folder / f"step-{step:08d}.ckpt"


def newest(folder: pathlib.Path) -> int:
    return max((int(path.stem[5:]) for path in folder.glob("step-*.ckpt")), default=0)


def sync(path: pathlib.Path) -> None:
    with open(path, "rb") as file:
        os.fsync(file.fileno())


class Checkpoints(pl.Callback):
    """Saves every so many steps, and at the end."""

    def __init__(self, folder: pathlib.Path, every: int) -> None:
        self.folder, self.every = folder, every
        self.hf = holdfast.open()  # hf

    def on_train_batch_start(self, trainer: pl.Trainer, *_: Any) -> None:  # hf
        self.hf.at(trainer.global_step, "forward")  # hf

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, *_: Any) -> None:
        step, path = trainer.global_step, file_of(self.folder, trainer.global_step)
        saves = step % self.every == 0 or step == trainer.max_steps
        self.hf.at(step, "optimizer")  # hf
        self.hf.metrics(outputs["loss"].item(), tokens=step * trainer.world_size * BATCH * SEQUENCE)  # hf
        order = self.orders(trainer)  # hf
        trainer.should_stop = order.stop  # hf
        saves = saves or order.save or order.stop  # hf
        if saves:
            self.hf.at(step, "checkpoint")  # hf
            trainer.save_checkpoint(path)
            if trainer.is_global_zero:
                sync(path)
            size = path.stat().st_size if trainer.is_global_zero else 0  # hf
            self.hf.vote(step, str(path), files=int(trainer.is_global_zero), bytes=size)  # hf

    def orders(self, trainer: pl.Trainer) -> holdfast.Order:  # hf
        while True:  # what rank 0 is told, for all; holds while that is the order  # hf
            order = trainer.strategy.broadcast(self.hf.orders())  # hf
            if order.save or not order.pause:  # hf
                return order  # hf
            self.hf.at(trainer.global_step, "paused")  # hf
            time.sleep(0.1)  # hf


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=pathlib.Path, required=True, help="where its checkpoints are")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--every", type=int, default=20, help="steps from one checkpoint to the next")
    args = parser.parse_args()
    args.dir.mkdir(parents=True, exist_ok=True)

    rank, local, world = (int(os.environ[name]) for name in ("RANK", "LOCAL_WORLD_SIZE", "WORLD_SIZE"))
    torch.set_num_threads(1)
    pl.seed_everything(1, verbose=False)
    model, saver = Model(), Checkpoints(args.dir, args.every)
    # `find_unused_parameters`: without it DDP arranges its buckets anew after the first step, so that a restart would
    # change the order of sums.
    trainer = pl.Trainer(accelerator="cpu", strategy="ddp_find_unused_parameters_true", devices=local, deterministic=True,
                         num_nodes=world // local, max_steps=args.steps, max_epochs=-1, callbacks=[saver], logger=False,
                         enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False)
    step = newest(args.dir)
    hf = saver.hf  # hf
    hf.at(-1, "restoring")  # hf
    step = max(hf.newest, 0) if hf.supervised else step  # hf
    batches = torch.utils.data.DataLoader(Batches(step, rank), batch_size=None)
    trainer.fit(model, batches, ckpt_path=file_of(args.dir, step) if step > 0 else None)

    found = hashlib.sha256()
    for _, tensor in sorted(model.state_dict().items()):
        found.update(tensor.numpy().tobytes())
    if rank == 0:
        print(f"step {trainer.global_step}: digest {found.hexdigest()[:16]}", flush=True)
    if trainer.global_step < args.steps:  # hf
        sys.exit(holdfast.EXIT_STOPPED)  # hf
    hf.finished(trainer.global_step)  # hf


main()
