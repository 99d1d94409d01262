#!/usr/bin/env python3
"""Keep some kinds of noise and of risk out of the C++ sources, and fail where there is one.

A conversion to std::size_t is written as_size(x) (src/base/as_size.hpp), and only where a comparison, a product or a template
argument needs it: an index, and the argument of resize() or subspan(), converts by itself.
Assignments are statements of their own, never joined by commas.
A look at a path has three answers (src/base/files.hpp): exists(path) of the standard library, which throws what no user can
read, is for tests.
What a program keeps where every user can make names (/dev/shm, /tmp) is named by src/control/private_place.hpp, in which nobody
can foresee them.
Files are opened by files::open and what stands on it (src/base/files.hpp): it takes regular files alone, waits for nobody, and
writes through no link. MAY_OPEN names the files that open others by themselves, and why.
JSON is parsed in src/base/strict_json.hpp alone, which bounds how deep it nests.
Verbs print by std::cout and std::cerr, whose text is printable (src/base/printable.hpp).
"""
import pathlib
import re
import sys

CAST = "static_cast<std::size_t>("
LOOK = re.compile(r"(?<![\w.])(?:std::filesystem::|fs::)exists\((?!status\))")
NAMED = re.compile(r"\"/(?:dev/shm|tmp|var/tmp)/|\b(?:node_memory|temp_directory_path\(\))\)? /|\b(?:shm_open|tmpnam|tempnam|mktemp)\(")
# The first lists names; the second takes one from /dev/urandom.
MAY_NAME = ("launcher/agent/ranks/scratch.cpp", "slurm/batch_script.cpp")
OPEN = re.compile(r"\bstd::[io]?fstream\b|(?<![\w:])::(?:open|openat|creat)\(|\bfopen\(")
KERNEL = "files of the kernel alone (/proc, /sys)"
MAY_OPEN = {
    "checkpoint/io/direct_reader.cpp": "with O_DIRECT; it does not wait, and its callers refuse what is no regular file",
    "checkpoint/verify/verify_h5.cpp": KERNEL,
    "launcher/agent/daemon/agent_port.cpp": KERNEL,
    "launcher/agent/ranks/outside_look.cpp": KERNEL,
    "launcher/agent/ranks/run_processes.cpp": KERNEL,
    "launcher/agent/signs/link_source.cpp": KERNEL,
    "launcher/agent/signs/sign_sources.cpp": KERNEL,
    "launcher/pmix/accept.cpp": KERNEL,
    "launcher/supervise/agent_ports.cpp": KERNEL,
    "src/base/descriptors.cpp": KERNEL,
    "src/base/files.cpp": "what the others use",
    "src/base/kernel_log.cpp": "the device /dev/kmsg",
    "src/base/lock_pages.cpp": KERNEL,
    "src/base/subprocess.cpp": "between fork and exec, where nothing may be allocated; and what runs a script",
    "src/comm/shared_memory.cpp": KERNEL,
    "src/cuda/runtime/binding.cpp": KERNEL,
    "src/device/cpu_device.cpp": KERNEL,
    "src/train/local/offers.cpp": KERNEL,
    "src/train/loop/trainer.cpp": KERNEL,
}
PARSES_JSON = re.compile(r"\b(?!toml::)\w+::(?:parse|sax_parse|from_(?:cbor|msgpack|ubjson|bson))\(")
PRINTS = re.compile(r"\b(?:fmt::print|(?:std::)?(?:v?f?printf|f?puts|fputc|putchar|fwrite))\(")
VERBS = (("launcher", "cli"), ("src", "tools", "cli"))
DUMPS = re.compile(r"<<.*\.dump\([^)]")  # with an indentation
MAY_PRINT = {"progress.hpp"}  # its line on a terminal is written over
ASSIGNMENT = re.compile(r"^(\+\+|--)?[\w.\->\[\]*()_:]+\s*((<<|>>|[-+*/|&^%])?=[^=]|\+\+$|--$|$)")
CONTROL = re.compile(r"^(?:} )?(?:else )?(?:if(?: constexpr)?|while|for) ?\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\) |^else ")
DECLARES = re.compile(r"^(const|constexpr|static|auto|using|return|case|default|throw|delete|friend|#|//)\b"
                      r"|^[\w:]+(<.*>)?[ *&]+\w+( =|,|;|\{|\[)")


def parts_of(statement):
    """What stands between the commas that are in no brackets and no text."""
    parts, depth, quote, part, escaped = [], 0, "", "", False
    for c in statement:
        if quote:
            quote = "" if c == quote and not escaped else quote
            escaped = c == "\\" and not escaped
        elif c == '"' or (c == "'" and not (part and part[-1].isdigit())):
            quote = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and depth == 0:
            parts.append(part.strip())
            part = ""
            continue
        part += c
    return parts + [part.strip()]


def joins_assignments(line):
    body = CONTROL.sub("", re.sub(r"\s*//.*$", "", line.strip()))
    if not body.endswith(";") or "," not in body or ";" in body[:-1] or DECLARES.match(body):
        return False
    if body.startswith(".") or any(body.count(a) != body.count(b) for a, b in ("()", "[]", "{}")):
        return False  # inside an initializer
    if re.search(r"\w<[^;()=]*,", body):
        return False  # between the arguments of a template
    parts = parts_of(body[:-1])
    return len(parts) > 1 and all(ASSIGNMENT.match(p) for p in parts) and any("=" in p or "++" in p or "--" in p for p in parts)


def begins_statement(before):
    before = re.sub(r"\s*//.*$", "", before).rstrip()
    return not before or before[-1] in ";{}:" or before.endswith("else") or re.match(r"\s*(} )?(else )?(if|for|while)\b.*\)$", before)


def throws(line, at):
    """Whether the call whose arguments begin there has no place for an error."""
    depth = 0
    for end in range(at, len(line)):
        depth += (line[end] in "([{") - (line[end] in ")]}")
        if depth < 0:
            return len(parts_of(line[at:end])) == 1
    return False


def complaints(path, name):
    before = ""
    opens = "tests" not in path.parts and name not in MAY_OPEN
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if CAST in line and path.name != "as_size.hpp":
            yield number, "a cast to std::size_t (as_size(x) says it; an index needs none)"
        if "tests" not in path.parts and any(throws(line, found.end()) for found in LOOK.finditer(line)):
            yield number, "a look that throws (files::look_at, exists_or_fail and is_there say what is meant)"
        if "tests" not in path.parts and not str(path).endswith(MAY_NAME) and NAMED.search(re.sub(r"//.*", "", line)):
            yield number, "a name where every user can make one (control::make_private finds or makes a folder of this user's)"
        if opens and OPEN.search(line.split("//")[0]):
            yield number, "a file that is not opened by files::open or try_open (MAY_OPEN in scripts/style.py names exceptions)"
        code = line.split("//")[0]
        if "tests" not in path.parts and path.name != "strict_json.hpp" and PARSES_JSON.search(code):
            yield number, "JSON parsed anywhere (json_from and parse_strict_json bound its depth)"
        if path.parent.parts[-2:] == VERBS[0] or path.parent.parts[-3:] == VERBS[1]:
            if DUMPS.search(code):
                yield number, "JSON on standard output that is not json_text() (which is ASCII)"
            if path.name not in MAY_PRINT and PRINTS.search(code):
                yield number, "a verb that prints around std::cout and std::cerr (their text is printable)"
        if begins_statement(before) and joins_assignments(line):
            yield number, "assignments joined by a comma (each is a statement of its own)"
        if line.strip() and not line.strip().startswith("//"):
            before = line


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    folders = ("src", "slurm", "launcher", "checkpoint", "tests")
    paths = [p for folder in folders for p in sorted((root / folder).rglob("*")) if p.suffix in (".cpp", ".hpp", ".cu")]
    found = 0
    for path in paths:
        name = path.relative_to(root).as_posix()
        for number, what in complaints(path, name):
            print(f"WRONG: {name}:{number}: {what}")
            found += 1
    for name in MAY_OPEN:
        if not (root / name).is_file() or not OPEN.search((root / name).read_text()):
            print(f"WRONG: scripts/style.py: {name} opens no file by itself any more")
            found += 1
    print(f"{len(paths)} files, {found} to mend")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
