"""What scripts/proof/hf_roundtrip.sh says.

  hf_roundtrip.py BUILD SCRATCH
"""

import json
import os
import pathlib
import subprocess
import sys

import numpy
import torch
import transformers
from safetensors import safe_open

VOCABULARY, ROWS, SEQUENCE, STEPS, GREEDY = 128, 16, 24, 5, 32
LOSS_TOLERANCE = 1e-5  # relative
LR, BETAS, EPSILON, WEIGHT_DECAY, CLIP_NORM = 1e-3, (0.9, 0.95), 1e-8, 0.1, 1.0

COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "bos_token_id": None,
    "eos_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
Llama, Qwen2, Mistral = transformers.LlamaConfig, transformers.Qwen2Config, transformers.MistralConfig
CASES = {
    "llama-bf16": (Llama, torch.bfloat16, {"num_key_value_heads": 2, "rope_parameters": PLAIN}),
    "llama-fp32": (Llama, torch.float32, {"num_key_value_heads": 4, "rope_parameters": PLAIN}),
    "llama-tied": (Llama, torch.bfloat16, {"num_key_value_heads": 2, "rope_parameters": PLAIN, "tie_word_embeddings": True}),
    "llama3-rope": (Llama, torch.bfloat16, {"num_key_value_heads": 1, "rope_parameters": LLAMA3}),
    "llama-fp16": (Llama, torch.float16, {"num_key_value_heads": 2, "rope_parameters": PLAIN}),
    "qwen2-bf16": (Qwen2, torch.bfloat16, {"num_key_value_heads": 2, "rope_parameters": PLAIN}),
    "qwen2-tied-fp32": (Qwen2, torch.float32, {"num_key_value_heads": 2, "rope_parameters": PLAIN, "tie_word_embeddings": True}),
    "mistral-bf16": (Mistral, torch.bfloat16, {"num_key_value_heads": 2, "rope_parameters": PLAIN, "sliding_window": None}),
}


def make_model(case, seed, folder):
    """A random model whose every parameter matters: gains off one, biases off zero, attention far from uniform."""
    kind, dtype, settings = CASES[case]
    model = transformers.AutoModelForCausalLM.from_config(kind(**COMMON, **settings), dtype=dtype)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                parameter.copy_(1 + 0.1 * noise)
            else:
                parameter.copy_((0.2 if "q_proj" in name or "k_proj" in name else 0.1) * noise)
    model.save_pretrained(folder, max_shard_size="40KB")
    return len(list(folder.glob("*.safetensors")))


def tensors_of(folder):
    out = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                assert name not in out, f"{name} twice"
                out[name] = file.get_tensor(name)
    return out


def compare_bits(before, after):
    a, b = tensors_of(before), tensors_of(after)
    assert a.keys() == b.keys(), a.keys() ^ b.keys()
    for name, tensor in a.items():
        other = b[name]
        assert tensor.dtype == other.dtype and tensor.shape == other.shape, name
        words = torch.int32 if tensor.element_size() == 4 else torch.int16
        assert torch.equal(tensor.view(words), other.view(words)), name
    return len(a)


@torch.no_grad()
def greedy(model, prompt):
    tokens = prompt
    for _ in range(GREEDY):
        tokens = torch.cat([tokens, model(tokens, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    return tokens


def compare_in_transformers(before, after, tokens):
    load = transformers.AutoModelForCausalLM.from_pretrained
    a, b = load(before, dtype="auto").eval(), load(after, dtype="auto").eval()
    assert a.dtype == b.dtype
    with torch.no_grad():
        assert torch.equal(a(tokens[:, :-1]).logits, b(tokens[:, :-1]).logits), "logits"
    assert torch.equal(greedy(a, tokens[:2, :8]), greedy(b, tokens[:2, :8])), "greedy text"


def losses_of_torch(folder, tokens):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").train()
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPSILON, foreach=False)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        logits = model(tokens[:, :-1], use_cache=False).logits
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP_NORM, foreach=False)
        optimizer.step()
        losses.append(loss.item())
    return losses


def losses_of_ours(train, folder, token_file, run):
    """A step has all rows of the token file, in some order."""
    settings = {
        "model.file": folder, "model.weights": folder, "data.tokens": token_file, "train.steps": STEPS,
        "train.sequence": SEQUENCE, "train.micro_batch": 2, "train.leaves": ROWS // 2, "train.device": "cpu",
        "optim.lr": LR, "optim.schedule": "constant", "optim.warmup_steps": 0, "optim.beta1": BETAS[0],
        "optim.beta2": BETAS[1], "optim.epsilon": EPSILON, "optim.weight_decay": WEIGHT_DECAY,
        "optim.clip_norm": CLIP_NORM, "checkpoint.every": 0,
    }
    job = run.with_suffix(".toml")
    job.write_text("")
    command = [train, job, "--run-dir", run]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def main(build, scratch):
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    os.environ.update(OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    tool, train = build / "src/tool/holdfast-tool", build / "src/train/holdfast-train"
    token_file = scratch / "tokens.bin"
    count = ROWS * SEQUENCE + 1
    subprocess.run([build / "tests/train/make_tokens", token_file, str(VOCABULARY), str(count)], check=True)
    stream = numpy.fromfile(token_file, "<u2", count, offset=4096).astype("int64")
    tokens = torch.tensor(numpy.stack([stream[i * SEQUENCE : (i + 1) * SEQUENCE + 1] for i in range(ROWS)]))
    worst = 0.0
    for seed, case in enumerate(CASES, start=1):
        original, exported, checkpoint = (scratch / f"{case}-{what}" for what in ("original", "exported", "checkpoint"))
        files = make_model(case, seed, original)
        run = lambda *words: subprocess.run([tool, "ckpt", *map(str, words)], check=True, capture_output=True)
        run("import", original, checkpoint)
        run("export", checkpoint, exported, "--shard-size", "50kB")
        count = compare_bits(original, exported)
        compare_in_transformers(original, exported, tokens)
        theirs, ours = losses_of_torch(original, tokens), losses_of_ours(train, original, token_file, scratch / f"{case}-run")
        assert len(ours) == STEPS
        apart = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
        worst = max(worst, apart)
        print(f"{case:16} {files} files, {count} tensors bit for bit; logits and text the same; losses {theirs[0]:.6f} -> "
              f"{theirs[-1]:.6f}, ours within {apart:.1e}", flush=True)
        assert apart <= LOSS_TOLERANCE, (ours, theirs)
    print("RESULT " + json.dumps({"models": len(CASES), "steps": STEPS, "largest_relative_loss_difference": worst,
                                  "transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: hf_roundtrip.py BUILD SCRATCH")
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]))
