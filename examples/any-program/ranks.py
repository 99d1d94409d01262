"""A program with the client of Holdfast: ranks that step, save, and go on from what they saved. In place of training
each step turns a number into the next. docs/manual/any-program.md says what the calls are for.

    python ranks.py FOLDER STEPS SAVE_EVERY STEP_MS     ends sooner when FOLDER/enough is there

Ranks do not talk to each other here, so each asks for orders and saves at the next step that all save at. Ranks that
exchange data ask on rank 0 and broadcast the answer, and save at once.
"""

import os
import pathlib
import sys
import time

import holdfast


def save(folder: pathlib.Path, step: int, rank: int, value: int) -> str:
    """Complete and on disk, or not there. The file's name below the folder."""
    name = f"step-{step:08d}/rank-{rank:05d}"
    path = folder / name
    path.parent.mkdir(mode=0o700, exist_ok=True)
    aside = path.with_suffix(".new")
    with open(aside, "w") as file:
        file.write(f"{value}\n")
        file.flush()
        os.fsync(file.fileno())
    aside.rename(path)
    return name


def load(folder: pathlib.Path, step: int, rank: int) -> int:
    return int((folder / f"step-{step:08d}" / f"rank-{rank:05d}").read_text())


def main() -> int:
    folder, steps, every, step_ms = pathlib.Path(sys.argv[1]), *map(int, sys.argv[2:5])
    rank = int(os.environ["RANK"])
    step, value = 0, rank

    hf = holdfast.open()
    hf.at(-1, "restoring")
    if hf.newest >= 0:
        try:
            step, value = hf.newest, load(folder, hf.newest, rank)
        except (OSError, ValueError) as error:
            hf.failed(f"the checkpoint that all ranks have voted for cannot be read: {error}")
            return 1
    hf.restored(step, "shared" if hf.newest >= 0 else "fresh")

    leaves = False
    while step < steps:
        hf.at(step, "forward")
        time.sleep(1e-3 * step_ms)
        value = (value * 6364136223846793005 + 1442695040888963407) % 2**64
        step += 1
        hf.at(step, "optimizer")
        hf.metrics(loss=value / 2**64, tokens=step * 1000, compute_s=1e-3 * step_ms)

        while (order := hf.orders()).pause:
            hf.at(step, "paused")
            time.sleep(0.1)
        leaves = leaves or order.stop
        if step % every != 0:
            continue
        hf.at(step, "checkpoint")
        try:
            hf.vote(step, folder, files=[save(folder, step, rank, value)])
        except OSError as error:
            hf.vote_failed(step, str(error))
        if leaves:
            return holdfast.EXIT_STOPPED
        if (folder / "enough").exists():
            break
    hf.at(step, "finishing")
    print(f"rank {rank}: step {step}, {value}", flush=True)
    hf.finished(step)
    return 0


sys.exit(main())
