"""Goldens from PyTorch and transformers: what tests/model compares our transformer and AdamW with, without Python.

For each shape below, one folder under the output folder:
  config.json          the model's configuration as transformers writes it
  weights.safetensors  the initial weights, fp32, by their Hugging Face names (a tied head is absent)
  golden.safetensors   tokens [rows, sequence + 1]   labels are the next tokens
                       logits [rows * sequence, V]
                       loss [1]                      mean over all labels
                       grad.NAME                     of that mean
                       losses20, norms20 [20]        loss and global gradient norm before each of 20 AdamW steps
                       after20.NAME                  weights after them
The 20 steps see the same batch; AdamW as in OPTIMIZER. All arithmetic is fp32, by one thread. The same is done again in
fp64, and the metadata of golden.safetensors says how far fp32 was from it at most (gradients: relative to the largest of
their tensor): a tolerance below that asks for luck.

  golden_llama.py OUTPUT_FOLDER       (scripts/golden_llama.sh makes the environment and runs this)
"""

import copy
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

ROWS, SEQUENCE, STEPS = 2, 24, 20
OPTIMIZER = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8}
WEIGHT_DECAY = 0.1  # of matrices; not of norm gains and biases
CLIP_NORM = 1.0

COMMON = {
    "vocab_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 128,
    "attn_implementation": "eager",
}
SHAPES = {
    # Multi-head attention, and heads of 12: 6 frequencies, no power of two.
    "llama2": transformers.LlamaConfig(
        **COMMON, hidden_size=48, intermediate_size=80, num_key_value_heads=4, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ),
    # Wavelengths 6.3, 32 and 167 tokens and longer: one frequency is kept, one is blended, the others are divided by 8.
    "llama3": transformers.LlamaConfig(
        **COMMON, hidden_size=64, intermediate_size=80, num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters={
            "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    # Bias on q, k and v, and one key/value head for all.
    "qwen2": transformers.Qwen2Config(
        **COMMON, hidden_size=48, intermediate_size=80, num_key_value_heads=1, rms_norm_eps=1e-6, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    ),
    "llama_tied": transformers.LlamaConfig(
        **COMMON, hidden_size=48, intermediate_size=80, num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ),
    # Norms of heads that are wider than the model.
    "qwen3": transformers.Qwen3Config(
        **COMMON, hidden_size=32, intermediate_size=48, num_key_value_heads=2, head_dim=12, rms_norm_eps=1e-6,
        tie_word_embeddings=True, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    ),
    # Heads that are narrower than the model, as Mistral Nemo has them.
    "nemo": transformers.MistralConfig(
        **COMMON, hidden_size=32, intermediate_size=48, num_key_value_heads=2, head_dim=6, rms_norm_eps=1e-5,
        tie_word_embeddings=False, sliding_window=None, rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    ),
    # Biases in all linear layers.
    "llama_biased": transformers.LlamaConfig(
        **COMMON, hidden_size=32, intermediate_size=48, num_key_value_heads=2, head_dim=8, rms_norm_eps=1e-5,
        tie_word_embeddings=False, attention_bias=True, mlp_bias=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ),
    "linear": transformers.LlamaConfig(
        **COMMON, hidden_size=32, intermediate_size=48, num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    ),
    "dynamic": transformers.LlamaConfig(
        **COMMON, hidden_size=32, intermediate_size=48, num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=False,
        rope_parameters={"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 4.0},
    ),
    # Of 8 frequencies some are kept, some blended and some divided; sines and cosines grow.
    "yarn": transformers.LlamaConfig(
        **COMMON, hidden_size=32, intermediate_size=48, num_key_value_heads=2, head_dim=16, rms_norm_eps=1e-5,
        tie_word_embeddings=False,
        rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64,
                         "beta_fast": 4.0, "beta_slow": 0.25},
    ),
    # A layer without rotary positions.
    "smollm3": transformers.SmolLM3Config(
        **COMMON, hidden_size=32, intermediate_size=48, num_key_value_heads=2, rms_norm_eps=1e-6, tie_word_embeddings=True,
        no_rope_layer_interval=2, pad_token_id=None, rope_parameters={"rope_type": "default", "rope_theta": 2000000.0},
    ),
    # q, k and v in one tensor, gate and up in another.
    "phi3": transformers.Phi3Config(
        **COMMON, hidden_size=32, intermediate_size=48, num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=False,
        pad_token_id=None, eos_token_id=None, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ),
    # Factors of embeddings, scores, residual and logits, as Granite 3 has them; its logits are smaller.
    "granite": transformers.GraniteConfig(
        **COMMON, hidden_size=32, intermediate_size=48, num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=True,
        embedding_multiplier=12.0, attention_multiplier=0.25, residual_multiplier=0.22, logits_scaling=0.75,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    ),
    # Three quarters of a head are rotated, each frequency is divided by a factor of its own, and sines and cosines grow.
    "phi4_mini": transformers.Phi3Config(
        **COMMON, hidden_size=64, intermediate_size=48, num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=True,
        pad_token_id=None, eos_token_id=None, original_max_position_embeddings=32, rope_parameters={
            "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
            "short_factor": [1.0, 1.0, 1.25, 1.5, 2.0, 4.0], "long_factor": [1.0, 1.5, 3.0, 6.0, 12.0, 24.0]},
    ),
    # Norms behind attention and MLP, and over all heads of queries and of keys.
    "olmo2": transformers.Olmo2Config(
        **COMMON, hidden_size=32, intermediate_size=48, num_key_value_heads=2, rms_norm_eps=1e-6, tie_word_embeddings=False,
        pad_token_id=None, eos_token_id=None, rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
    ),
    # The same with windows of 7 tokens in the first of two blocks, whose wavelengths are not stretched.
    "olmo3": transformers.Olmo3Config(
        **COMMON, hidden_size=32, intermediate_size=48, num_key_value_heads=2, rms_norm_eps=1e-6, tie_word_embeddings=False,
        pad_token_id=None, eos_token_id=None, sliding_window=7, layer_types=["sliding_attention", "full_attention"],
        rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
            "full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 4.0, "original_max_position_embeddings": 32}},
    ),
}


def build(config, seed):
    """A model whose every parameter matters: gains off one, biases off zero, attention far from uniform."""
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="eager")
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                parameter.copy_(1 + 0.1 * noise)
            else:
                parameter.copy_((0.2 if "q_proj" in name or "k_proj" in name or "qkv_proj" in name else 0.1) * noise)
    return model.train()


def exact_copy(model):
    """The same model in fp64. transformers computes norms and eager softmax in fp32 whatever the type of the model, so
    these are replaced; the rotary angles stay fp32."""
    exact = copy.deepcopy(model).double()
    exact.set_attn_implementation("sdpa")
    for module in exact.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = lambda x, m=module: torch.nn.functional.rms_norm(x, m.weight.shape, m.weight, m.variance_epsilon)
    return exact


def loss_of(model, tokens):
    logits = model(tokens[:, :-1], use_cache=False).logits.reshape(-1, model.config.vocab_size)
    return logits, torch.nn.functional.cross_entropy(logits, tokens[:, 1:].reshape(-1))


def record(model, tokens):
    """All golden tensors. The model's weights are those after the last step then."""
    logits, loss = loss_of(model, tokens)
    loss.backward()
    out = {"logits": logits.detach().clone(), "loss": loss.detach().reshape(1).clone()}
    out |= {f"grad.{name}": p.grad.clone() for name, p in model.named_parameters()}

    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": WEIGHT_DECAY},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, foreach=False, **OPTIMIZER)
    losses, norms = [], []
    for _ in range(STEPS):
        optimizer.zero_grad()
        _, loss = loss_of(model, tokens)
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, CLIP_NORM, foreach=False).detach())
        optimizer.step()
        losses.append(loss.detach())
    out |= {"losses20": torch.stack(losses), "norms20": torch.stack(norms)}
    return out | {f"after20.{name}": p.detach().clone() for name, p in model.named_parameters()}


def distances(golden, exact):
    """Largest |fp32 - fp64| of each kind of tensor, gradients relative to the largest of their tensor, in words."""
    worst = {}
    for name, value in golden.items():
        kind = name.split(".")[0]
        reference = exact[name]
        distance = (value.double() - reference).abs().max().item()
        if kind == "grad":
            distance /= reference.abs().max().item()
        worst[kind] = max(worst.get(kind, 0.0), distance)
    return ", ".join(f"{kind} {value:.1e}" for kind, value in worst.items())


def main(folder):
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    versions = f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}"
    for seed, (name, config) in enumerate(SHAPES.items(), start=1):
        model = build(config, seed)
        tokens = torch.randint(config.vocab_size, (ROWS, SEQUENCE + 1), generator=torch.Generator().manual_seed(100 + seed))
        weights = {key: p.detach().clone() for key, p in model.named_parameters()}
        exact = record(exact_copy(model), tokens)
        golden = record(model, tokens)
        about = f"{versions}; fp32 is off fp64 by {distances(golden, exact)}"

        out = folder / name
        out.mkdir(parents=True, exist_ok=True)
        (out / "config.json").write_text(json.dumps(config.to_diff_dict(), indent=2, sort_keys=True) + "\n")
        # One entry: several would be written in random order.
        save_file(weights, out / "weights.safetensors", metadata={"made_by": versions})
        save_file({"tokens": tokens.int()} | golden, out / "golden.safetensors", metadata={"made_by": about})
        for file in out.glob("*.safetensors"):
            file.chmod(0o644)
        size = sum(f.stat().st_size for f in out.iterdir())
        print(f"{name:10}  {sum(w.numel() for w in weights.values())} parameters, {size / 1e6:.2f} MB, loss "
              f"{golden['loss'].item():.6f} -> {golden['losses20'][-1].item():.6f}, norm {golden['norms20'][0].item():.3f} -> "
              f"{golden['norms20'][-1].item():.3f}")
        print(f"{'':12}{about}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: golden_llama.py OUTPUT_FOLDER")
    main(pathlib.Path(sys.argv[1]))
