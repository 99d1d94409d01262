"""What scripts/proof/peft.sh says.

  peft_compared.py BUILD SCRATCH
"""

import json
import pathlib
import sys

import peft
import torch
import transformers

from small_models import COMMON, LOSS_TOLERANCE, PLAIN_ROPE, STEPS
from small_models import Programs, compare_bits, largest_difference, load, losses_of_torch, make_model, quiet, tensors_of

USAGE = 2  # exit code
# Differences are over the largest element. AdamW's first steps have the size of the learning rate whatever the gradient's,
# so that an adapter's element with next to no gradient may differ by more than rounding.
TRAINED_TOLERANCE = 1e-4  # of logits
# Merged weights, of the base's type, and the logits that they give. In bf16 the sum of base and adapter is rounded, and
# what differs in fp32's last bit may be rounded to the other side.
MERGED_TOLERANCES = {torch.float32: (2e-7, 2e-5), torch.bfloat16: (2**-8, 1e-3)}
Llama = (transformers.LlamaConfig, {"num_key_value_heads": 2})
Qwen2 = (transformers.Qwen2Config, {"num_key_value_heads": 2})
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
CASES = {  # model, type of the base, rank, alpha, targets
    "llama q,v": (Llama, torch.float32, 4, 10, ("q_proj", "v_proj")),
    "llama all": (Llama, torch.float32, 8, 12, ALL),
    "llama k,down": (Llama, torch.float32, 3, 2, ("k_proj", "down_proj")),
    "llama bf16": (Llama, torch.bfloat16, 4, 8, ALL),
    "qwen2 q,v": (Qwen2, torch.float32, 16, 8, ("q_proj", "v_proj")),
    "qwen2 all": (Qwen2, torch.float32, 2, 4, ALL),
}


def make_adapters(base, rank, alpha, targets, seed, folder):
    """As peft writes them, A and B random."""
    torch.manual_seed(seed)
    settings = peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=list(targets), lora_dropout=0.0, bias="none",
                               task_type="CAUSAL_LM", init_lora_weights=False)
    peft.get_peft_model(load(base, torch.float32), settings).save_pretrained(folder)


def with_adapters(base, folder, trainable=False):
    return peft.PeftModel.from_pretrained(load(base, torch.float32), folder, is_trainable=trainable)


@torch.no_grad()
def logits(model, tokens):
    return model.eval()(tokens[:, :-1], use_cache=False).logits


def largest(a, b):
    """Difference of two tensors, over the largest element."""
    return ((a - b).abs().max() / b.abs().max()).item()


def compare(programs, scratch, name, seed, token_file, tokens):
    (kind, own), dtype, rank, alpha, targets = CASES[name]
    base, start, run, trained, merged = (scratch / f"{seed}-{what}" for what in ("base", "start", "run", "trained", "merged"))
    make_model(kind(**{**COMMON, "rope_parameters": PLAIN_ROPE, **own}), dtype, seed, base)
    make_adapters(base, rank, alpha, targets, seed, start)
    adapters = {"lora.weights": start, "lora.rank": rank, "lora.alpha": alpha, "lora.targets": json.dumps(targets)}

    # In and out again: a step with learning rate 0 changes nothing.
    untouched = scratch / f"{seed}-untouched"
    programs.losses(base, token_file, untouched, adapters | {"train.steps": 1, "optim.lr": 0, "optim.min_lr": 0})
    programs.ckpt("export", untouched, untouched / "peft")
    count = compare_bits(start, untouched / "peft")

    model = with_adapters(base, start, trainable=True)
    theirs, ours = losses_of_torch(model, tokens), programs.losses(base, token_file, run, adapters)
    apart = largest_difference(ours, theirs)
    assert apart <= LOSS_TOLERANCE, (ours, theirs)

    programs.ckpt("export", run, trained)
    loaded = with_adapters(base, trained)
    before, after = tensors_of(start), tensors_of(trained)
    assert before.keys() == after.keys() and all(not torch.equal(before[key], after[key]) for key in before)
    trained_apart = largest(logits(loaded, tokens), logits(model, tokens))
    assert trained_apart <= TRAINED_TOLERANCE, trained_apart

    # Merged: by us from the run, from the run with its base named, from peft's own format; and by peft.
    programs.ckpt("export", run, merged, "--merge")
    for what, words in {"named": (run, "--base", base), "folder": (trained, "--base", base)}.items():
        programs.ckpt("export", words[0], scratch / f"{seed}-{what}", "--merge", *words[1:])
        compare_bits(merged, scratch / f"{seed}-{what}")
    by_peft = loaded.merge_and_unload()
    for parameter in by_peft.parameters():
        parameter.data = parameter.data.to(dtype).float()
    wanted, got = by_peft.state_dict(), tensors_of(merged)
    assert wanted.keys() == got.keys() and all(tensor.dtype == dtype for tensor in got.values())
    merged_apart = max(largest(got[key].float(), wanted[key]) for key in wanted)
    logits_apart = largest(logits(load(merged, torch.float32), tokens), logits(by_peft, tokens))
    weights_tolerance, logits_tolerance = MERGED_TOLERANCES[dtype]
    assert merged_apart <= weights_tolerance and logits_apart <= logits_tolerance, (merged_apart, logits_apart)
    print(f"{name:13} rank {rank}, alpha {alpha}: {count} tensors bit for bit; losses {theirs[0]:.6f} -> {theirs[-1]:.6f}, "
          f"ours within {apart:.1e}; then logits within {trained_apart:.1e}; merged weights {merged_apart:.1e}, "
          f"logits {logits_apart:.1e}", flush=True)
    suffix = "" if dtype == torch.float32 else "_bf16"
    return {"loss": apart, "logits_after_training": trained_apart, "merged_weight" + suffix: merged_apart,
            "merged_logits" + suffix: logits_apart}


def refuse_others(programs, scratch, token_file):
    """Adapters that do not fit: those of another base, of other settings, of a kind that is not computed here."""
    (kind, own), _, rank, alpha, targets = CASES["llama q,v"]
    bases = {"base": (1, {}), "other": (2, {}), "wider": (1, {"hidden_size": 128})}
    base, other, wider = (scratch / f"refused-{what}" for what in bases)
    for what, (seed, changed) in bases.items():
        config = kind(**{**COMMON, "rope_parameters": PLAIN_ROPE, **own, **changed})
        make_model(config, torch.float32, seed, scratch / f"refused-{what}")
    fitting, wide, ours, out = (scratch / f"refused-{what}" for what in ("fitting", "wide", "ours", "out"))
    make_adapters(base, rank, alpha, targets, 1, fitting)
    make_adapters(wider, rank, alpha, targets, 1, wide)
    count = 0

    def begin(folder, changed={}, beside=base, run=None):
        settings = {"lora.rank": rank, "lora.alpha": alpha, "lora.targets": json.dumps(targets), "lora.weights": folder}
        return programs.train(beside, token_file, run or scratch / f"refused-run-{count}", settings | changed)

    def refused(done, *words):
        """With the exit code of wrong usage, and a message that says all of `words`."""
        nonlocal count
        assert done.returncode == USAGE, (done.returncode, done.stderr)
        assert all(str(word) in done.stderr for word in words), done.stderr
        count += 1

    def merge(folder, beside):
        return programs.try_ckpt("export", folder, out, "--merge", "--base", beside)

    refused(begin(wide), wide, "q_proj")
    refused(merge(wide, base), wide, "q_proj")
    refused(begin(fitting, {"lora.rank": rank + 1}), fitting, "rank")
    refused(begin(fitting, {"lora.targets": '["q_proj"]'}), fitting, "v_proj")
    refused(begin(scratch / "nowhere"), "nowhere")
    # Of the same shape: adapters that were trained here know their base.
    run = scratch / "refused-fitting-run"
    assert begin(fitting, run=run).returncode == 0
    programs.ckpt("export", run, ours)
    refused(begin(ours, beside=other), ours, "another base")
    refused(merge(ours, other), ours, "other weights")
    config = json.loads((fitting / "adapter_config.json").read_text())
    for key, value in {"use_dora": True, "bias": "all", "modules_to_save": ["lm_head"], "rank_pattern": {"q_proj": 2}}.items():
        (fitting / "adapter_config.json").write_text(json.dumps(config | {key: value}))
        refused(begin(fitting), fitting, key)
    assert not out.exists()
    return count


def main(build, scratch):
    quiet()
    programs = Programs(build)
    token_file = scratch / "tokens.bin"
    tokens = programs.make_tokens(token_file)
    found = [compare(programs, scratch, name, seed, token_file, tokens) for seed, name in enumerate(CASES, start=1)]
    refusals = refuse_others(programs, scratch, token_file)
    print(f"{refusals} folders of adapters that do not fit are refused")
    keys = dict.fromkeys(key for each in found for key in each)
    report = {f"largest_{key}_difference": max(each.get(key, 0) for each in found) for key in keys}
    print("RESULT " + json.dumps({"cases": len(CASES), "steps": STEPS, "refusals": refusals} | report | {
        "peft": peft.__version__, "transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]}))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: peft_compared.py BUILD SCRATCH")
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]))
