"""Ranks whose state is in snapshot buffers and nowhere else, for tests/fault/client_test.sh. In place of training each step
turns a number into the next, and fills a buffer with it. Ranks wait for each other between two steps, by files.

    python buffers.py FOLDER STEP_MS     ends at a step of all ranks once FOLDER/enough is there
"""

import os
import pathlib
import sys
import time

import holdfast

SIZE = 1 << 20


def meet(folder: pathlib.Path, rank: int, world: int, step: int, text: str) -> list:
    """What all ranks say at this step; none is ahead by more than one."""
    mine = folder / f"{rank}"
    aside = folder / f"{rank}.new"
    aside.write_text(f"{step} {text}")
    aside.rename(mine)
    said = []
    for other in range(world):
        while True:
            try:
                words = (folder / f"{other}").read_text().split()
            except FileNotFoundError:
                words = ["-1"]
            if int(words[0]) >= step:
                said.append(words[1])
                break
            time.sleep(0.002)
    return said


def main() -> int:
    folder, step_ms = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    rank, world, attempt = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "HOLDFAST_ATTEMPT"))
    meeting = folder / f"attempt-{attempt}"
    meeting.mkdir(mode=0o700, exist_ok=True)
    hf = holdfast.open()
    hf.at(-1, "restoring")
    step, value = 0, rank
    if hf.sealed >= 0:
        step, value = hf.sealed, int.from_bytes(hf.load("value")[-8:], "little")
    hf.restored(step, "fresh")  # it is said already where it came from a buffer
    while True:
        hf.at(step, "forward")
        time.sleep(1e-3 * step_ms)
        value = (value * 6364136223846793005 + 1442695040888963407) % 2**64
        step += 1
        hf.at(step, "optimizer")
        hf.metrics(loss=value / 2**64, tokens=step)
        buffer = hf.buffer("value", SIZE)
        buffer[:] = value.to_bytes(8, "little") * (SIZE // 8)
        hf.seal(step)
        while hf.orders().pause:
            hf.at(step, "paused")
            time.sleep(0.05)
        # The first of them decides for all, as a rank that broadcasts.
        if meet(meeting, rank, world, step, str(int((folder / "enough").exists())))[0] == "1":
            break
    print(f"rank {rank}: step {step}, {value}", flush=True)
    hf.finished(step)
    return 0


sys.exit(main())
