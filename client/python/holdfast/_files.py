"""What a rank says of the files that it has written: their names, sizes and digests, as a vote's payload."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from typing import Any, Callable, List, Optional, Sequence, Tuple

_READ = 1 << 20
_LIST_LIMIT = 4 << 20
_NAME = 4096
_complained = False


def digest(path: str, read: Callable[[int], Any]) -> "tuple[int, str]":
    """The file's size, and SHA-512 of its bytes cut to 256 bits. `read` is told of each part's size."""
    whole, size = hashlib.sha512(), 0
    part = memoryview(bytearray(_READ))
    with open(path, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is not a file")
        while True:
            count = file.readinto(part)
            if not count:
                return size, whole.digest()[:32].hex()
            whole.update(part[:count])
            size += count
            read(count)


def vote_text(path: str, files: int, size: int, **more: Any) -> str:
    """A vote's payload."""
    path = path.encode("utf-8", "replace").decode()
    return json.dumps({"kind": "files", "path": path, "files": files, "bytes": size, **more})


def _is_held(name: str) -> bool:
    try:
        return len(name.encode()) <= _NAME and all(c >= " " and c != "\x7f" for c in name)
    except UnicodeEncodeError:
        return False


def _find(folder: str, given: str) -> Tuple[str, Optional[str]]:
    """The file's path without links, and its name below `folder`, which has none; None: no manifest can hold one."""
    parent, base = os.path.split(os.path.join(folder, given))
    parent = os.path.realpath(parent)
    below = os.path.relpath(parent, folder)
    name = base if below == "." else os.path.join(below, base)
    held = base not in ("", ".", "..") and below.split("/")[0] != ".." and _is_held(name)
    return os.path.join(parent, base), name if held else None


def _size(path: str) -> int:
    info = os.stat(path)
    if not stat.S_ISREG(info.st_mode):
        raise OSError(f"{path} is not a file")
    return info.st_size


def _complain_once(path: str) -> None:
    global _complained
    if not _complained:
        _complained = True
        print(f"holdfast: no manifest can hold the name of {ascii(path)}, which is not below the path of the vote, or is not "
              "plain UTF-8; the files of such checkpoints are only counted", file=sys.stderr)


def payload(folder: str, names: Sequence[str], read: Callable[[int], Any]) -> str:
    """Reads the files below `folder`, which has no links in it. Throws OSError. Where a manifest can hold no name of one of
    them (below `folder`, plain UTF-8), or the list is longer than a vote may be, it has only their number and size."""
    found = [_find(folder, name) for name in names]
    unheld = [folder] if not _is_held(folder) else [path for path, name in found if name is None]
    if unheld:
        _complain_once(unheld[0])
        return vote_text(folder, len(found), sum(_size(path) for path, _ in found))
    listed: List[List[Any]] = []
    for path, name in found:
        size, sums = digest(path, read)
        listed.append([name, size, sums])
    total = sum(size for _, size, _ in listed)
    text = vote_text(folder, len(listed), total, list=listed)
    if len(text) <= _LIST_LIMIT:
        return text
    print(f"holdfast: the names of {len(listed)} files are too long for a vote; they are only counted", file=sys.stderr)
    return vote_text(folder, len(listed), total)
