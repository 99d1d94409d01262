"""Small random models and tokens, and the same few AdamW steps on them by holdfast-train and by torch. What the
comparisons with transformers and peft share.
"""

import json
import os
import subprocess

import numpy
import torch
import transformers
from safetensors import safe_open

VOCABULARY, ROWS, SEQUENCE, STEPS = 128, 16, 24, 5
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
PLAIN_ROPE = {"rope_type": "default", "rope_theta": 10000.0}


class Programs:
    """What is compared with, of one build tree."""

    def __init__(self, build):
        self.tool_path, self.train_path = build / "src/tools/cli/holdfast-tool", build / "src/train/holdfast-train"
        self.make_tokens_path = build / "tests/train/make_tokens"

    def try_ckpt(self, *words):
        return subprocess.run([self.tool_path, "ckpt", *map(str, words)], capture_output=True, text=True)

    def ckpt(self, *words):
        done = self.try_ckpt(*words)
        assert done.returncode == 0, done.stderr

    def make_tokens(self, token_file):
        """ROWS rows of SEQUENCE + 1 tokens."""
        count = ROWS * SEQUENCE + 1
        subprocess.run([self.make_tokens_path, token_file, str(VOCABULARY), str(count)], check=True)
        stream = numpy.fromfile(token_file, "<u2", count, offset=4096).astype("int64")
        return torch.tensor(numpy.stack([stream[i * SEQUENCE : (i + 1) * SEQUENCE + 1] for i in range(ROWS)]))

    def train(self, folder, token_file, run, extra={}):
        """A run that begins with `folder`. A step has all rows of the token file, in some order."""
        settings = {
            "model.file": folder, "model.weights": folder, "data.tokens": token_file, "train.steps": STEPS,
            "train.sequence": SEQUENCE, "train.global_batch": ROWS, "train.micro_batch": 2, "train.device": "cpu",
            "optim.lr": LR, "optim.schedule": "constant", "optim.warmup_steps": 0, "optim.beta1": BETAS[0],
            "optim.beta2": BETAS[1], "optim.epsilon": EPSILON, "optim.weight_decay": WEIGHT_DECAY,
            "optim.clip_norm": CLIP_NORM, "checkpoint.every": 0,
        } | extra
        job = run.with_suffix(".toml")
        job.write_text("")
        command = [self.train_path, job, "--run-dir", run]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        return subprocess.run(command, capture_output=True, text=True)

    def losses(self, folder, token_file, run, extra={}):
        done = self.train(folder, token_file, run, extra)
        assert done.returncode == 0, done.stderr
        return [json.loads(line)["loss"] for line in (run / "metrics.jsonl").read_text().splitlines()]


def quiet():
    """One thread each, and nothing on the terminal."""
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    os.environ.update(OMP_NUM_THREADS="1", OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def is_query_or_key(name):
    return any(part in name for part in ("q_proj", "k_proj", "qkv_proj"))


@torch.no_grad()
def stir(model, seed, scale):
    """Random parameters: gains about one, all others `scale` of their name wide."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        parameter.copy_(1 + 0.1 * noise if "norm" in name else scale(name) * noise)


def make_model(config, dtype, seed, folder):
    """A random model whose every parameter matters: gains off one, biases off zero, attention far from uniform."""
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=dtype)
    stir(model, seed, lambda name: 0.2 if is_query_or_key(name) else 0.1)
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
    """The tensors of two folders; returns how many there are."""
    a, b = tensors_of(before), tensors_of(after)
    assert a.keys() == b.keys(), a.keys() ^ b.keys()
    for name, tensor in a.items():
        other = b[name]
        assert tensor.dtype == other.dtype and tensor.shape == other.shape, name
        words = torch.int32 if tensor.element_size() == 4 else torch.int16
        assert torch.equal(tensor.view(words), other.view(words)), name
    return len(a)


def load(folder, dtype):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")


def losses_of_torch(model, tokens):
    """Of AdamW steps on what of the model is to be trained; one step has all rows."""
    parameters = [p for p in model.train().parameters() if p.requires_grad]
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


def largest_difference(ours, theirs):
    """Relative, over a run's losses."""
    assert len(ours) == len(theirs) == STEPS
    return max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
