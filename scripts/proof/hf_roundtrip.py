"""What scripts/proof/hf_roundtrip.sh says.

  hf_roundtrip.py BUILD SCRATCH
"""

import json
import pathlib
import sys

import torch
import transformers

from small_models import COMMON, LOSS_TOLERANCE, PLAIN_ROPE, STEPS
from small_models import Programs, compare_bits, largest_difference, load, losses_of_torch, make_model, quiet

GREEDY = 32  # tokens
LLAMA3_ROPE = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN_ROPE = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0, "original_max_position_embeddings": 32}
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.0, 1.25, 1.5, 2.0, 4.0], "long_factor": [1.0, 1.5, 3.0, 6.0, 12.0, 24.0],
}
Llama, Qwen2, Mistral = transformers.LlamaConfig, transformers.Qwen2Config, transformers.MistralConfig
Qwen3, SmolLM3, Phi3 = transformers.Qwen3Config, transformers.SmolLM3Config, transformers.Phi3Config
Granite, Olmo2, Olmo3 = transformers.GraniteConfig, transformers.Olmo2Config, transformers.Olmo3Config
EXPORTED_AS = {"MistralForCausalLM": "LlamaForCausalLM"}  # which computes the same without a window
CASES = {
    "llama-bf16": (Llama, torch.bfloat16, {"num_key_value_heads": 2}),
    "llama-fp32": (Llama, torch.float32, {"num_key_value_heads": 4}),
    "llama-tied": (Llama, torch.bfloat16, {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "llama3-rope": (Llama, torch.bfloat16, {"num_key_value_heads": 1, "rope_parameters": LLAMA3_ROPE}),
    "llama-fp16": (Llama, torch.float16, {"num_key_value_heads": 2}),
    "qwen2-bf16": (Qwen2, torch.bfloat16, {"num_key_value_heads": 2}),
    "qwen2-tied-fp32": (Qwen2, torch.float32, {"num_key_value_heads": 2, "tie_word_embeddings": True}),
    "llama-biased": (Llama, torch.float32, {"num_key_value_heads": 2, "head_dim": 24, "attention_bias": True, "mlp_bias": True}),
    "linear-rope": (Llama, torch.float32, {"num_key_value_heads": 2, "rope_parameters": PLAIN_ROPE | {"rope_type": "linear", "factor": 2.0}}),
    "dynamic-rope": (Llama, torch.float32, {"num_key_value_heads": 2, "rope_parameters": PLAIN_ROPE | {"rope_type": "dynamic", "factor": 2.0}}),
    "yarn-rope": (Llama, torch.float32, {"num_key_value_heads": 2, "rope_parameters": YARN_ROPE}),
    "qwen3-fp32": (Qwen3, torch.float32, {"num_key_value_heads": 2, "head_dim": 24}),
    "qwen3-tied-bf16": (Qwen3, torch.bfloat16, {"num_key_value_heads": 1, "head_dim": 12, "tie_word_embeddings": True}),
    "nemo-fp32": (Mistral, torch.float32, {"num_key_value_heads": 2, "head_dim": 12, "sliding_window": None}),
    "smollm3-fp32": (SmolLM3, torch.float32, {"num_key_value_heads": 2, "no_rope_layer_interval": 2, "pad_token_id": None}),
    "phi3-fp32": (Phi3, torch.float32, {"num_key_value_heads": 2, "pad_token_id": None}),
    "phi4-mini-fp32": (Phi3, torch.float32, {
        "num_key_value_heads": 2, "pad_token_id": None, "original_max_position_embeddings": 32, "rope_parameters": LONGROPE}),
    "granite-fp32": (Granite, torch.float32, {
        "num_key_value_heads": 2, "embedding_multiplier": 12.0, "attention_multiplier": 0.125, "residual_multiplier": 0.22,
        "logits_scaling": 4.0}),
    "olmo2-fp32": (Olmo2, torch.float32, {"num_key_value_heads": 2, "pad_token_id": None}),
    "olmo3-fp32": (Olmo3, torch.float32, {
        "num_key_value_heads": 2, "pad_token_id": None, "sliding_window": 9, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {"sliding_attention": PLAIN_ROPE, "full_attention": YARN_ROPE}}),
    "mistral-window-fp32": (Mistral, torch.float32, {"num_key_value_heads": 2, "sliding_window": 9}),
    "mistral-bf16": (Mistral, torch.bfloat16, {"num_key_value_heads": 2, "sliding_window": None}),
}


@torch.no_grad()
def greedy(model, prompt):
    tokens = prompt
    for _ in range(GREEDY):
        tokens = torch.cat([tokens, model(tokens, use_cache=False).logits[:, -1:].argmax(-1)], 1)
    return tokens


def compare_in_transformers(before, after, tokens):
    open_folder = transformers.AutoModelForCausalLM.from_pretrained
    a, b = open_folder(before, dtype="auto").eval(), open_folder(after, dtype="auto").eval()
    assert a.dtype == b.dtype
    name = type(a).__name__
    wanted = name if getattr(a.config, "sliding_window", None) else EXPORTED_AS.get(name, name)
    assert type(b).__name__ == wanted, type(b).__name__
    with torch.no_grad():
        assert torch.equal(a(tokens[:, :-1]).logits, b(tokens[:, :-1]).logits), "logits"
    assert torch.equal(greedy(a, tokens[:2, :8]), greedy(b, tokens[:2, :8])), "greedy text"


def main(build, scratch):
    quiet()
    programs = Programs(build)
    token_file = scratch / "tokens.bin"
    tokens = programs.make_tokens(token_file)
    worst = 0.0
    for seed, (case, (kind, dtype, settings)) in enumerate(CASES.items(), start=1):
        original, exported, checkpoint = (scratch / f"{case}-{what}" for what in ("original", "exported", "checkpoint"))
        files = make_model(kind(**{**COMMON, "rope_parameters": PLAIN_ROPE, **settings}), dtype, seed, original)
        programs.ckpt("import", original, checkpoint)
        programs.ckpt("export", checkpoint, exported, "--shard-size", "50kB")
        count = compare_bits(original, exported)
        compare_in_transformers(original, exported, tokens)
        theirs = losses_of_torch(load(original, torch.float32), tokens)
        ours = programs.losses(original, token_file, scratch / f"{case}-run")
        apart = largest_difference(ours, theirs)
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
