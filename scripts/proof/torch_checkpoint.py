"""What scripts/proof/torch_checkpoint.sh says.

  torch_checkpoint.py BUILD SCRATCH
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import numpy
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing
import transformers
from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, zeros

import holdfast.checkpoint
import holdfast.torch
from holdfast import _sums
from small_models import COMMON, PLAIN_ROPE, ROWS, SEQUENCE, Programs, make_model, quiet, tensors_of

WORLDS = (1, 2, 4, 8, 16)
DEADLINE_S = 300
ROUNDS = 5
SMALL = {**COMMON, "num_key_value_heads": 2, "rope_parameters": PLAIN_ROPE}
LARGE = {**SMALL, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 4, "vocab_size": 8192}


def part_digest(tensor):
    """Of this rank's part of a DTensor; 0 where another rank has the same part."""
    if not isinstance(tensor, DTensor):
        whole, chunks = tensor, [((0,) * tensor.dim(), tuple(tensor.shape))]
        replica = dist.get_rank() != 0
    else:
        whole = tensor.to_local()
        chunks = [(tuple(c.offsets), tuple(c.sizes)) for c in tensor.__create_chunk_list__()]
        place = tensor.device_mesh.get_coordinate()
        replica = any(isinstance(p, Replicate) and at for p, at in zip(tensor.placements, place))
    if replica or whole.numel() == 0:
        return 0
    (offsets, sizes), = chunks
    assert tuple(sizes) == tuple(whole.shape)
    indices = numpy.zeros((1,), numpy.uint64)
    for at, size, full in zip(offsets, sizes, tensor.shape):
        here = numpy.arange(at, at + size, dtype=numpy.uint64)
        indices = (indices[:, None] * numpy.uint64(full) + here[None, :]).reshape(-1)
    bits = whole.detach().contiguous().reshape(-1).numpy().view("<u4")
    return _sums.digest_part(indices, bits)


def compare(found, family, tensors):
    """The digests of these tensors of all ranks with those of the manifest; returns how many."""
    parts = [part_digest(tensor) for tensor in tensors.values()]
    sums = torch.from_numpy(numpy.array(parts, dtype=numpy.uint64).view(numpy.int64))
    dist.all_reduce(sums)
    for name, digest in zip(tensors, sums.numpy().view(numpy.uint64)):
        expected = found.tensors[f"{family}/{name}"].digest
        assert f"{int(digest):016x}" == expected, f"{family}/{name}: {int(digest):016x}, not {expected}"
    return len(tensors)


def differs(found, tensors):
    try:
        compare(found, "model", tensors)
    except AssertionError:
        return True
    return False


def sharded_model(folder):
    """An FSDP2 model with its AdamW, of other values than any checkpoint has."""
    torch.manual_seed(dist.get_rank())
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.from_pretrained(folder), dtype=torch.float32)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    return model, torch.optim.AdamW(model.parameters())


def moments_of(state, moment):
    return {name: of[moment] for name, of in state["state"].items()}


def compare_all(found, model, optimizer_state):
    count = compare(found, "model", dict(model.state_dict()))
    for moment in ("exp_avg", "exp_avg_sq"):
        count += compare(found, f"optim/{moment}", moments_of(optimizer_state, moment))
    assert all(int(of["step"]) == found.step for of in optimizer_state["state"].values())
    return count


def into_fsdp2(found, folder, dcp_folder):
    """By holdfast.torch, then by DCP from what was exported to it."""
    model, optimizer = sharded_model(folder)
    state = get_optimizer_state_dict(model, optimizer)
    assert differs(found, model.state_dict()), "a comparison that cannot fail"
    assert holdfast.torch.load(found, model.state_dict()) == len(model.state_dict())
    holdfast.torch.load_optimizer(found, state)
    count = compare_all(found, model, state)
    # What is in the optimizer, not in a copy of it:
    names = {parameter: name for name, parameter in model.named_parameters()}
    mine = {names[parameter]: of["exp_avg"] for parameter, of in optimizer.state.items()}
    compare(found, "optim/exp_avg", mine)
    assert all(int(of["step"]) == found.step for of in optimizer.state.values())

    model, optimizer = sharded_model(folder)
    state = get_optimizer_state_dict(model, optimizer)
    dcp.load({"model": model.state_dict(), "optim": {"state": state["state"]}}, checkpoint_id=dcp_folder)
    return count + compare_all(found, model, state)


def into_placements(found):
    """All tensors as DTensors that are cut otherwise: by columns, and on a mesh of two dimensions."""
    world, count = dist.get_world_size(), 0
    line = init_device_mesh("cpu", (world,))
    layouts = [(line, [Shard(1)])]
    if world >= 4:
        mesh = init_device_mesh("cpu", (2, world // 2))
        layouts += [(mesh, [Replicate(), Shard(0)]), (mesh, [Shard(1), Shard(0)]), (mesh, [Shard(0), Replicate()])]
    for mesh, placements in layouts:
        tensors = {}
        for name, tensor in found.tensors.items():
            if name.startswith("model/"):
                fit = [Shard(0) if p.is_shard() and len(tensor.shape) == 1 and i == len(placements) - 1
                       else Replicate() if p.is_shard() and p.dim >= len(tensor.shape)
                       else Replicate() if len(tensor.shape) == 1 else p for i, p in enumerate(placements)]
                tensors[name[len("model/"):]] = zeros(*tensor.shape, device_mesh=mesh, placements=fit)
        holdfast.torch.load(found, tensors)
        count += compare(found, "model", tensors)
    return count


def rank_of_proof(rank, world, scratch, run, folder, dcp_folder):
    join(rank, world, scratch)
    with holdfast.torch.open(run) as found:
        counts = [into_fsdp2(found, folder, dcp_folder), into_placements(found)]
        if rank == 0:
            print(f"{run.name}: {world:2} processes: {counts[0]} tensors in FSDP2 (holdfast.torch, DCP), {counts[1]} in "
                  "other placements; digests as in the manifest", flush=True)
    dist.destroy_process_group()


def rank_of_race(rank, world, scratch, run, dcp_folder):
    """Seconds of each load, in turns; every turn into zeros, and compared with the manifest at the end."""
    join(rank, world, scratch)
    mesh = init_device_mesh("cpu", (world,))
    times = {"holdfast": [], "dcp": []}
    with holdfast.torch.open(run) as found:
        tensors = {name: zeros(*t.shape, device_mesh=mesh, placements=[Shard(0)]) for name, t in found.tensors.items()}

        def ours():
            for family in ("model", "optim/exp_avg", "optim/exp_avg_sq"):
                begin = family + "/"
                holdfast.torch.load(found, {n[len(begin):]: t for n, t in tensors.items() if n.startswith(begin)}, family)

        def theirs():
            state = {}
            for name, tensor in tensors.items():
                if name.startswith("optim/"):
                    _, moment, bare = name.split("/", 2)
                    state.setdefault(bare, {})[moment] = tensor
            model = {n[len("model/"):]: t for n, t in tensors.items() if n.startswith("model/")}
            dcp.load({"model": model, "optim": {"state": state}}, checkpoint_id=dcp_folder)

        for turn in range(ROUNDS + 1):
            for name, load in (("holdfast", ours), ("dcp", theirs)):
                for tensor in tensors.values():
                    tensor.to_local().zero_()
                dist.barrier()
                begin = time.monotonic()
                load()
                dist.barrier()
                if turn:  # the first brings the files into memory
                    times[name].append(time.monotonic() - begin)
        size = sum(t.elements * 4 for t in found.tensors.values())
    if rank == 0:
        (scratch / "race.json").write_text(json.dumps({"bytes": size, **times}))
    dist.destroy_process_group()


def join(rank, world, scratch):
    torch.set_num_threads(1)
    os.environ["LOCAL_RANK"] = str(rank)
    dist.init_process_group("gloo", init_method=f"file://{scratch / f'meeting-{meeting}'}", rank=rank, world_size=world)


meeting = 0  # counts calls of start(); forked processes know it, too


def start(rank_function, world, *rest):
    """In processes that are forked, so that torch is imported once."""
    global meeting
    meeting += 1
    context = torch.multiprocessing.start_processes(rank_function, (world, *rest), world, join=False, start_method="fork")
    limit = time.monotonic() + DEADLINE_S
    while not context.join(timeout=5):
        assert time.monotonic() < limit, f"{world} processes are not done after {DEADLINE_S} s"


def train(programs, folder, token_file, run, ranks, steps, group):
    job = run.with_suffix(".toml")
    job.write_text("")
    settings = {
        "model.file": folder, "model.weights": folder, "data.tokens": token_file, "train.steps": steps,
        "train.sequence": SEQUENCE, "train.global_batch": ROWS, "train.micro_batch": 2, "train.device": "cpu",
        "optim.warmup_steps": 0, "checkpoint.every": 0, "shard.strategy": "hybrid_shard", "shard.group": group,
    }
    command = ["mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(ranks), programs.train_path, job, "--run-dir", run]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S)
    assert done.returncode == 0, done.stdout + done.stderr


def holdfast_torch(*words):
    command = [sys.executable, "-W", "ignore", "-m", "holdfast.torch", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def export_dcp(programs, run, folder):
    """As a user does it who has this interpreter first in PATH."""
    environment = {**os.environ, "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
    command = [programs.tool_path, "ckpt", "export", run, "--dcp", folder]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr


def back_again(programs, run, folder, dcp_folder, scratch):
    """DCP to safetensors to a checkpoint: the weights have the digests that they had."""
    weights, again = scratch / f"{run.name}.safetensors", scratch / f"{run.name}-again"
    holdfast_torch("import-dcp", dcp_folder, weights)
    programs.ckpt("import", weights, again, "--model", folder)
    with holdfast.checkpoint.open(run) as a, holdfast.checkpoint.open(again) as b:
        b.verify()
        names = [name for name in a.tensors if name.startswith("model/")]
        assert names and all(a.tensors[name].digest == b.tensors[name].digest for name in names)
        return len(names)


def main(build, scratch):
    quiet()
    programs = Programs(build)
    token_file = scratch / "tokens.bin"
    programs.make_tokens(token_file)
    small, large = scratch / "small", scratch / "large"
    make_model(transformers.LlamaConfig(**SMALL), torch.float32, 1, small)
    make_model(transformers.LlamaConfig(**LARGE), torch.float32, 2, large)
    tensors = len(tensors_of(small))
    for ranks in (2, 4):
        run, dcp_folder = scratch / f"ranks-{ranks}", scratch / f"ranks-{ranks}-dcp"
        train(programs, small, token_file, run, ranks, 3, group=2)
        export_dcp(programs, run, dcp_folder)
        for world in WORLDS:
            start(rank_of_proof, world, scratch, run, small, dcp_folder)
        assert back_again(programs, run, small, dcp_folder, scratch) == tensors
        print(f"{run.name}: {tensors} tensors back from DCP, bit for bit", flush=True)
    run, dcp_folder = scratch / "large-run", scratch / "large-dcp"
    train(programs, large, token_file, run, 2, 1, group=2)
    export_dcp(programs, run, dcp_folder)
    start(rank_of_race, 2, scratch, run, dcp_folder)
    race = json.loads((scratch / "race.json").read_text())
    ratio = statistics.median(theirs / ours for ours, theirs in zip(race["holdfast"], race["dcp"]))
    print("RESULT " + json.dumps({
        "writers": [2, 4], "processes": WORLDS, "tensors": tensors, "bytes": race["bytes"],
        "holdfast_load_s": round(statistics.median(race["holdfast"]), 3), "dcp_load_s": round(statistics.median(race["dcp"]), 3),
        "load_rate_over_dcp": round(ratio, 2), "rounds": ROUNDS, "load_average": os.getloadavg()[0],
        "torch": torch.__version__.split("+")[0]}))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: torch_checkpoint.py BUILD SCRATCH")
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]))
