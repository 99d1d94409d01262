#!/usr/bin/env python3
"""What docs/manual/automation.md says of the verbs is so: it has every verb, says rightly which have --json,
and every field that they print without a cluster stands on it, or in docs/run-directory.md to which it refers.
automation_test.py HOLDFAST"""
import json
import os
import re
import subprocess
import sys
import tempfile

HOLDFAST = os.path.abspath(sys.argv[1])
os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
PAGE = open("docs/manual/automation.md").read()
RUN_DIRECTORY = open("docs/run-directory.md").read()
FAILED = []


def check(good, what):
    if not good:
        FAILED.append(what)


def holdfast(*words):
    done = subprocess.run([HOLDFAST, *words], capture_output=True, text=True, timeout=60,
                          env={**os.environ, "NO_COLOR": "1"})
    return done.stdout, done.stderr


def verbs_in(help_text, title):
    """The names in the list of verbs of a help text."""
    out = []
    for line in help_text.partition(f"\n{title}:\n")[2].split("\n"):
        if not line.strip():
            break
        if (name := re.match(r"  ([a-z]+) ", line)):
            out.append(name[1])
    return out


def row_of(verb, of=""):
    """The row of the table of verbs: `verb ...`, or `of verb ...` or `verb` behind `of`."""
    for row in PAGE.partition("\n## Verbs\n")[2].partition("\n## ")[0].split("\n"):
        cell = row.split("|")[1] if row.startswith("| `") else ""
        if of and cell.startswith(f" `{of} ") and re.search(rf"`({of} )?{verb}[ `\[]", cell):
            return row
        if not of and re.search(rf"`{verb}[ `]", cell):
            return row
    return ""


def check_verb(verb, of=""):
    row, name = row_of(verb, of), f"{of} {verb}".strip()
    check(row, f"the page has no row for 'holdfast {name}'")
    if row:
        told = "[yes](" in row or "[a line each]" in row
        asked = {"ctl": "ctl RUN save"}.get(name, name).split()
        has = name == "events" or "--json" in holdfast(*asked, "--help")[0]  # which prints nothing else
        check(told == has, f"the page is wrong: 'holdfast {name}' has {'a' if has else 'no'} --json")


def fields_of(value):
    """The names of all fields, at any depth."""
    if isinstance(value, list):
        return set().union(*map(fields_of, value)) if value else set()
    if not isinstance(value, dict):
        return set()
    return set(value).union(*map(fields_of, value.values()))


def check_fields(text, *words):
    out, err = holdfast(*words)
    check(out.startswith("{"), f"'holdfast {' '.join(words)}' prints no JSON: {err}")
    for field in sorted(fields_of(json.loads(out))) if out.startswith("{") else []:
        check(re.search(rf"[`.]{field}[`.]", text), f"no page has the field '{field}' of {words[0]} --json")


verbs = verbs_in(holdfast("--help")[0], "Verbs")
check(len(verbs) > 10, "there are no verbs in the help text")
has_tool = "Usage" in holdfast("ckpt", "--help")[0]  # a build may have none
for verb in verbs:
    if verb in ("ckpt", "data", "generate", "eval") and not has_tool:
        continue
    parts = [] if verb == "ctl" else verbs_in(holdfast(verb, "--help")[0], "Subcommands")
    for part in parts:
        check_verb(part, verb)
    if not parts:
        check_verb(verb)

EVENTS = [{"event": "leader_elected", "node": "n1", "job": "1.0", "after": {"term": 0, "seq": 0}},
          {"event": "attempt_planned", "attempt": 1, "placement": ["n1"], "answer": "", "because": ""},
          {"event": "restored", "attempt": 1, "step": 0, "level": "fresh", "digest": "0" * 16}]
with tempfile.TemporaryDirectory() as run:
    with open("configs/jobs/quickstart.toml") as job, open(f"{run}/config.toml", "w") as copy:
        copy.write(job.read())
    os.mkdir(f"{run}/events")
    with open(f"{run}/events/0001.jsonl", "w") as log:
        for seq, event in enumerate(EVENTS, 1):
            line = {**event, "schema_version": 1, "term": 1, "seq": seq, "unix": 1.0 * seq}
            log.write(json.dumps(line) + "\n")
    check_fields(PAGE + RUN_DIRECTORY, "status", run, "--json")
    check_fields(PAGE, "ls", run, "--json")
check_fields(PAGE, "doctor", "--fast", "--json")
check_fields(PAGE, "config", "keys", "train.lanes", "--json")
check_fields(PAGE, "drill", "--list", "--json")
check_fields(RUN_DIRECTORY, "plan", "quickstart", "--set", "data.tokens=tokens.bin", "--json")

print("\n".join(FAILED) or f"{len(verbs)} verbs and their fields are on the page")
sys.exit(bool(FAILED))
