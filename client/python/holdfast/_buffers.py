"""The snapshot buffers of a rank: files in the memory of its node, in two generations, and their seals. docs/protocol.md
("Snapshot buffers") is the contract. Nothing here speaks to the agent."""

from __future__ import annotations

import builtins
import errno
import fcntl
import mmap
import os
import re
import sys
import threading
import time
import zlib
from dataclasses import dataclass
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

_COPY_PATIENCE_S = 60.0
_SEAL_BYTES = 64 << 10
_MOST = 256
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")
_SEAL = re.compile(r"holdfast seal 1\nstep (\d+)\nattempt (\d+)\nworld (\d+)\n((?:buffer \S+ \d+ [0-9a-f]{8}\n)*)")


class BuffersError(OSError):
    """A buffer cannot be had, sealed or loaded; the text says why."""


def _refusal(what: str, error: OSError) -> BuffersError:
    return BuffersError(f"{what} ({os.strerror(error.errno or 0)})")


class Seal(NamedTuple):
    step: int
    attempt: int
    world: int
    buffers: Dict[str, Tuple[int, int]]  #: bytes and checksum, by name


@dataclass(frozen=True)
class Sealed:
    """The state from which an attempt starts."""

    step: int
    attempt: int
    level: str


def seal_text(seal: Seal) -> str:
    lines = [f"buffer {name} {size} {crc:08x}\n" for name, (size, crc) in sorted(seal.buffers.items())]
    text = f"holdfast seal 1\nstep {seal.step}\nattempt {seal.attempt}\nworld {seal.world}\n" + "".join(lines)
    return text + f"end {zlib.crc32(text.encode()):08x}\n"


def read_seal(folder: str) -> Optional[Seal]:
    """None: there is none, or it is damaged."""
    try:
        with builtins.open(os.path.join(folder, "seal"), "rb") as file:
            text = file.read(_SEAL_BYTES).decode("ascii")
    except (OSError, ValueError):
        return None
    body, end = text[:-13], text[-13:]
    found = _SEAL.fullmatch(body)
    if not found or end != f"end {zlib.crc32(body.encode()):08x}\n":
        return None
    lines = (line.split() for line in found[4].splitlines())
    return Seal(int(found[1]), int(found[2]), int(found[3]), {name: (int(size), int(crc, 16)) for _, name, size, crc in lines})


class Buffers:
    """Calls from several threads wait for each other."""

    def __init__(self, environment: Mapping[str, str], waits: Callable[[bool], None] = lambda on: None) -> None:
        """`waits`: called with True about every 100 ms while a call waits for a copy, and with False when it is over."""
        self._waits = waits
        self._folder = environment.get("HOLDFAST_BUFFERS", "")
        self._limit, self._attempt, self._world = (int(environment.get("HOLDFAST_" + name) or 0)
                                                   for name in ("BUFFERS_LIMIT", "ATTEMPT", "WORLD"))
        self._copied = environment.get("HOLDFAST_BUFFERS_COPIED") == "1"
        said = environment.get("HOLDFAST_SEALED", "").split()
        self.sealed = Sealed(int(said[0]), int(said[1]), said[2]) if len(said) == 3 else None
        self._lock = threading.Lock()
        self._sizes: Dict[str, int] = {}
        self._asked: Dict[str, mmap.mmap] = {}  # since the last seal
        self._maps: List[Dict[str, mmap.mmap]] = [{}, {}]
        self._silent_at: Optional[int] = None  # _copied_step() said this when a wait for more was in vain
        self._said_so = False
        self._held = -1  # the locked folder of the generation that is written; -1: none is
        seals = [read_seal(self._path(generation)) for generation in (0, 1)]
        ages = [(seal.attempt, seal.step) if seal else (-1, -1) for seal in seals]
        self._newest = int(ages[1] > ages[0])
        for generation, age in enumerate(ages):
            if self.sealed and age == (self.sealed.attempt, self.sealed.step):
                self._newest = generation

    def _path(self, generation: int, *file: str) -> str:
        return os.path.join(self._folder, str(generation), *file)

    def buffer(self, name: str, size: int) -> memoryview:
        with self._lock:
            try:
                return memoryview(self._buffer(name, size))
            except OSError as error:
                why = error if isinstance(error, BuffersError) else _refusal("the node has no memory for it any more", error)
                raise BuffersError(f"no buffer '{name}': {why}") from None

    def _buffer(self, name: str, size: int) -> mmap.mmap:
        if not self._folder:
            raise BuffersError("the agent gives this rank no memory of its node. Is checkpoint.local \"none\"?")
        if not _NAME.fullmatch(name):
            raise BuffersError("a name has 1 to 64 letters, digits, '.', '_' and '-', and begins with no '.'")
        if size <= 0:
            raise BuffersError("it has no bytes")
        whole = size + sum(other for known, other in self._sizes.items() if known != name)
        if whole > self._limit:
            raise BuffersError(f"this rank's buffers would have {whole} bytes and may have {self._limit} (seven eighths of the "
                               "node's memory for them are shared by its ranks, for two generations and their copies). Keep less "
                               "in them, set checkpoint.partner = \"none\", or a larger checkpoint.local?")
        if name not in self._sizes and len(self._sizes) == _MOST:
            raise BuffersError("there are 256 already")
        self._begin()
        generation = 1 - self._newest
        there = self._maps[generation].get(name)
        if there is None or len(there) != size:
            for kept in (self._maps[generation], self._asked):
                kept.pop(name, None)  # without room it stays so, and nothing is sealed
            there = self._map(self._path(generation, name + ".buffer"), size)
            self._maps[generation][name] = there
        self._sizes[name] = size
        self._asked[name] = there
        return there

    def _begin(self) -> None:
        """Begins to write the other generation. Who copies it gets a minute to come to its end."""
        if self._held >= 0:
            return
        folder = self._path(1 - self._newest)
        for one in (self._folder, folder):
            try:
                os.mkdir(one, 0o700)
            except FileExistsError:
                pass
            except OSError as error:
                raise _refusal("its folder cannot be made", error) from None
        try:
            held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise _refusal("its folder cannot be opened", error) from None
        limit = time.monotonic() + _COPY_PATIENCE_S
        polls = 0
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if polls % 100 == 0:
                    self._waits(True)
                polls += 1
                if time.monotonic() >= limit:
                    break
                time.sleep(0.001)
        if polls:
            self._waits(False)
        try:
            os.unlink(os.path.join(folder, "seal"))
        except FileNotFoundError:
            pass
        except OSError as error:
            os.close(held)
            raise _refusal("its old seal cannot be removed", error) from None
        self._asked.clear()
        self._held = held

    @staticmethod
    def _map(path: str, size: int) -> mmap.mmap:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise _refusal("its file cannot be opened", error) from None
        try:
            os.ftruncate(file, size)
            os.posix_fallocate(file, 0, size)  # what has no room is to be an error here, and not a signal later
            return mmap.mmap(file, size)
        except OSError:
            os.unlink(path)
            raise
        finally:
            os.close(file)

    def seal(self, step: int) -> None:
        with self._lock:
            if self._held < 0:
                raise BuffersError("the buffers are not sealed: none has been written since the last seal")
            missing = sorted(set(self._sizes) - set(self._asked))
            if missing:
                raise BuffersError(f"the buffers are not sealed: buffer() has not been called for {missing[0]} since the last seal")
            if step < 0:
                raise BuffersError("the buffers are not sealed: a step is not negative")
            generation = 1 - self._newest
            sums = {name: (len(there), zlib.crc32(there)) for name, there in self._asked.items()}
            aside = self._path(generation, "seal.new")
            try:
                file = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
                with os.fdopen(file, "wb") as out:
                    out.write(seal_text(Seal(int(step), self._attempt, self._world, sums)).encode())
                os.rename(aside, self._path(generation, "seal"))
            except OSError as error:
                raise _refusal("the buffers are not sealed: the seal cannot be written", error) from None
            fcntl.flock(self._held, fcntl.LOCK_UN)  # a child of fork() may have the descriptor, too
            os.close(self._held)
            self._held = -1
            self._newest = generation

    def wait_for_copy(self, step: int) -> None:
        """Until the seal of `step` is copied, or cannot be, or for a minute; after that no call waits until something has been
        copied."""
        if not self._copied:
            return
        copied = self._copied_step()
        if copied == self._silent_at:
            return
        limit = time.monotonic() + _COPY_PATIENCE_S
        polls = 0
        while copied < step and time.monotonic() < limit:
            if polls % 100 == 0:
                self._waits(True)
            polls += 1
            time.sleep(0.001)
            copied = self._copied_step()
        if polls:
            self._waits(False)
        self._silent_at = copied if copied < step else None
        if copied < step and not self._said_so:
            self._said_so = True
            print(f"holdfast: the agent has not copied the buffers of step {step} to another node for {_COPY_PATIENCE_S:.0f} s (its "
                  "log may say why). This rank goes on, and waits no more until it copies again.", file=sys.stderr, flush=True)

    def _copied_step(self) -> int:
        """Of the seal with which the mover has dealt last; -1: with none of this attempt."""
        try:
            with builtins.open(os.path.join(self._folder, "copied"), encoding="ascii") as file:
                attempt, copied = file.read().split()
            return int(copied) if int(attempt) == self._attempt else -1
        except (OSError, ValueError):
            return -1

    def load(self, name: str) -> memoryview:
        with self._lock:
            try:
                return self._load(name)
            except BuffersError as error:
                raise BuffersError(f"the buffer '{name}' cannot be loaded: {error}") from None

    def _load(self, name: str) -> memoryview:
        if self.sealed is None:
            raise BuffersError("this attempt does not start from buffers")
        seal = read_seal(self._path(self._newest))
        if seal is None or (seal.attempt, seal.step) != (self.sealed.attempt, self.sealed.step):
            raise BuffersError("the state from which this attempt starts is not here any more")
        if name not in seal.buffers:
            raise BuffersError("it is not among the sealed ones")
        size, crc = seal.buffers[name]
        try:
            file = os.open(self._path(self._newest, name + ".buffer"), os.O_RDONLY | os.O_NOFOLLOW)
            try:
                whole = os.fstat(file).st_size == size
                there = mmap.mmap(file, size, access=mmap.ACCESS_READ) if whole else None
            finally:
                os.close(file)
        except OSError:
            there = None
        if there is None or zlib.crc32(there) != crc:
            try:
                # The next attempt starts from another state, or the mover repairs this one.
                os.rename(self._path(self._newest, "seal"), self._path(self._newest, "damaged"))
            except OSError as error:
                if error.errno != errno.ENOENT:
                    print(f"holdfast: a damaged seal cannot be removed ({error})", file=sys.stderr)
            raise BuffersError("it is damaged, and is not sealed any more")
        return memoryview(there)

    def names(self) -> List[str]:
        """Of the state from which this attempt starts."""
        seal = read_seal(self._path(self._newest)) if self.sealed else None
        return list(seal.buffers) if seal else []

    def in_child(self) -> None:
        if self._held >= 0:
            os.close(self._held)
            self._held = -1
