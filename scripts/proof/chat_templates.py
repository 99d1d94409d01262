#!/usr/bin/env python3
"""Chat templates and answers beside transformers: what chat_templates.sh runs."""
import json
import pathlib
import subprocess
import sys
import tempfile
from datetime import datetime

import jinja2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

render_program, golden = sys.argv[1], pathlib.Path(sys.argv[2])
update = "--update" in sys.argv[3:]
variables = {"d": {"x": 1, "y": "z"}, "e": {"items": [1], "n": None, "é": "ü"}, "l": [1, "b", 2.5], "s": "héllo wörld",
             "people": [{"name": "Al", "age": 40, "more": {"x": 1}}, {"name": "Bo", "age": 0}, {"name": "Cy", "age": 25}]}


class FixedDay(datetime):
    """The day that a rendering of ours has when nobody says another."""

    @classmethod
    def now(cls, tz=None):
        return cls(2024, 7, 26)


chat_template_utils.datetime = FixedDay


def byte_tokenizer(template, specials):
    """One token for each byte, and the special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    words = set(specials.values()) | {"<|im_start|>", "<|im_end|>"}
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in sorted(words)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template, **specials)


def theirs(template, specials, messages, prompt, extra):
    """Their text; or None, where they refuse."""
    try:
        tokenizer = byte_tokenizer(template, specials)
        return tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt, **extra)
    except (jinja2.exceptions.TemplateError, TypeError, ValueError, OverflowError, ZeroDivisionError, AttributeError,
            SyntaxError):
        return None


class Ours:
    def __init__(self):
        self.process = subprocess.Popen([render_program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, template, specials, messages, prompt, extra, **more):
        line = {"template": template, "specials": specials, "messages": messages, "generation_prompt": prompt,
                "extra": extra, **more}
        self.process.stdin.write(json.dumps(line) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


def mask_of(template, specials, messages):
    """transformers' mask of the assistant's tokens, for each byte of the text."""
    tokenizer = byte_tokenizer(template, specials)
    out = tokenizer.apply_chat_template(messages, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
    mask = []
    for token, learned in zip(out["input_ids"], out["assistant_masks"]):
        mask += [learned] * len(tokenizer.decode([token]).encode() if token >= 256 else b"x")
    return mask


def trained_tokenizer():
    """A tokenizer in the manner of Llama 3, of the text of this table."""
    tokenizer = Tokenizer(models.BPE())
    words = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
             r"|\s+(?!\S)|\s+")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(words), behavior="isolated", invert=False),
         pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=600, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  special_tokens=["<|im_start|>", "<|im_end|>", "</s>", "<s>"], show_progress=False)
    tokenizer.train_from_iterator([(golden / "conversations.json").read_text()], trainer)
    return tokenizer


def compare_tokens(ours, table):
    """Tokens of whole conversations, and which are learned, where transformers can tell. What looks special in a
    message is a token to them, and text to us: those conversations are left out."""
    tokenizer, compared, wrong = trained_tokenizer(), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(f"{folder}/tokenizer.json")
        for name in ("marked", "chatml", "qwen25", "mistral", "vicuna"):
            template, specials = (golden / f"{name}.jinja").read_text(), table["specials"][name]
            theirs_now = PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template, **specials)
            for conversation in table["conversations"]:
                messages, extra = conversation["messages"], conversation.get("extra", {})
                if conversation["name"] == "what looks special" or messages[-1]["role"] != "assistant":
                    continue
                if theirs(template, specials, messages, False, extra) is None:
                    continue
                out = theirs_now.apply_chat_template(messages, tokenize=True, return_dict=True,
                                                     return_assistant_tokens_mask=name == "marked", **extra)
                got = ours(template, specials, messages, False, extra, tokenizer=folder)
                same = got.get("tokens") == list(out["input_ids"])
                if name == "marked":
                    same &= got.get("learned") == [bool(mark) for mark in out["assistant_masks"]]
                compared, wrong = compared + 1, wrong + (not same)
                if not same:
                    print(f"DIFFERENT TOKENS: {name}, {conversation['name']}\n  theirs: {out}\n  ours:   {got}")
    print(f"{compared} conversations as tokens compared, {wrong} different")
    return wrong


def main():
    table = json.loads((golden / "conversations.json").read_text())
    messages = [{"role": "user", "content": " Hi "}, {"role": "assistant", "content": "yes"}]
    cases = []
    for name, specials in table["specials"].items():
        template = (golden / f"{name}.jinja").read_text()
        for conversation in table["conversations"]:
            for prompt in (False, True):
                what = f"{name}, {conversation['name']}" + (", prompt" if prompt else "")
                cases.append((what, template, specials, conversation["messages"], prompt, conversation.get("extra", {})))
    for source in json.loads((golden / "expressions.json").read_text()):
        cases.append((source, source, {"bos_token": "<s>"}, messages, False, variables))

    ours, wrong, refused, lines = Ours(), 0, 0, []
    for what, template, specials, conversation, prompt, extra in cases:
        expected = theirs(template, specials, conversation, prompt, extra)
        got = ours(template, specials, conversation, prompt, extra)
        refused += expected is None
        lines.append(json.dumps({"case": what, "text": expected}, ensure_ascii=False))
        if got.get("text") != expected:
            wrong += 1
            print(f"DIFFERENT: {what!r}\n  theirs: {expected!r}\n  ours:   {got!r}")
    print(f"{len(cases)} renderings, {refused} of them refused by transformers, {wrong} different")

    masks = 0
    template = (golden / "marked.jinja").read_text()
    for conversation in table["conversations"]:
        extra = conversation.get("extra", {})
        if extra or theirs(template, table["specials"]["marked"], conversation["messages"], False, {}) is None:
            continue
        got = ours(template, table["specials"]["marked"], conversation["messages"], False, {})
        learned = [0] * len(got["text"].encode())
        for first, end in got["answers"]:
            learned[first:end] = [1] * (end - first)
        masks += 1
        if learned != mask_of(template, table["specials"]["marked"], conversation["messages"]):
            wrong += 1
            print(f"DIFFERENT MASK: {conversation['name']}")
    print(f"{masks} masks of the assistant's tokens compared")

    wrong += compare_tokens(ours, table)
    stored = golden / "expected.jsonl"
    if update:
        stored.write_text("\n".join(lines) + "\n")
    elif stored.read_text() != "\n".join(lines) + "\n":
        wrong += 1
        print(f"{stored} is not what transformers says today: run with --update")
    sys.exit(1 if wrong else 0)


main()
