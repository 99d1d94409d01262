#!/usr/bin/env python3
"""What the loader is told by every program and library of a build, and how they are hardened.

    programs_test.py BUILD [--hardened]     --hardened: cmake/Options.cmake has set HOLDFAST_HARDENED

An entry of RUNPATH that is empty or relative is the current folder, or lies in it, and one that others may write is theirs: they
would choose the libraries.
"""
import os
import re
import stat
import subprocess
import sys


# It starts the programs of a bundle: static, and without a C library.
WITHOUT_LIBRARIES = ("bundle-start",)
SHIPPED = ("holdfast", "holdfast-pmix", "holdfast-tool", "holdfast-train")


def objects(build):
    for folder, below, files in os.walk(build):
        below[:] = [name for name in below if name not in ("CMakeFiles", "install", "Testing", "_CPack_Packages")]
        for name in files:
            path = os.path.join(folder, name)
            if os.path.islink(path) or not os.path.isfile(path):
                continue
            with open(path, "rb") as file:
                head = file.read(20)
            # ET_EXEC or ET_DYN: a program or a library, and not what goes into one.
            if head[:4] == b"\x7fELF" and head[16] in (2, 3):
                yield path


def others_may_write(path):
    """Whether somebody else can put a library there: by the folder itself, or by one above it, in another's place."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    own = True
    while True:
        mode = os.stat(path).st_mode
        if mode & stat.S_IWOTH and (own or not mode & stat.S_ISVTX):
            return True
        if path == "/":
            return False
        own, path = False, os.path.dirname(path)


def wrong_entries(run_path):
    for entry in run_path.split(":"):
        if entry == "$ORIGIN" or entry.startswith("$ORIGIN/"):
            continue
        if not entry:
            yield "has an empty entry in its RUNPATH, which is the current folder"
        elif not entry.startswith("/"):
            yield f"has the relative entry {entry} in its RUNPATH"
        elif others_may_write(os.path.realpath(entry)):
            yield f"has {entry} in its RUNPATH, which others may write"


def readelf(option, path):
    return subprocess.run(["readelf", "-W", option, path], check=True, capture_output=True, text=True).stdout


def problems_of(path, hardened):
    dynamic = readelf("-d", path)
    for run_path in re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic):
        yield from wrong_entries(run_path)
    if not hardened or os.path.basename(path) in WITHOUT_LIBRARIES:
        return
    flags = " ".join(re.findall(r"\(FLAGS(?:_1)?\)(.*)", dynamic)).split()
    segments = readelf("-l", path)
    if "BIND_NOW" not in flags and "NOW" not in flags:
        yield "resolves names while it runs (no BIND_NOW)"
    if "GNU_RELRO" not in segments:
        yield "can write the tables of its loader (no RELRO)"
    if re.search(r"GNU_STACK.* RWE ", segments):
        yield "can execute its stack"
    if "INTERP" in segments and "PIE" not in flags:
        yield "is always at the same addresses (no PIE)"
    if os.path.basename(path) in SHIPPED:
        names = readelf("--dyn-syms", path)
        if "__stack_chk_fail" not in names:
            yield "has no guarded stacks"
        if not re.search(r"\b__(?!stack)\w+_chk\b", names):
            yield "has no fortified calls"


def main():
    build, hardened = sys.argv[1], "--hardened" in sys.argv
    checked = list(objects(build))
    found = [f"{os.path.relpath(path, build)} {problem}" for path in checked for problem in problems_of(path, hardened)]
    print("\n".join(found) or f"{len(checked)} programs and libraries are as they should be")
    return 1 if found or not checked else 0


if __name__ == "__main__":
    assert list(wrong_entries("/usr/lib:")) and list(wrong_entries("lib")) and list(wrong_entries("/usr/lib:/tmp"))
    assert list(wrong_entries("/tmp/nobody-has-made-this")) and not list(wrong_entries("$ORIGIN:$ORIGIN/..:/usr/lib"))
    sys.exit(main())
