"""What PyTorch does on this card, in one process: ceilings of products at 7B's shapes, scaled_dot_product_attention, one
compiled block, and the whole model of 7B's width with 8 layers (FSDP2, compiled blocks, bf16 products, fp32 masters) with
gpu_lease.sh's batch: 8 micro-batches of 4,096 tokens a step. Every number is a line of JSON the moment it is known.

  gpu_torch_rows.py [--seconds N] [--tiny]      --tiny: on the CPU, to see that it runs
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time

began = time.monotonic()
import torch  # noqa: E402
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, default=100)
parser.add_argument("--tiny", action="store_true")
args = parser.parse_args()
device = "cpu" if args.tiny else "cuda"
shape = dict(vocabulary=32000, width=4096, heads=32, ffn=11008, layers=8, tokens=4096, micro_steps=8)
if args.tiny:
    shape = dict(vocabulary=512, width=64, heads=4, ffn=176, layers=2, tokens=64, micro_steps=2)
T, D, H, FF = shape["tokens"], shape["width"], shape["heads"], shape["ffn"]


def put(name, **values):
    print(json.dumps({"name": name, **values}), flush=True)


def left():
    return args.seconds - (time.monotonic() - began)


def attempt(name, seconds, work):
    """A part that fails, or for which there is no time, stops none of the others."""
    if left() < seconds:
        return put(name, skipped=f"no time: {left():.0f} s")
    try:
        work()
    except Exception as error:  # noqa: BLE001
        put(name, failed=f"{type(error).__name__}: {error}"[:300])


def wait():
    if device == "cuda":
        torch.cuda.synchronize()


def seconds_of(call, rounds=20):
    for _ in range(3):
        call()
    wait()
    times = []
    for _ in range(rounds):
        if device == "cuda":
            a, b = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            a.record()
            call()
            b.record()
            b.synchronize()
            times.append(a.elapsed_time(b) / 1e3)
        else:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return statistics.median(times)


def noise(*sizes, dtype=torch.bfloat16):
    return torch.randn(*sizes, device=device).to(dtype)


def bandwidth():
    a = noise(1 << (20 if args.tiny else 31), dtype=torch.bfloat16)
    b = torch.empty_like(a)
    s = seconds_of(lambda: b.copy_(a))
    put("copy", ms=s * 1e3, gb_s=2 * a.numel() * 2 / s / 1e9)


def product(name, m, n, k, transposed=False):
    # `transposed`: as for a weight's gradient, dY^T X
    a = noise(k, m).t() if transposed else noise(m, k)
    b = noise(k, n) if transposed else noise(n, k).t()
    s = seconds_of(lambda: a @ b)
    put("product " + name, ms=s * 1e3, tflop_s=2 * m * n * k / s / 1e12)


def products():
    big = 128 if args.tiny else 8192
    product("8192^3", big, big, big)
    for name, n, k in (("qkv", 3 * D, D), ("o", D, D), ("gate_up", 2 * FF, D), ("down", D, FF), ("head", shape["vocabulary"], D)):
        product(name, T, n, k)
        product(name + " weight gradient", n, k, T, transposed=True)


def products8():
    for name, n, k in (("qkv", 3 * D, D), ("gate_up", 2 * FF, D), ("down", D, FF)):
        a, b = noise(T, k).to(torch.float8_e4m3fn), noise(n, k).to(torch.float8_e4m3fn).t()
        one = torch.ones((), device=device)
        for fast in (False, True):
            s = seconds_of(lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16, use_fast_accum=fast))
            put(f"8-bit product {name}{' fast accumulation' if fast else ''}", ms=s * 1e3, tflop_s=2 * T * n * k / s / 1e12)


def attention():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    flop = 2 * T * T * D  # causal half of two products
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION):
        q, k, v = (noise(1, H, T, D // H).requires_grad_() for _ in range(3))
        try:
            with sdpa_kernel(backend):
                forward = seconds_of(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True))
                y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                g = torch.randn_like(y)
                backward = seconds_of(lambda: torch.autograd.grad(y, (q, k, v), g, retain_graph=True))
        except RuntimeError as error:
            put(f"attention {backend.name}", failed=str(error)[:200])
            continue
        put(f"attention {backend.name}", forward_ms=forward * 1e3, forward_tflop_s=flop / forward / 1e12,
            backward_ms=backward * 1e3, backward_tflop_s=2.5 * flop / backward / 1e12)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(D, 1e-5), nn.RMSNorm(D, 1e-5)
        self.qkv, self.o = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)
        self.gate_up, self.down = nn.Linear(D, 2 * FF, bias=False), nn.Linear(FF, D, bias=False)

    def forward(self, x, cos, sin):
        b, s, d = x.shape
        q, k, v = self.qkv(self.attention_norm(x)).view(b, s, 3, H, d // H).permute(2, 0, 3, 1, 4)

        def rotate(y):
            first, second = y.float().chunk(2, -1)
            return torch.cat((first * cos - second * sin, second * cos + first * sin), -1).to(y.dtype)

        a = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, s, d))
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Llama(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.embedding = nn.Embedding(shape["vocabulary"], D)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.norm = nn.RMSNorm(D, 1e-5)
        self.head = nn.Linear(D, shape["vocabulary"], bias=False)

    def forward(self, tokens, labels, cos, sin):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), labels.flatten())


def tables():
    half = D // H // 2
    angle = torch.arange(T, device=device)[:, None] * 10000.0 ** (-torch.arange(half, device=device) / half)
    return angle.cos(), angle.sin()


def one_block():
    block, (cos, sin) = Block().to(device, torch.bfloat16), tables()
    block.compile(dynamic=False)
    x, g = noise(1, T, D).requires_grad_(), noise(1, T, D)

    def both():
        block(x, cos, sin).backward(g)

    start = time.perf_counter()
    both()
    wait()
    compiled = time.perf_counter() - start
    s = seconds_of(both)
    with torch.no_grad():
        forward = seconds_of(lambda: block(x, cos, sin))
    put("one compiled block, bf16", ms=s * 1e3, forward_ms=forward * 1e3, tokens_s=T / s, compile_s=compiled)


def whole():
    from torch.distributed import init_process_group
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    with tempfile.NamedTemporaryFile(delete=False) as file:
        store = file.name
    os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")
    init_process_group("gloo" if args.tiny else "nccl", init_method=f"file://{store}", rank=0, world_size=1,
                       **({} if args.tiny else {"device_id": torch.device("cuda", 0)}))
    with torch.device(device):
        model = Llama(shape["layers"])
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        block.compile(dynamic=False)
        fully_shard(block, mp_policy=policy, reshard_after_forward=False)
    fully_shard(model, mp_policy=policy, reshard_after_forward=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    cos, sin = tables()

    def step():
        for micro in range(shape["micro_steps"]):
            model.set_requires_gradient_sync(micro == shape["micro_steps"] - 1)
            sample = torch.randint(shape["vocabulary"], (1, T + 1), device=device)
            (model(sample[:, :-1], sample[:, 1:], cos, sin) / shape["micro_steps"]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    times = []
    for _ in range(8):
        wait()
        start = time.perf_counter()
        step()
        wait()
        times.append(time.perf_counter() - start)
        if left() < 2 * max(times[1:], default=0):
            break
    s = statistics.median(times[2:] or times[-1:])
    put(f"{shape['layers']} layers, FSDP2 and compile", tokens_s=shape["micro_steps"] * T / s, step_s=s, steps=[round(t, 3) for t in times],
        peak_gb=(torch.cuda.max_memory_allocated() / 1e9 if device == "cuda" else 0))


put("torch", version=torch.__version__, device=torch.cuda.get_device_name() if device == "cuda" else "cpu", import_s=time.monotonic() - began)
torch.manual_seed(1)
attempt("copy", 3, bandwidth)
attempt("products", 5, products)
attempt("attention", 5, attention)
attempt("whole model", 25, whole)
attempt("8-bit products", 5, products8)
attempt("one block", 20, one_block)
sys.stdout.flush()
os._exit(0)  # nothing may hang in the end
