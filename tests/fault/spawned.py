"""Ranks whose workers import this module again, and open the client with it: by spawn, and by a server of forks. What a worker
says in the name of its rank is not heard. The ranks ask for orders once FOLDER/ask is there, and end at the next step that all
save at.

    python spawned.py FOLDER
"""

import multiprocessing
import pathlib
import sys
import time

import holdfast

hf = holdfast.open()
folder = pathlib.Path(sys.argv[1])
EVERY = 20


def work(how: str) -> None:
    hf.at(7777, "forward")
    hf.vote(7777, folder, files=1, bytes=1)
    hf.orders()
    hf.finished(7777) if how == "spawn" else hf.failed("a worker has failed")
    hf.close()
    (folder / how).touch()
    while True:
        time.sleep(1)


def main() -> int:
    for how in ("spawn", "forkserver"):
        multiprocessing.get_context(how).Process(target=work, args=(how,), daemon=True).start()
    step = max(hf.newest, 0)
    hf.restored(step, "shared" if step else "fresh")
    leaves = False
    while True:
        hf.at(step, "forward")
        time.sleep(0.05)
        step += 1
        hf.at(step, "optimizer")
        hf.metrics(1.0, step)
        if (folder / "ask").exists():
            leaves = leaves or hf.orders().stop
        if step % EVERY == 0:
            hf.vote(step, folder)
            if leaves:
                return holdfast.EXIT_STOPPED


if __name__ == "__main__":
    sys.exit(main())
