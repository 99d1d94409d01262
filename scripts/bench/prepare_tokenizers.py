"""Half of prepare.sh: makes a corpus and a tokenizer, and measures both programs.

    prepare_tokenizers.py make TEXT LINES.jsonl TOKENIZER.json
    prepare_tokenizers.py speed TOOL LINES.jsonl TOKENIZER.json
"""
import json
import os
import subprocess
import sys

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

# The pre-tokenizer of Llama 3.
LLAMA_3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
           r"|\s+(?!\S)|\s+")
VOCABULARY = 16000
DOCUMENT = 4000  # characters
BATCH = 1000
ROUNDS = 3


def make(text_path, lines_path, tokenizer_path):
    with open(text_path, encoding="utf-8", errors="replace", newline="") as file:
        text = file.read()
    documents = [text[at:at + DOCUMENT] for at in range(0, len(text), DOCUMENT)]
    with open(lines_path, "w", encoding="utf-8") as file:
        for number, document in enumerate(documents):
            file.write(json.dumps({"id": number, "text": document, "meta": {"source": "prose"}},
                                  ensure_ascii=False) + "\n")
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA_3), behavior="isolated", invert=False),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(documents[::4], trainers.BpeTrainer(
        vocab_size=VOCABULARY, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<|begin_of_text|>", "<|end_of_text|>"]))
    tokenizer.save(tokenizer_path)


def theirs(lines_path, tokenizer):
    """Tokens, counted; each line is parsed, and batches are encoded."""
    tokens, batch = 0, []

    def flush():
        nonlocal tokens
        tokens += sum(len(one.ids) for one in tokenizer.encode_batch_fast(batch, add_special_tokens=False))
        batch.clear()

    with open(lines_path, encoding="utf-8") as file:
        for line in file:
            batch.append(json.loads(line)["text"])
            if len(batch) == BATCH:
                flush()
    flush()
    return tokens


def ours(tool, lines_path, tokenizer_path):
    output = lines_path + ".bin"
    subprocess.run([tool, "data", "prepare", "--input", lines_path, "--output", output, "--tokenizer", tokenizer_path,
                    "--workers", "1"], check=True, stdout=subprocess.DEVNULL)
    with open(output + ".card.json", encoding="utf-8") as file:
        card = json.load(file)
    return card["output"]["tokens"] - 2 * card["output"]["documents"]  # <|begin_of_text|> and <|end_of_text|>


def processor_seconds():
    """Of this process and of those that it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def speed(tool, lines_path, tokenizer_path):
    tokenizer = Tokenizer.from_file(tokenizer_path)
    megabytes = os.path.getsize(lines_path) / 1e6
    best = {"ours": 0.0, "theirs": 0.0}  # MB per second of processor time: others may use the core as well
    counts = {}
    for _ in range(ROUNDS):
        for name, work in (("ours", lambda: ours(tool, lines_path, tokenizer_path)),
                           ("theirs", lambda: theirs(lines_path, tokenizer))):
            begin = processor_seconds()
            counts[name] = work()
            best[name] = max(best[name], megabytes / (processor_seconds() - begin))
    if counts["ours"] != counts["theirs"]:
        sys.exit(f"the tokens differ: {counts}")
    for name, rate in best.items():
        print(f"         {name:8} {rate:7.1f} MB/s")
    print("RESULT", json.dumps({"benchmark": "data prepare", "mb": round(megabytes, 1), "tokens": counts["ours"],
                                "ours_mb_s": round(best["ours"], 1), "tokenizers_mb_s": round(best["theirs"], 1),
                                "ratio": round(best["ours"] / best["theirs"], 2),
                                "tokenizers": tokenizers.__version__}))


if __name__ == "__main__":
    {"make": make, "speed": speed}[sys.argv[1]](*sys.argv[2:])
