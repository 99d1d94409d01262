"""PyTorch's side of scripts/bench/versus.sh: an elastic DDP job on CPUs (gloo) of about the same size as the fault
tests' model, with a checkpoint every 10 steps.

  versus_torch.py --folder FOLDER [--timeout_s 30]

Started by torchrun. Rank 0 appends a line of JSON per step to FOLDER/steps.jsonl. --timeout_s is the process group's:
without it (PyTorch's default is 1800) the survivors of a silent node wait for half an hour.
"""

import argparse
import datetime
import json
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    parser.add_argument("--timeout_s", type=int, default=30)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=arguments.timeout_s))
    torch.manual_seed(1)
    width, ffn, vocabulary = 128, 352, 512
    blocks = [
        torch.nn.TransformerEncoderLayer(width, 4, ffn, 0.0, batch_first=True) for _ in range(4)
    ]
    model = DistributedDataParallel(
        torch.nn.Sequential(
            torch.nn.Embedding(vocabulary, width), *blocks, torch.nn.Linear(width, vocabulary)
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    checkpoint = os.path.join(arguments.folder, "checkpoint.pt")
    step = 0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        step = state["step"]
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    tokens = torch.randint(0, vocabulary, (2, 129))
    while True:
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if dist.get_rank() != 0:
            continue
        if step % 10 == 0:
            torch.save(
                {
                    "step": step,
                    "model": model.module.state_dict(),
                    "optimizer": optimizer.state_dict(),
                },
                checkpoint + ".new",
            )
            os.replace(checkpoint + ".new", checkpoint)
        with open(os.path.join(arguments.folder, "steps.jsonl"), "a") as out:
            line = {
                "step": step,
                "unix": time.time(),
                "world": dist.get_world_size(),
                "pid": os.getpid(),
            }
            out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
