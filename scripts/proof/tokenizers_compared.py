"""Holdfast's tokenizers beside Hugging Face `tokenizers` and `sentencepiece`. Run by tokenizers.sh.

    tokenizers_compared.py text FILE MEGABYTES          a mixed text
    tokenizers_compared.py prose FILE MEGABYTES         what people and programs write: sources, documents, locales
    tokenizers_compared.py train FOLDER FILE            tokenizers in the manner of published ones, trained on it
    tokenizers_compared.py compare ENCODE FOLDER FILE   ids of every tokenizer in FOLDER (and *.model), ours and theirs
    tokenizers_compared.py speed ENCODE FOLDER FILE     MB/s on one core, ours and theirs
    tokenizers_compared.py golden FOLDER                the small tokenizers, texts and ids of tests/tools/text/golden
    tokenizers_compared.py categories                   src/tools/text/unicode_categories.inc
"""
import glob
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import numpy
import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN = LLAMA3.replace("{1,3}", "")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + CONTRACTIONS + "?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTIONS + "?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def byte_level(**how):
    return pre_tokenizers.ByteLevel(**{"add_prefix_space": False, "use_regex": False, **how})


# name: (normalizer, pre-tokenizer, ignore_merges, special tokens, added tokens that are not special)
KINDS = {
    "llama3": (None, pre_tokenizers.Sequence([split(LLAMA3), byte_level()]), True,
               ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"], []),
    "qwen": (normalizers.NFC(), pre_tokenizers.Sequence([split(QWEN), byte_level()]), False,
             ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], ["<tool_call>", "</tool_call>"]),
    "gpt2": (None, byte_level(use_regex=True), False, ["<|endoftext|>"], []),
    "gpt2_prefix": (None, byte_level(use_regex=True, add_prefix_space=True), False, ["<|endoftext|>"], []),
    "deepseek": (None, pre_tokenizers.Sequence([split(r"\p{N}{1,3}"), split("[一-龥\u3040-ゟ゠-ヿ]+"), split(DEEPSEEK), byte_level()]),
                 False, ["<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"], ["<think>", "</think>"]),
    "o200k": (None, pre_tokenizers.Sequence([split(O200K), byte_level()]), True, ["<s>", "</s>", "[INST]"], []),
    "starcoder": (None, pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), byte_level(use_regex=True)]),
                  False, ["<|endoftext|>", "<fim_prefix>"], []),
}
SMALL = ["llama3", "qwen", "gpt2"]
POOL = (
    [" ", "  ", "    ", "\t", "\n", "\r\n", "\n\n", " \n ", "\u00a0", "\u2003", "\u3000", "\u0085", "\u180e", "\u200b", "\u2028", "\x0b", "\x1c"]
    + ["'s", "'S", "'ſ", "’s", "'ll", "'LL", "'re", "'Ve", "don't", "'"]
    + ["0", "12", "345", "6789", "1234567", "٣٤", "½", "Ⅷ", "一", "²"]
    + ["the", "The", "HTTPServer", "naïve", "cafe\u0301", "e\u0323\u0302", "\u0302\u0323e", "ﬁ", "Å", "\u212b", "\u1e9b\u0323", "ſ", "ß", "K"]
    + ["한국어", "\u1112\u1161\u11ab", "日本語", "ひらがな", "カタカナ", "中文字符", "\uf900", "שלום", "مرحبا", "हिन्दी", "ไทย", "\u0958", "\u09c7\u09be"]
    + ["😀", "👩\u200d👩\u200d👧", "🇩🇪", "👍🏽", "\u0378", "\ue000", "\U000e0001", "\x00", "\x07", "\x7f", "\ufeff", "\ufffd", "\u0897", "\U00011938", "\U00011935\U00011930"]
    + ["{", "}", "();", "//", "->", "==", "...", "!!!", "#include", "<", "<|", "|>", "_", "$", "€", "\\n", "a_b", "--"]
)


def written(wanted):
    """About `wanted` bytes of what a Debian machine has, every kind in the same measure."""
    patterns = ("/usr/share/i18n/locales/*", "/usr/include/**/*.h", "/usr/lib/python3*/**/*.py", "/usr/include/c++/**/*",
                "/usr/share/doc/**/copyright", "/usr/share/perl/**/*.p[lm]")
    parts = []
    for pattern in patterns:
        size = 0
        for path in sorted(glob.glob(pattern, recursive=True)):
            if size < wanted // len(patterns) and os.path.isfile(path):
                parts.append(pathlib.Path(path).read_bytes()[: 1 << 18].decode("utf-8", "replace"))
                size += len(parts[-1].encode())
    return "".join(parts)


def mixed(megabytes, specials):
    rng = random.Random(7)
    parts, size = [], 0

    def add(text):
        nonlocal size
        parts.append(text)
        size += len(text.encode())

    wanted = int(megabytes * 1e6)
    planes = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    if megabytes < 5:
        planes = rng.sample(planes, int(megabytes * 20000))
    for i, c in enumerate(planes):  # in every kind of company
        add((f"a{c}", f" {c}1", f"{c}{c}\n", f"é{c}\u0301", f"'{c}", f".{c} ")[i % 6])
    for c in (chr(c) for c in range(0x300)):
        add(f"x{c}y 1{c}2 {c}{c} \n{c}\n")
    for run in ("a", " ", "\n", "1", "é", "\u0301", "中", "=", " a", "\t \n"):
        add(run * min(50000, int(megabytes * 5000)) + "x")
    add(written(wanted // 2))
    wanted = max(wanted, size + wanted // 12)
    while size < wanted:
        add("".join(rng.choice(POOL) if rng.random() < 0.97 else rng.choice(specials) for _ in range(200)))
    return "".join(parts)


def all_specials():
    return [token for kind in KINDS.values() for token in kind[3] + kind[4]]


def trained(name, pieces, text):
    normalizer, pre_tokenizer, ignore_merges, special, added = KINDS[name]
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=pieces, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    chunks = [text[i:i + 20000] for i in range(0, len(text), 20000)]
    tokenizer.train_from_iterator(chunks, trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in special])
    tokenizer.add_tokens([AddedToken(token, special=False, normalized=name == "deepseek") for token in added])
    return tokenizer


def write(tokenizer, folder, name):
    path = pathlib.Path(folder) / name
    path.mkdir(parents=True, exist_ok=True)
    document = json.loads(tokenizer.to_str())
    if name == "gpt2":  # older files have merges as one string
        document["model"]["merges"] = [" ".join(pair) for pair in document["model"]["merges"]]
    (path / "tokenizer.json").write_text(json.dumps(document, ensure_ascii=False), encoding="utf-8")
    return path / "tokenizer.json"


def train(folder, file):
    text = pathlib.Path(file).read_bytes().decode()
    sample = "".join(text[i:i + 20000] for i in range(0, len(text), 60000))
    for name in KINDS:
        write(trained(name, 16000, sample), folder, name)
        print(f"trained {name}", flush=True)
    import sentencepiece

    with tempfile.TemporaryDirectory() as aside:
        lines = pathlib.Path(aside) / "lines"
        lines.write_bytes("\n".join(line for line in sample.replace("\x00", "").split("\n")
                                    if len(line) < 1000 and len(line.encode()) < 1.2 * len(line)).encode())
        plain = {"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False,
                 "allow_whitespace_only_pieces": True}
        kinds = {"bpe": {**plain, "user_defined_symbols": ["<mask>", "中文", "=="]}, "spaced": {**plain, "user_defined_symbols": ["  two"]},
                 "nmt": {"normalization_rule_name": "nmt_nfkc"}}
        for name, how in kinds.items():
            sentencepiece.SentencePieceTrainer.train(
                input=str(lines), model_prefix=str(pathlib.Path(folder) / name), model_type="bpe", vocab_size=8000,
                character_coverage=0.98, num_threads=1, minloglevel=2, **how)
            print(f"trained {name}.model", flush=True)


def ours(encode, tokenizer, file, how):
    output = subprocess.run([encode, tokenizer, file, how], check=True, stdout=subprocess.PIPE).stdout
    return output if how == "decode" else numpy.frombuffer(output, dtype="<i4")


def same(what, left, right, show):
    if len(left) == len(right) and (left == right).all():
        print(f"{what}: {len(left)} ids, equal", flush=True)
        return True
    n = min(len(left), len(right))
    different = numpy.nonzero(left[:n] != right[:n])[0]
    at = int(different[0]) if len(different) else n
    print(f"{what}: {len(left)} ids here, {len(right)} there, different from id {at}: "
          f"{[show(int(i)) for i in left[max(0, at - 3):at + 5]]} {[show(int(i)) for i in right[max(0, at - 3):at + 5]]}")
    return False


def decodes(encode, tokenizer, ids, expected):
    with tempfile.NamedTemporaryFile() as file:
        file.write(ids.astype("<i4").tobytes())
        file.flush()
        good = ours(encode, str(tokenizer), file.name, "decode") == expected
    print(f"{tokenizer}: decoding gives {'the text back' if good else 'ANOTHER TEXT'}", flush=True)
    return good


def compare(encode, folder, file):
    text = pathlib.Path(file).read_bytes().decode()
    good = True
    for path in sorted(pathlib.Path(folder).glob("*/tokenizer.json")):
        theirs = Tokenizer.from_file(str(path))
        for how in ("as-text", "parsed"):
            theirs.encode_special_tokens = how == "as-text"
            expected = numpy.array(theirs.encode(text, add_special_tokens=False).ids, dtype="<i4")
            mine = ours(encode, str(path), file, how)
            good &= same(f"{path.parent.name} {how}", mine, expected, theirs.id_to_token)
        wanted = theirs.normalizer.normalize_str(text) if theirs.normalizer else text
        if path.parent.name != "gpt2_prefix":  # whose spaces are tokens like others
            good &= decodes(encode, path, ours(encode, str(path), file, "as-text"), wanted.encode())
    import sentencepiece

    for path in sorted(pathlib.Path(folder).glob("*.model")):
        theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
        mine = ours(encode, str(path), file, "as-text")
        good &= same(path.name, mine, numpy.array(theirs.encode(text), dtype="<i4"), theirs.id_to_piece)
        if path.name != "nmt.model":
            good &= decodes(encode, path, mine, text.replace("\u2581", " ").encode())  # which stands for a space there
    print("all equal" if good else "DIFFERENT")
    return 0 if good else 1


def speed(encode, folder, file):
    text = pathlib.Path(file).read_bytes().decode()
    documents = [text[i:i + 10000] for i in range(0, len(text), 10000)]
    size = len(text.encode())
    result = {"tokenizers": tokenizers.__version__, "text_bytes": size, "MB_per_s": {}}
    for path in sorted(pathlib.Path(folder).glob("*/tokenizer.json")) + sorted(pathlib.Path(folder).glob("*.model")):
        name = path.parent.name if path.suffix == ".json" else path.name
        if path.suffix == ".json":
            tokenizer = Tokenizer.from_file(str(path))
            encode_all = lambda: tokenizer.encode_batch_fast(documents, add_special_tokens=False)
        else:
            import sentencepiece

            processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
            encode_all = lambda: processor.encode(documents, num_threads=1)
        theirs = mine = 0.0
        for _ in range(3):  # in turns; the best of each
            begin = time.perf_counter()
            encode_all()
            theirs = max(theirs, size / 1e6 / (time.perf_counter() - begin))
            mine = max(mine, float(subprocess.run([encode, path, file, "time", "10000"], check=True, stdout=subprocess.PIPE).stdout))
        print(f"{name:14} {mine:8.1f} MB/s here, {theirs:8.1f} there: {mine / theirs:.1f} times", flush=True)
        result["MB_per_s"][name] = {"ours": round(mine, 1), "theirs": round(theirs, 2)}
    print("RESULT " + json.dumps(result))
    return 0


def golden(folder):
    text = mixed(0.4, all_specials())
    sources = "".join(pathlib.Path(path).read_text() for path in sorted(glob.glob("src/base/*.?pp")))
    for name in SMALL:
        tokenizer = trained(name, 600, sources)
        path = write(tokenizer, folder, name)
        rng = random.Random(name)
        begins = [rng.randrange(len(text) - 200) for _ in range(12)]
        sample = "".join(text[i:i + 100] for i in begins) + sources[:1500]
        sample += "".join(rng.choice(POOL + all_specials()) for _ in range(600))
        (path.parent / "text").write_bytes(sample.encode())
        for how in ("as_text", "parsed"):
            tokenizer.encode_special_tokens = how == "as_text"
            ids = tokenizer.encode(sample, add_special_tokens=False).ids
            lines = [" ".join(map(str, ids[i:i + 24])) for i in range(0, len(ids), 24)]
            (path.parent / how).write_text("\n".join(lines) + "\n")
    return 0


def categories():
    names = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co Cs Cn".split()
    every = "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000)
    category = {}
    for name in names:
        if name != "Cs":
            kept = normalizers.Replace(Regex(rf"[^\p{{{name}}}]"), "").normalize_str(every)
            category.update(dict.fromkeys(map(ord, kept), names.index(name)))
    line, before = "", None
    for c in range(0x110000):
        now = category.get(c, names.index("Cs"))
        if now != before:
            word = f"{c << 5 | now:#x}, "
            if len(line + word) > 109:
                print(line.rstrip())
                line = ""
            line += word
        before = now
    print(line.rstrip())
    return 0


def main(verb, *words):
    if verb == "text":
        pathlib.Path(words[0]).write_bytes(mixed(float(words[1]), all_specials()).encode())
        return 0
    if verb == "prose":
        pathlib.Path(words[0]).write_bytes(written(int(float(words[1]) * 1e6)).encode())
        return 0
    return {"train": train, "compare": compare, "speed": speed, "golden": golden, "categories": categories}[verb](*words) or 0


sys.exit(main(*sys.argv[1:]))
