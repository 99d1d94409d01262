#!/usr/bin/env python3
"""What the verbs answer to mistakes: mistakes.txt has them as a table, each with its command, the answer and the exit
code. HOLDFAST_UPDATE_GOLDEN=1 writes the answers anew; a mistake is added as "# what is wrong" and "$ command".

Every answer must be of this form, whatever it says:
  one line an error on standard error, nothing on standard output:    holdfast: PROBLEM (CAUSE). NEXT
  - a cause: in parentheses, or PROBLEM itself says that something is not there, not known or not given
  - a place: a word of the command, an option that is missing, or SLURM
  - what to do next: NEXT is a question, has a command in quotes or the name of what is meant ("is here"), or begins
    with what to do
  - an exit code of docs/manual/automation.md, and not 0
All verbs must occur.                                                  mistakes_test.py HOLDFAST"""
import difflib
import os
import re
import shutil
import subprocess
import sys
import tempfile

HOLDFAST = os.path.abspath(sys.argv[1])
ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../.."))
TABLE = os.path.join(ROOT, "tests/launcher/cli/mistakes.txt")
ABSENCE = re.compile(r"\b(there (is|are) no|no |unknown|is not |are not |has no |was given|is required|does not|cannot|"
                     r"only |nothing|already|needs|must|excludes|requires|takes no)")
IMPERATIVE = re.compile(r"^(Add|Ask|Begin|Choose|Correct|Give|Install|Leave|Log|Make|Name|Prepare|Put|Read|Resume|Run|Say|"
                        r"Set|Start|Try|Unset|Use|Wait|Write)\b")
FAILED = []


def check(good, what):
    if not good:
        FAILED.append(what)


class Place:
    """A folder with the files that the commands name, and SLURM's tools as tests/slurm/fake_bin plays them."""

    def __init__(self, folder):
        self.folder = os.path.realpath(folder)
        self.bare = os.path.join(self.folder, "bare")
        os.mkdir(self.bare)
        os.symlink(HOLDFAST, os.path.join(self.bare, "holdfast"))
        self.fake = os.path.join(self.folder, "fake")
        os.mkdir(self.fake)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HOLDFAST_", "SLURM_", "SBATCH_"))}
        self.environment = {**kept, "NO_COLOR": "1", "LC_ALL": "C", "COLUMNS": "80", "FAKE_SLURM": self.fake,
                            "BARE": self.bare, "SOURCE": ROOT,
                            "PATH": f"{self.bare}:{ROOT}/tests/slurm/fake_bin:/usr/bin:/bin"}
        self.answer("sinfo", "slurm 22.05.8\n")
        self.answer("sbatch", "1\n")
        self.answer("squeue", "1|PENDING|None||n/a|N/A|a\n")
        self.answer("srun", "Usage: srun [OPTIONS(0)...]\n")
        self.write("text.jsonl", '{"text": "a"}\n' * 900)
        for name, vocabulary in (("tokens.bin", 256), ("large.bin", 5000)):
            self.write("raw.u16", b"\1\0" * 4096)
            self.run(f"holdfast data prepare --input raw.u16 --format u16 --vocabulary {vocabulary} --output {name}")
        self.write("job.toml", '[cluster]\nfile = "minipod"\nnodes = 2\nspares = 1\nranks_per_node = 2\n'
                   '[model]\nfile = "tiny"\n[data]\ntokens = "tokens.bin"\n'
                   '[train]\nsequence = 128\nglobal_batch = 16\nmicro_batch = 2\n')
        self.write("broken.toml", "[train\nsteps = 1\n")
        self.write("type.toml", '[train]\nsteps = "100"\n')
        self.write("table.toml", "[trian]\nsteps = 1\n")
        self.write("foreign.toml", "[train]\nsteps = 1\nlearning_rate = 1e-4\n")
        with open(f"{ROOT}/configs/models/tiny.toml") as tiny:
            self.write("other.toml", re.sub(r"layers = \d+", "layers = 3", tiny.read()))
        self.write("train.sh", "#!/bin/sh\n")
        self.write("thesis/thesis.tex", "precious\n")
        os.mkdir(os.path.join(self.folder, "empty"))
        self.run("holdfast submit job.toml --set run.dir=runs/a")  # a run whose job 1 is gone
        for name in ("whole", "cut"):
            shutil.copytree(f"{ROOT}/tests/checkpoint/golden/version-5", f"{self.folder}/{name}")
        os.truncate(f"{self.folder}/cut/shard-00000.h5", 100)

        # Other clusters: one without a controller, one that refuses jobs, one where job 17 is a run and 18 is not.
        for name in ("down", "refuses", "jobs"):
            shutil.copytree(self.fake, f"{self.folder}/{name}")
            self.environment[name.upper()] = f"{self.folder}/{name}"
        self.answer("squeue", "", "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n", 1,
                    "down")
        self.answer("sbatch", "", "sbatch: error: Batch job submission failed: Invalid partition name specified\n", 1,
                    "refuses")
        self.answer("squeue", f"17|PENDING|{self.folder}/runs/a/job.sbatch\n18|RUNNING|/home/me/other.sh\n", "", 0,
                    "jobs")

    def answer(self, tool, out, err="", status=0, of="fake"):
        for kind, text in (("out", out), ("err", err), ("rc", str(status))):
            with open(f"{self.folder}/{of}/{tool}.{kind}", "w") as file:
                file.write(text)

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(text if isinstance(text, bytes) else text.encode())

    def run(self, command):
        return subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment, text=True,
                              capture_output=True, timeout=60, stdin=subprocess.DEVNULL)

    def shown(self, text):
        """Without what differs from machine to machine."""
        text = text.replace(self.folder, "$HERE").replace(ROOT, "$SOURCE").replace(os.path.dirname(HOLDFAST), "$BIN")
        text = re.sub(r"/tmp/holdfast-mistakes-\w+", "$HERE", text)
        text = re.sub(r"^warning: .* which nodes usually have each for itself\n", "", text, flags=re.M)  # of /tmp
        text = re.sub(r"has [\d.]+ [KMGT]?i?B free", "has SIZE free", text)
        return re.sub(r"it is not in PATH \([^)]*\)", "it is not in PATH ($PATH)", text)


def read_table(text):
    """[(mistake, command, answer)], and the comments before the first."""
    head, *blocks = re.split(r"^# ", text, flags=re.M)
    rows = []
    for block in blocks:
        lines = block.rstrip("\n").split("\n")
        rows.append((lines[0], lines[1].removeprefix("$ "), "\n".join(lines[2:])))
    return head, rows


def words_of(command):
    """What was typed, without the verbs."""
    typed = re.sub(r"\bholdfast +\w+ ?", "", command)
    return {os.path.basename(word) for word in re.split(r"[\s='\"\[\],:;|]+", typed) if len(word) >= 2}


def check_form(mistake, command, done):
    def wrong(what):
        check(False, f"{mistake}: {what}\n  $ {command}\n  {done.stdout}{done.stderr}")

    if done.returncode not in CODES:
        wrong(f"exit code {done.returncode} is not one for errors in automation.md")
    if done.stdout:
        wrong("an error says something on standard output")
    lines = [line for line in done.stderr.rstrip("\n").split("\n") if not line.startswith("warning: ")]
    for line in lines:
        parts = re.match(r"holdfast: (?P<problem>[^(]*[^( ])( \((?P<cause>.+)\))?\. (?P<next>.+)$", line)
        if not parts:
            wrong("it is not of the form 'holdfast: PROBLEM (CAUSE). NEXT'")
            continue
        if not parts["cause"] and not ABSENCE.search(parts["problem"]):
            wrong("it has no cause")
        if not re.search(r"\?$|'[a-z]+( [^']+)?'|`holdfast [^`]+`| is here ", line) and not IMPERATIVE.match(parts["next"]):
            wrong("it does not say what to do next")
        if "internal error" in line:
            wrong("it is an internal error")
    words = words_of(command) | {"SLURM"}
    if len(words) > 1 and not any(word in done.stderr for word in words) and not re.search(r"--\w", done.stderr):
        wrong("it names nothing of what was typed")


def exit_codes():
    """Those that the manual gives to verbs."""
    with open(os.path.join(ROOT, "docs/manual/automation.md")) as page:
        table = page.read().partition("\n## Exit codes\n")[2].partition("\n## ")[0]
    return {int(code) for code in re.findall(r"^\| (\d+) \|", table, flags=re.M)} - {0}


def verbs_of(place, *verb):
    """`verb`, or its verbs, as its help text has them."""
    out = place.run(" ".join(["holdfast", *verb, "--help"])).stdout
    found = []
    for line in (out.partition("\nVerbs:\n")[2] or out.partition("\nSubcommands:\n")[2]).split("\n"):
        if not line.strip():
            break
        if (name := re.match(r"  ([a-z]+)\b", line)):
            found.append(name[1])
    return found


def check_verbs(place, rows):
    commands = [re.sub(r"^.*?\bholdfast ", "", command) for _, command, _ in rows]
    for verb in verbs_of(place):
        check(any(c.split()[0] == verb for c in commands if c.split()), f"no mistake is made with 'holdfast {verb}'")
        if verb in ("config", "ckpt", "data"):
            for part in verbs_of(place, verb):
                check(any(c.startswith(f"{verb} {part}") for c in commands),
                      f"no mistake is made with 'holdfast {verb} {part}'")
    check(len(verbs_of(place)) > 15, "the help text has no verbs")


CODES = exit_codes()
with open(TABLE) as file:
    before = file.read()
head, rows = read_table(before)
after = head
with tempfile.TemporaryDirectory(prefix="holdfast-mistakes-") as folder:
    place = Place(folder)
    check_verbs(place, rows)
    for mistake, command, _ in rows:
        done = place.run(command)
        check_form(mistake, command, done)
        answer = place.shown(done.stdout + done.stderr).rstrip("\n")
        after += f"# {mistake}\n$ {command}\n{answer}\n[{done.returncode}]\n\n"
after = after.rstrip("\n") + "\n"

if os.environ.get("HOLDFAST_UPDATE_GOLDEN"):
    with open(TABLE, "w") as file:
        file.write(after)
elif after != before:
    FAILED.append("".join(difflib.unified_diff(before.splitlines(True), after.splitlines(True), "mistakes.txt", "now"))
                  + "If this is meant, run scripts/golden_update.sh and read the difference")
print("\n".join(FAILED) or f"{len(rows)} mistakes are answered as they should be")
sys.exit(bool(FAILED))
