"""What scripts/proof/own_model.sh says.

  own_model.py BUILD SCRATCH
"""

import json
import os
import pathlib
import subprocess
import sys

import torch
import transformers

NEW_TOKENS = 48
PROMPTS = ["The leader", "A checkpoint is durable when", "def add(a, b):\n    return", " leading space", "Überraschung: 数字 12345 and \U0001f41a",
           "a", "x" * 100, "two  spaces\tand a tab\r\n"]
# One document a line: short ones, so that the model learns where texts end.
MODEL = """[model]
name = "own"
vocabulary = 1024
width = 64
layers = 2
heads = 4
kv_heads = 2
ffn = 176
max_sequence = 256
"""
JOB = """[model]
file = "{scratch}/model.toml"
[data]
tokens = "{scratch}/tokens.bin"
[train]
steps = 150
sequence = 128
global_batch = 8
[optim]
lr = 3e-3
[checkpoint]
every = 0
"""


def run(*words):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def documents(source):
    """Paragraphs of the manual, a document each: JSONL."""
    out = []
    for page in sorted((source / "docs").rglob("*.md")):
        out += [" ".join(part.split())[:200] for part in page.read_text().split("\n\n") if len(part) > 40]
    return "".join(json.dumps({"text": text}) + "\n" for text in out)


@torch.no_grad()
def main(build, scratch):
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    tool, source = build / "src/tools/cli/holdfast-tool", pathlib.Path(__file__).resolve().parents[2]
    (scratch / "text.jsonl").write_text(documents(source))
    (scratch / "model.toml").write_text(MODEL)
    (scratch / "job.toml").write_text(JOB.format(scratch=scratch))
    run(tool, "data", "prepare", "--input", scratch / "text.jsonl", "--output", scratch / "tokens.bin", "--train-vocabulary", "1000")
    run(build / "src/train/holdfast-train", scratch / "job.toml", "--run-dir", scratch / "run")
    folder = scratch / "exported"
    run(tool, "ckpt", "export", scratch / "run", folder)
    print("exported: " + " ".join(sorted(path.name for path in folder.iterdir())))

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    prompts = scratch / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": prompt}) + "\n" for prompt in PROMPTS))
    ended = 0
    for place in (scratch / "run", folder):
        lines = run(tool, "generate", place, "--json", "--max-tokens", NEW_TOKENS, "--file", prompts, "--batch", len(PROMPTS)).splitlines()
        for prompt, ours in zip(PROMPTS, map(json.loads, lines), strict=True):
            inputs = tokenizer(prompt, return_tensors="pt")
            tokens = inputs["input_ids"][0].tolist()
            assert ours["prompt_tokens"] == tokens, (prompt, ours["prompt_tokens"], tokens)
            assert tokenizer.decode(tokens, skip_special_tokens=True) == prompt, (prompt, tokenizer.decode(tokens))
            theirs = model.generate(**inputs, do_sample=False, max_new_tokens=NEW_TOKENS)[0, len(tokens):].tolist()
            assert ours["tokens"] == theirs, (prompt, ours["tokens"], theirs)
            assert (ours["stop"] == "end") == (theirs[-1] == tokenizer.eos_token_id)
            assert ours["text"] == tokenizer.decode(theirs, skip_special_tokens=True), (prompt, ours["text"])
            ended += ours["stop"] == "end"
    assert ended > 0, "the model never ends a text: this shows nothing of its end"
    print("RESULT " + json.dumps({"prompts": len(PROMPTS), "new_tokens": NEW_TOKENS, "ended": ended // 2, "vocabulary": len(tokenizer),
                                  "tokenizer": type(tokenizer).__name__, "transformers": transformers.__version__}))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: own_model.py BUILD SCRATCH")
    main(pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]))
