"""What a rank says of the files that it has written: their names, sizes and digests, as a vote's payload."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from typing import Any, Callable, Dict, List, Sequence

_READ = 1 << 20
_LIST_LIMIT = 4 << 20


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


def payload(folder: str, names: Sequence[str], read: Callable[[int], Any]) -> str:
    """Reads the files. Throws OSError. Where the list is longer than a vote may be, it has only their number and size."""
    listed: List[List[Any]] = []
    for name in names:
        size, sums = digest(os.path.join(folder, name), read)
        listed.append([name, size, sums])
    said: Dict[str, Any] = {"kind": "files", "path": folder, "files": len(listed), "bytes": sum(size for _, size, _ in listed)}
    text = json.dumps({**said, "list": listed})
    if len(text) <= _LIST_LIMIT:
        return text
    print(f"holdfast: the names of {len(listed)} files are too long for a vote; they are only counted", file=sys.stderr)
    return json.dumps(said)
