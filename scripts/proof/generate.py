"""What scripts/proof/generate.sh says.

  generate.py BUILD SCRATCH [speed]
"""

import json
import os
import pathlib
import subprocess
import sys
import time

import numpy
import tokenizers
import torch
import transformers

from small_models import is_query_or_key, stir

NEW_TOKENS, SEQUENCE, SAMPLES = 48, 40, 24
LOSS_TOLERANCE = 1e-6  # relative
PROMPTS = [
    "The root of a kelp is called",
    "def add(a, b):\n    return",
    " leading space",
    "Überraschung: 数字 12345 and \U0001f41a",
    "a",
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness,",
    "<|end|>and so on",
]
TEXT = [
    "The holdfast is the root by which kelp clings to rock through every storm.",
    "It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness.",
    "def add(a, b):\n    return a + b\n\nfor i in range(10):\n    print(i, add(i, i))\n",
    "Überraschung und Größe; le café d'à côté; 数字 and words; 12345 67890.",
] * 8
TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}{{ '<|start|>' + message['role'] + '\n' + message['content'] + '<|end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant\n' }}{% endif %}"
)
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 64}
LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75, "short_factor": [1.0, 1.0, 1.25, 1.5, 2.0, 4.0],
            "long_factor": [1.0, 1.5, 3.0, 6.0, 12.0, 24.0]}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
COMMON = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 256}
CASES = {
    "llama": (transformers.LlamaConfig, {"num_key_value_heads": 2, "rope_parameters": PLAIN}, True),
    "llama3-rope": (transformers.LlamaConfig, {"num_key_value_heads": 1, "rope_parameters": LLAMA3}, True),
    "yarn": (transformers.LlamaConfig, {"num_key_value_heads": 2, "rope_parameters": YARN}, True),
    "qwen3": (transformers.Qwen3Config, {"num_key_value_heads": 2, "head_dim": 24, "rope_parameters": PLAIN}, False),
    "smollm3": (transformers.SmolLM3Config, {"num_key_value_heads": 2, "no_rope_layer_interval": 2, "pad_token_id": None, "rope_parameters": PLAIN}, False),
    "phi3": (transformers.Phi3Config, {"num_key_value_heads": 2, "pad_token_id": None, "rope_parameters": PLAIN}, True),
    "phi4-mini": (transformers.Phi3Config, {"num_key_value_heads": 2, "pad_token_id": None, "original_max_position_embeddings": 256, "rope_parameters": LONGROPE}, True),
    "granite": (transformers.GraniteConfig, {"num_key_value_heads": 2, "embedding_multiplier": 12.0, "attention_multiplier": 0.125, "residual_multiplier": 0.22, "logits_scaling": 4.0, "rope_parameters": PLAIN}, True),
    "olmo2": (transformers.Olmo2Config, {"num_key_value_heads": 2, "pad_token_id": None, "rope_parameters": PLAIN}, True),
    "olmo3": (transformers.Olmo3Config, {"num_key_value_heads": 2, "pad_token_id": None, "sliding_window": 16, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "rope_parameters": {"sliding_attention": PLAIN, "full_attention": PLAIN}}, True),
    "qwen2-tied": (transformers.Qwen2Config, {"num_key_value_heads": 2, "rope_parameters": PLAIN, "tie_word_embeddings": True}, False),
}


def make_tokenizer(folder, begins):
    """Byte-level BPE as Llama 3's and Qwen's are; with `begins` texts start with a token, else it has only a name."""
    specials = ["<|begin|>", "<|end|>", "<|start|>"]
    core = tokenizers.Tokenizer(tokenizers.models.BPE())
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = tokenizers.decoders.ByteLevel()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=420, special_tokens=specials, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    core.train_from_iterator(TEXT, trainer)
    if begins:
        core.post_processor = tokenizers.processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", core.token_to_id("<|begin|>"))])
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<|begin|>", eos_token="<|end|>", clean_up_tokenization_spaces=False)
    tokenizer.chat_template = TEMPLATE if begins else TEMPLATE.replace("{{ bos_token }}", "")
    tokenizer.save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


def make_model(case, seed, folder):
    """A random model whose texts are lively: logits far apart, attention far from uniform."""
    kind, settings, begins = CASES[case]
    tokenizer = make_tokenizer(folder, begins)
    vocabulary = -(-len(tokenizer) // 64) * 64  # padded, as models are
    config = kind(**COMMON, **settings, vocab_size=vocabulary, bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    stir(model, seed, lambda name: 0.5 if "embed" in name or "lm_head" in name else 0.3 if is_query_or_key(name) else 0.15)
    model.save_pretrained(folder)
    return model.eval(), tokenizer, vocabulary


def generate_ours(tool, folder, *words):
    done = subprocess.run([tool, "generate", folder, "--json", "--max-tokens", str(NEW_TOKENS), *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@torch.no_grad()
def generate_theirs(model, tokens, count=NEW_TOKENS):
    tokens = torch.tensor([tokens])
    out = model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False, max_new_tokens=count, pad_token_id=0)
    return out[0, tokens.shape[1]:].tolist()


@torch.no_grad()
def margin(model, tokens, answer):
    """How far the second largest logit stays behind, at least."""
    logits = model(torch.tensor([tokens + answer])).logits[0, len(tokens) - 1 : -1]
    top = logits.topk(2).values
    return (top[:, 0] - top[:, 1]).min().item()


def compare_text(tool, folder, model, tokenizer, scratch):
    prompts = scratch / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS))
    ended, least, words = 0, float("inf"), ["--file", prompts, "--batch", str(len(PROMPTS))]
    for ours, prompt in zip(generate_ours(tool, folder, *words), PROMPTS, strict=True):
        tokens = tokenizer(prompt)["input_ids"]
        theirs = generate_theirs(model, tokens)
        assert ours["prompt_tokens"] == tokens, (prompt, ours["prompt_tokens"], tokens)
        assert ours["tokens"] == theirs, (prompt, ours["tokens"], theirs)
        assert (ours["stop"] == "end") == (theirs[-1] == tokenizer.eos_token_id)
        known = [token for token in theirs if token < len(tokenizer)]
        assert ours["text"] == tokenizer.decode(known, skip_special_tokens=True), prompt
        ended += ours["stop"] == "end"
        least = min(least, margin(model, tokens, theirs))
    return ended, least


def compare_chat(tool, folder, model, tokenizer, scratch):
    conversation = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What clings to rock?"}]
    file = scratch / "chat.jsonl"
    file.write_text(json.dumps({"messages": conversation}) + "\n")
    ours = generate_ours(tool, folder, "--chat", "--file", file)[0]
    tokens = tokenizer.apply_chat_template(conversation, add_generation_prompt=True, return_dict=False)
    assert ours["prompt_tokens"] == list(tokens), (ours["prompt_tokens"], tokens)
    assert ours["tokens"] == generate_theirs(model, list(tokens))


@torch.no_grad()
def compare_loss(build, tool, folder, model, vocabulary, scratch):
    file = scratch / "tokens.bin"
    count = SAMPLES * SEQUENCE + 1
    subprocess.run([build / "tests/train/make_tokens", file, str(vocabulary), str(count)], check=True)
    stream = numpy.fromfile(file, "<u2", count, offset=4096).astype("int64")
    rows = torch.tensor(numpy.stack([stream[i * SEQUENCE : (i + 1) * SEQUENCE + 1] for i in range(SAMPLES)]))
    logits = model(rows[:, :-1], use_cache=False).logits.double()
    theirs = torch.nn.functional.cross_entropy(logits.reshape(-1, vocabulary), rows[:, 1:].reshape(-1)).item()
    done = subprocess.run([tool, "eval", folder, "--tokens", file, "--sequence", str(SEQUENCE), "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ours = json.loads(done.stdout)
    assert ours["tokens"] == SAMPLES * SEQUENCE
    apart = abs(ours["loss"] - theirs) / theirs
    assert apart <= LOSS_TOLERANCE, (ours["loss"], theirs)
    return apart


def compare_speed(tool, scratch):
    """Both with all cores, fp32 weights in memory; reading them is not counted."""
    folder, count, threads = scratch / "speed", 128, len(os.sched_getaffinity(0))
    tokenizer = make_tokenizer(folder, True)
    config = transformers.LlamaConfig(
        hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=4, max_position_embeddings=1024,
        rope_parameters=PLAIN, vocab_size=16000, bos_token_id=tokenizer.bos_token_id, eos_token_id=None)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    model.save_pretrained(folder)
    model.generation_config.eos_token_id = None
    prompts = scratch / "speed.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": PROMPTS[5] + f" {i}"}) + "\n" for i in range(8)))
    torch.set_num_threads(threads)
    result = {"parameters": model.num_parameters(), "threads": threads}
    for batch in (1, 8):
        tokens = [tokenizer(PROMPTS[5] + f" {i}")["input_ids"] for i in range(batch)]
        begin = time.perf_counter()
        with torch.no_grad():
            rows = torch.tensor(tokens)
            model.generate(rows, attention_mask=torch.ones_like(rows), do_sample=False, max_new_tokens=count, min_new_tokens=count, pad_token_id=0)
        result[f"transformers_{batch}"] = round(batch * count / (time.perf_counter() - begin), 1)
        for dtype in ("fp32", "bf16"):
            lines = prompts.read_text().splitlines()[:batch]
            (scratch / "some.jsonl").write_text("\n".join(lines))
            done = subprocess.run(
                [tool, "generate", folder, "--json", "--max-tokens", str(count), "--file", scratch / "some.jsonl", "--dtype", dtype],
                capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
            assert done.returncode == 0, done.stderr
            result[f"ours_{dtype}_{batch}"] = float(done.stderr.split(" tokens/s")[0].split()[-1])
    return result


def main(build, scratch, speed):
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    tool = build / "src/tools/cli/holdfast-tool"
    worst = 0.0
    for seed, case in enumerate(CASES, start=1):
        folder = scratch / case
        model, tokenizer, vocabulary = make_model(case, seed, folder)
        ended, least = compare_text(tool, folder, model, tokenizer, scratch)
        compare_chat(tool, folder, model, tokenizer, scratch)
        apart = compare_loss(build, tool, folder, model, vocabulary, scratch)
        worst = max(worst, apart)
        print(f"{case:12} {len(PROMPTS)} prompts in one batch and a chat: the same tokens ({ended} ended by themselves, the first choice is "
              f"{least:.1e} ahead at least); loss within {apart:.1e}", flush=True)
    result = {"models": len(CASES), "prompts": len(PROMPTS), "new_tokens": NEW_TOKENS, "largest_relative_loss_difference": worst,
              "transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}
    if speed:
        result["tokens_per_second"] = compare_speed(tool, scratch)
    print("RESULT " + json.dumps(result))


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit("usage: generate.py BUILD SCRATCH [speed]")
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]), len(sys.argv) == 4 and sys.argv[3] == "speed")
