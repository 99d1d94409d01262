"""Folders with a tokenizer and what lies beside it (added tokens, special tokens, rules for the first space), read by
Holdfast and by transformers' AutoTokenizer: the ids of a few texts. Run by tokenizers.sh, with transformers 4.

    tokenizer_folders.py ENCODE FOLDER MODEL      ENCODE: text_encode; FOLDER: to make them in; MODEL: Llama 2's tokenizer.model
"""
import itertools
import json
import pathlib
import shutil
import struct
import subprocess
import sys

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoTokenizer

TEXTS = ["Hi", " a", "x<|im_start|>user\nq<|im_end|>\n<|im_start|>as", "<s>[INST] q [/INST] a </s><s>[INST]",
         "x <|im_start|> y", "a <|tool|> b", "line\n\n  two  spaces \u00e9 \u4e2d \U0001f600 \u2581u"]


def token(content, special, **more):
    return {"content": content, "lstrip": False, "rstrip": False, "single_word": False, "normalized": False,
            "special": special, **more}


def folder(root, name, model=None, **files):
    made = root / name
    made.mkdir()
    if model:
        shutil.copy(model, made / "tokenizer.model")
    for file, content in files.items():
        (made / (file + ".json")).write_text(json.dumps(content))
    return made


def llama(root, model):
    """tokenizer.model with added tokens in one file or two, by each rule for the first space."""
    names = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "<|im_end|>", "unk_token": "<unk>"}
    rules = {"none": {}, "legacy": {"legacy": True}, "first": {"legacy": False},
             "never": {"legacy": False, "add_prefix_space": False}}
    added = {"<|im_start|>": 32001, "<|im_end|>": 32000}
    decoder = {"0": token("<unk>", True), "1": token("<s>", True), "2": token("</s>", True),
               "32000": token("<|im_end|>", True), "32001": token("<|im_start|>", False)}
    for rule, how in itertools.product(rules, ("decoder", "both")):
        beside = {"added_tokens": added} if how == "both" else {}
        made = folder(root, f"llama_{rule}_{how}", model, **beside,
                      tokenizer_config={**names, **rules[rule], "added_tokens_decoder": decoder})
        saved = root / f"llama_{rule}_{how}_saved"  # with a tokenizer.json beside it
        shutil.copytree(made, saved)
        AutoTokenizer.from_pretrained(made).save_pretrained(saved)
    # Without "legacy": false, transformers 4 does not find the tokens of this file, because its normaliser rewrites them.
    folder(root, "llama_first_added", model, added_tokens=added, tokenizer_config={**names, "legacy": False})


def bytes_folder(root):
    """A byte-level tokenizer.json, and tokens that only other files declare."""
    pieces = {piece: i for i, piece in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    plain = Tokenizer(models.BPE(pieces, []))
    plain.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    plain.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    text, size = json.loads(plain.to_str()), plain.get_vocab_size()
    config = {"tokenizer_class": "PreTrainedTokenizerFast"}
    for name, files in {
            "plain": {}, "added": {"added_tokens": {"<|tool|>": size}},
            "map": {"special_tokens_map": {"additional_special_tokens": ["<|tool|>"]}},
            "decoder": {"tokenizer_config": {**config, "added_tokens_decoder": {str(size): token("<|tool|>", True)}}},
            "named": {"tokenizer_config": {**config, "eos_token": "<|tool|>"}}}.items():
        folder(root, "bytes_" + name, tokenizer=text, **{"tokenizer_config": config, **files})


def main(encode, root, model):
    root = pathlib.Path(root)
    root.mkdir()
    llama(root, model)
    bytes_folder(root)
    wrong = 0
    for made in sorted(root.iterdir()):
        theirs = AutoTokenizer.from_pretrained(made)
        for text in TEXTS:
            file = root.parent / "folder_text"
            file.write_text(text)
            out = subprocess.run([encode, made, file, "parsed"], check=True, capture_output=True).stdout
            ids = [number for number, in struct.iter_unpack("<i", out)]
            expected = theirs(text, add_special_tokens=False)["input_ids"]
            if ids != expected:
                wrong += 1
                print(f"{made.name}: {text!r}: {ids}, transformers has {expected}")
        print(f"{made.name:28} {len(theirs):6} tokens")
    return f"{wrong} texts differ" if wrong else 0


sys.exit(main(*sys.argv[1:]))
