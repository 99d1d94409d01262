"""PyTorch's side of scripts/gpu_check.sh: a Llama-shaped model in the usual building blocks (linear, rms_norm,
scaled_dot_product_attention, cross_entropy, fused AdamW) on one GPU, fp32 weights and moments, products in bf16 under
torch.autocast, random tokens.

  train_gpu_torch.py --shape vocabulary=V,width=D,layers=L,heads=H,kv_heads=K,ffn=F,sequence=S [--global-batch N] [--micro-batch B]
                     [--steps N] [--warmup N] [--eager] [--deterministic]

Ends with a line of JSON: the median of tokens/s of the steps after the warm-up, and the peak of memory.
"""

import argparse
import json
import statistics
import time

import torch
from torch import nn
from torch.nn import functional as F

from train_cpu_torch import Norm, rotary_tables, rotate


class Block(nn.Module):
    def __init__(self, width, heads, kv_heads, ffn):
        super().__init__()
        self.heads, self.kv_heads, self.head = heads, kv_heads, width // heads
        self.attention_norm, self.mlp_norm = Norm(width), Norm(width)
        self.qkv = nn.Linear(width, (heads + 2 * kv_heads) * self.head, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.gate_up = nn.Linear(width, 2 * ffn, bias=False)
        self.down = nn.Linear(ffn, width, bias=False)

    def forward(self, x, cos, sin):
        b, s, d = x.shape
        packed = self.qkv(self.attention_norm(x)).view(b, s, -1, self.head).transpose(1, 2)
        q, k, v = packed.split((self.heads, self.kv_heads, self.kv_heads), 1)
        q, k = rotate(q, cos, sin).to(v.dtype), rotate(k, cos, sin).to(v.dtype)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        x = x + self.o(a.transpose(1, 2).reshape(b, s, d))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, vocabulary, width, layers, heads, kv_heads, ffn, sequence):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(Block(width, heads, kv_heads, ffn) for _ in range(layers))
        self.norm = Norm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        cos, sin = rotary_tables(sequence, width // heads)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(self, tokens, labels):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), labels.flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", required=True)
    parser.add_argument("--global-batch", type=int, default=4)
    parser.add_argument("--micro-batch", type=int, default=1)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=3)
    parser.add_argument("--eager", action="store_true")
    parser.add_argument("--deterministic", action="store_true")
    args = parser.parse_args()
    shape = {key: int(value) for key, value in (pair.split("=") for pair in args.shape.split(","))}
    torch.manual_seed(1)
    torch.use_deterministic_algorithms(args.deterministic, warn_only=True)
    torch.set_float32_matmul_precision("high")
    with torch.device("cuda"):
        model = Llama(**shape)
    if not args.eager:
        for block in model.blocks:
            block.compile()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    sequence, micro_steps = shape["sequence"], args.global_batch // args.micro_batch

    def step():
        for _ in range(micro_steps):
            sample = torch.randint(shape["vocabulary"], (args.micro_batch, sequence + 1), device="cuda")
            with torch.autocast("cuda", torch.bfloat16):
                loss = model(sample[:, :-1], sample[:, 1:]) / micro_steps
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    speeds = []
    for index in range(args.warmup + args.steps):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        step()
        torch.cuda.synchronize()
        if index >= args.warmup:
            speeds.append(args.global_batch * sequence / (time.perf_counter() - begin))
    print(json.dumps({
        "tokens_per_s": statistics.median(speeds), "peak_bytes": torch.cuda.max_memory_allocated(),
        "parameters": sum(p.numel() for p in model.parameters()), "torch": torch.__version__,
    }))


if __name__ == "__main__":
    main()
