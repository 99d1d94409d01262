"""PyTorch's side of scripts/bench/train_cpu.sh: a Llama-shaped model in the usual building blocks (linear, rms_norm,
scaled_dot_product_attention, cross_entropy, fused AdamW), trained on the tokens of a Holdfast token file.

  train_cpu_torch.py --tokens FILE --mode MODE [--compile] [--shape k=v,...] [--global-batch N] [--steps N] [--warmup N]

MODE:
  autocast   fp32 weights and moments, matrix products in bf16 under torch.autocast
  pure       weights, gradients and moments in bf16: less work and less precise than what Holdfast does
  fsdp       FSDP2: fp32 weights and moments sharded over the ranks, gathered in bf16, gradients reduced in fp32, one unit
             per block, over gloo; one process per rank, RANK of WORLD_SIZE, that meet in the file RENDEZVOUS
A step has N micro-batches of one sequence each, over all ranks; their gradients are accumulated. Rank 0 ends with a line of
JSON: tokens/s of each step after the warm-up, the share of its threads' time that the system gave it, and the losses.
"""

import argparse
import contextlib
import json
import os
import time

import numpy
import torch
from torch import nn
from torch.nn import functional as F

HEADER = 4096  # bytes before the tokens (src/data/token_file.hpp)
SHAPE = {"vocabulary": 50304, "width": 768, "layers": 12, "heads": 12, "ffn": 2048, "sequence": 1024}


def rotary_tables(sequence, head, theta=10000.0):
    frequencies = theta ** (-torch.arange(0, head, 2) / head)
    angles = torch.outer(torch.arange(sequence), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return F.rms_norm(x, self.weight.shape, self.weight, 1e-5)


class Block(nn.Module):
    def __init__(self, width, heads, ffn):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = Norm(width), Norm(width)
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, width, bias=False)

    def forward(self, x, cos, sin):
        b, s, d = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(b, s, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, s, d))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    """Tied embeddings; the forward pass ends with the mean loss."""

    def __init__(self, vocabulary, width, layers, heads, ffn, sequence):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, ffn) for _ in range(layers))
        self.norm = Norm(width)
        cos, sin = rotary_tables(sequence, width // heads)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, labels):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = F.linear(self.norm(x), self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


def shard(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def arguments():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tokens", required=True)
    parser.add_argument("--mode", choices=("autocast", "pure", "fsdp"), required=True)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--shape", default="", help="k=v,... over the 124M model's")
    parser.add_argument("--global-batch", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2, help="that are measured")
    parser.add_argument("--warmup", type=int, default=1)
    return parser.parse_args()


def main():
    args = arguments()
    shape = SHAPE | {key: int(value) for key, value in (pair.split("=") for pair in args.shape.split(",") if pair)}
    torch.manual_seed(1)
    rank, world = 0, 1
    model = Llama(**shape)
    if args.mode == "fsdp":
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        meeting = "file://" + os.path.abspath(os.environ["RENDEZVOUS"])
        torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world)
    if args.mode == "pure":
        model.to(torch.bfloat16)
    if args.compile:
        for block in model.blocks:
            block.compile()
    if args.mode == "fsdp":
        shard(model)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    gains = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.1}, {"params": gains, "weight_decay": 0.0}],
        lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True,
    )
    tokens = torch.from_numpy(numpy.fromfile(args.tokens, dtype="<u2", offset=HEADER).astype(numpy.int64))
    sequence, mine = shape["sequence"], args.global_batch // world
    casting = torch.autocast("cpu", torch.bfloat16) if args.mode == "autocast" else contextlib.nullcontext()

    def step(index):
        total = 0.0
        for micro_step in range(mine):
            if args.mode == "fsdp":  # gradients meet once per step, like Holdfast's
                model.set_requires_gradient_sync(micro_step == mine - 1)
            at = ((index * world + rank) * mine + micro_step) * sequence % (len(tokens) - sequence - 1)
            sample = tokens[at : at + sequence + 1].unsqueeze(0)
            with casting:
                loss = model(sample[:, :-1], sample[:, 1:]) / mine
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return total

    speeds, losses, shares = [], [], []
    for index in range(args.warmup + args.steps):
        if world > 1:
            torch.distributed.barrier()
        begin, cpu = time.perf_counter(), time.process_time()
        losses.append(step(index))
        if world > 1:
            torch.distributed.barrier()
        if index >= args.warmup:
            seconds = time.perf_counter() - begin
            speeds.append(args.global_batch * sequence / seconds)
            shares.append((time.process_time() - cpu) / seconds / torch.get_num_threads())
    if rank == 0:
        print(json.dumps({
            "tokens_per_s": speeds, "cpu_share": shares, "losses": losses, "parameters": sum(p.numel() for p in model.parameters()),
            "torch": torch.__version__, "threads": torch.get_num_threads(), "ranks": world,
        }))
    if world > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
