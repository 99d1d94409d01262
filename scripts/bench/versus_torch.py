"""The one script of scripts/bench/versus.sh: DDP on CPUs (gloo), with a checkpoint every 10 steps.

  versus_torch.py --folder FOLDER [--client [--buffers] | --nvrx] [--group-timeout-s S]

Rank 0 appends a line of JSON per step to FOLDER/steps.jsonl. --client: it uses Holdfast's client; --buffers: and keeps every step in
the memory of its node and of a partner; --nvrx: it sends heartbeats to
NVRx's rank monitor. --group-timeout-s: of the process group, 1800 by default as PyTorch's. Under srun alone it takes its place from
SLURM's variables.
"""

import argparse
import datetime
import json
import os
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def place_from_slurm():
    if "RANK" not in os.environ:
        os.environ.update(
            RANK=os.environ["SLURM_PROCID"],
            WORLD_SIZE=os.environ["SLURM_NTASKS"],
            LOCAL_RANK=os.environ["SLURM_LOCALID"],
            MASTER_ADDR=os.environ["HEAD"],
            MASTER_PORT="29500",
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", required=True)
    parser.add_argument("--client", action="store_true")
    parser.add_argument("--buffers", action="store_true")
    parser.add_argument("--nvrx", action="store_true")
    parser.add_argument("--group-timeout-s", type=int, default=1800)
    arguments = parser.parse_args()
    place_from_slurm()
    client = snapshots = monitor = None
    if arguments.client:
        import holdfast

        client = holdfast.open()
        client.at(-1, "restoring")
    if arguments.nvrx:
        import nvidia_resiliency_ext.fault_tolerance as fault_tolerance

        monitor = fault_tolerance.RankMonitorClient()
        monitor.init_workload_monitoring()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=arguments.group_timeout_s))
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
    state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
    if arguments.buffers:
        from holdfast.snapshots import StateDict

        snapshots = StateDict(client, optimizer)
        step = max(snapshots.load(state), 0)
    if step == 0 and os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        step = state["step"]
    if step > 0:
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    if client:
        client.restored(step, "shared" if step else "fresh")
    tokens = torch.randint(0, vocabulary, (2, 129))
    while True:
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if client:
            client.at(step, "forward")
        if snapshots:
            snapshots.save(
                {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, step
            )
        if monitor:
            monitor.send_heartbeat()
        time.sleep(0.1)
        if dist.get_rank() == 0:
            if step % 10 == 0:
                state = {
                    "step": step,
                    "model": model.module.state_dict(),
                    "optimizer": optimizer.state_dict(),
                }
                torch.save(state, checkpoint + ".new")
                os.replace(checkpoint + ".new", checkpoint)
            with open(os.path.join(arguments.folder, "steps.jsonl"), "a") as file:
                file.write(json.dumps({"step": step, "unix": time.time()}) + "\n")
        if client and step % 10 == 0:
            client.vote(step, arguments.folder)


main()
