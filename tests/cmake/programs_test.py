#!/usr/bin/env python3
"""What the loader is told by every program and library of a build.

    programs_test.py BUILD

An entry of RUNPATH that is empty or relative is the current folder, or lies in it, and one that others may write is theirs: they
would choose the libraries.
"""
import os
import re
import stat
import subprocess
import sys


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


def problems_of(path):
    dynamic = subprocess.run(["readelf", "-Wd", path], check=True, capture_output=True, text=True).stdout
    for run_path in re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic):
        yield from wrong_entries(run_path)


def main():
    build = sys.argv[1]
    checked = list(objects(build))
    found = [f"{os.path.relpath(path, build)} {problem}" for path in checked for problem in problems_of(path)]
    print("\n".join(found) or f"{len(checked)} programs and libraries are as they should be")
    return 1 if found or not checked else 0


if __name__ == "__main__":
    assert list(wrong_entries("/usr/lib:")) and list(wrong_entries("lib")) and list(wrong_entries("/usr/lib:/tmp"))
    assert list(wrong_entries("/tmp/nobody-has-made-this")) and not list(wrong_entries("$ORIGIN:$ORIGIN/..:/usr/lib"))
    sys.exit(main())
