"""The calls of a program, and the thread that carries them out. docs/protocol.md is the contract with the agent."""

from __future__ import annotations

import atexit
import math
import os
import socket
import sys
import threading
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Literal, Mapping, Optional, Sequence, Set, Tuple, Union, get_args

from holdfast import _buffers, _files, _link

Phase = Literal[
    "starting", "restoring", "data", "forward", "backward", "collective", "optimizer", "checkpoint", "finishing", "paused"
]
PHASES: Tuple[str, ...] = get_args(Phase)
EXIT_STOPPED = 75  #: the exit code of a rank that has saved and ended because it was told to

_BEAT_S = 0.1
_REDIAL_S = 0.1
_CLOSE_S = 2.0
_STALL_S = 30.0  # close() waits so long for files of which nothing is read
_TEXT = 4096


@dataclass(frozen=True)
class Order:
    """What is ordered. False when nothing is."""

    save: bool = False  #: save now; once for each order
    stop: bool = False  #: save now and end with exit code 75 (EXIT_STOPPED); stays. Also where only a node is to leave
    pause: bool = False  #: hold: report "paused" and ask again; stays until it is over
    seconds_left: Optional[float] = None  #: of stop: until the ranks are killed; None: no deadline is known
    reason: str = ""  #: of save and stop

    def __bool__(self) -> bool:
        return self.save or self.stop or self.pause


_NOTHING = Order()


class _Notice:
    """What has to reach the agent: said again on every new connection until it is answered."""

    def __init__(self, message: Dict[str, Any], payload: Optional[str] = None) -> None:
        self.message, self.payload, self.sent = message, payload, False


class Client:
    """The client of this process: open() makes it. Without an agent every call does nothing."""

    def __init__(self, place: Optional[_link.Place], environment: Optional[Mapping[str, str]] = None) -> None:
        self._on = place is not None
        self._at: Tuple[int, str, int] = (-1, "starting", 0)
        self._speaker = 0  # the thread that called at() last
        self._first_step = -1
        self._metrics: Optional[Tuple[int, float, int]] = None
        self._compute_s = 0.0
        self._order: Optional[Order] = None  # None: a fast "nothing"
        if place is None:
            return
        self._place = place
        self._buffers = _buffers.Buffers(environment or {}, self._awaited)
        self._awaits, self._polls = False, 0  # the speaker waits for what another process or thread does
        self.held_up = False  # the speaker waits for a thread that seals (snapshots.py)
        self._lock = threading.RLock()  # a signal's handler may call while its thread has it
        self._changed = threading.Condition(self._lock)
        # Under the lock:
        self._restored: Optional[_Notice] = None
        self._sealed: Optional[_Notice] = None
        self._votes: List[_Notice] = []
        self._last_word: Optional[_Notice] = None
        self._taken = self._closing = False
        self._save = self._stop = self._pause = False
        self._heard: Optional[Tuple[bool, str]] = None
        self._until = 0
        self._took: Set[str] = set()  # orders of now that the program has taken
        self._said_took: Set[str] = set()  # and on this connection
        self._outcomes: Dict[int, bool] = {}
        self._unread: List[Tuple[int, str, List[str]]] = []  # votes whose files are read first; the first is in work
        self._read = 0  # bytes of files
        # The thread's:
        self._link: Optional[_link.Link] = None
        self._told: Optional[Tuple[int, float, int]] = None
        self._complained = False
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._wake_write.setblocking(False)
        self._thread = threading.Thread(target=self._serve, name="holdfast", daemon=True)
        self._thread.start()
        os.register_at_fork(after_in_child=self._in_child)
        atexit.register(self.close)

    # --- what a program says ---

    @property
    def supervised(self) -> bool:
        """An agent has started this process, and it speaks for its rank as far as is known."""
        return self._on

    @property
    def newest(self) -> int:
        """The newest step that all ranks had voted for when this attempt was started, and whose files, where they were
        named, are not proven damaged; -1: there is none."""
        return self._place.newest if self._on else -1

    def at(self, step: int, phase: Phase = "forward") -> None:
        """Where the rank is. `step`: optimizer steps done. A rank that stays in one phase for much longer than before
        is taken for hung, and its attempt ends; "paused" is no hang."""
        if self._on:
            self._at = (step, phase, self._at[2] + 1)
            self._speaker = threading.get_ident()
            if self._first_step < 0:
                self._first_step = int(step)

    def metrics(self, loss: float, tokens: int = 0, compute_s: float = 0.0) -> None:
        """Of the newest step. Of `loss` and `tokens`, only those of rank 0 are kept. `loss`: a number; of a tensor on a GPU its
        item(), as the thread that speaks for the rank would wait for the GPU. `tokens`: consumed by all ranks since step 0, not
        those of the step. `compute_s`: seconds of this rank's own work in that step, without waiting for others, by which
        slow nodes are found; 0: not known."""
        if self._on:
            self._compute_s = compute_s
            self._metrics = (self._at[0], loss, tokens)

    def restored(self, step: int, level: str = "shared") -> None:
        """Once, when the state is loaded. `step`: optimizer steps done in it. `level`: where it came from, for people:
        "fresh" (a new start), "shared" (a checkpoint), "local" (the memory of this node), "partner" or "peer" (of
        another). load() says it, too. Left out, the first at() stands for it."""
        if not self._on:
            return
        said = _Notice(self._message("restored", step=int(step), level=_cut(level, 64), digest="", note=""))
        with self._lock:
            self._restored = self._restored or said
        self._wake()

    def vote(self, step: int, path: Union[str, "os.PathLike[str]"] = "", *, files: Union[int, Sequence[str]] = 0,
             bytes: int = 0) -> None:
        """What this rank has written of the checkpoint of `step` is complete and synced: `files` of `bytes` together,
        below `path`. Every rank votes, also one that has written nothing. The checkpoint is durable once all have.

        `files` may be their names, relative to `path`, on storage that all nodes see; of a file that a later checkpoint
        overwrites nothing is known then. `bytes` is not needed. A
        thread reads them and computes their digests, and the vote is cast when it is through; close() waits for that.
        If all ranks that have files name them, the checkpoint has a manifest, which `holdfast ckpt` shows and verifies,
        and an attempt does not begin from one whose files are damaged."""
        if not self._on:
            return
        folder = os.fsdecode(path)[:_TEXT]
        if isinstance(files, (list, tuple)):
            self._vote_on_named(int(step), os.path.realpath(folder), [os.fsdecode(name) for name in files])
            return
        self._vote(step, True, _files.vote_text(folder, int(files), int(bytes)))  # type: ignore[arg-type]

    def vote_failed(self, step: int, why: str) -> None:
        """It could not be written."""
        self._vote(step, False, _cut(" ".join(why.split())) or "the program does not say why")

    # --- buffers in the memory of the node ---

    @property
    def sealed(self) -> int:
        """The step of the sealed state from which all ranks of this attempt start; -1: there is none, or `newest` is newer."""
        return self._buffers.sealed.step if self._on and self._buffers.sealed else -1

    @property
    def sealed_names(self) -> List[str]:
        """The names of the buffers of that state."""
        return self._buffers.names() if self._on else []

    def buffer(self, name: str, bytes: int) -> Optional[memoryview]:
        """Memory for so many bytes of the next generation: ask anew after each seal, for every buffer. What is in it is not
        defined. It outlives the process, and is copied to another node. Two generations are kept: the first buffer() after
        seal() gives up the older one. Ranks that wait for each other between these two calls, as a collective of the next
        step does, always have a state in common. Waits up to 60 s while this one is being copied. None: there is no agent.
        Throws BuffersError."""
        return self._buffers.buffer(name, int(bytes)) if self._on else None

    def seal(self, step: int) -> bool:
        """All buffers hold the state of `step`, optimizer steps done; no byte changes afterwards. Reads all of it, for its
        checksums, and waits until it is copied to another node, up to 60 s. False: there is no agent. Throws BuffersError: the
        state before remains the newest."""
        if not self._on:
            return False
        self._buffers.seal(int(step))
        said = _Notice(self._message("sealed", step=int(step)))
        with self._lock:
            self._sealed = said
        self._wake()
        self._buffers.wait_for_copy(int(step))
        return True

    def load(self, name: str) -> memoryview:
        """A buffer of the state of `sealed`, whose checksum holds, to be read until the first seal(). Says restored(), too.
        Throws BuffersError where it has no such buffer, or is damaged: then end with failed(), and the next attempt starts
        from another state."""
        if not self._on or self._buffers.sealed is None:
            raise _buffers.BuffersError(f"the buffer '{name}' cannot be loaded: this attempt does not start from buffers")
        there = self._buffers.load(name)
        self.restored(self._buffers.sealed.step, self._buffers.sealed.level)
        return there

    def finished(self, step: int) -> None:
        """The rank has done all its steps; the process then ends with 0."""
        state = None
        if self._on and self._place.rank == 0:
            loss, tokens = self._metrics[1:] if self._metrics else (math.nan, 0)
            state = {"step": int(step), "tokens": _whole(tokens, 0), "loss": _number(loss), "digest": ""}
        self._say_last("finished", state=state)

    def failed(self, text: str, exit_code: int = 1) -> None:
        """The rank gives up; the process then ends with `exit_code`. `text` is what people are shown. With the codes
        2, 3, 4 and 93 the rank says that every further attempt would end so: the run then ends with that code."""
        self._say_last("failed", exit_code=exit_code if 0 <= exit_code <= 255 else 1, why=_cut(str(text)))

    def close(self) -> None:
        """Ends the connection. Waits at most 2 s until the agent has the votes and the last words; before that, while
        named files are read. Also done at exit."""
        if not self._on:
            return
        self._speaker = threading.get_ident()
        self._await_reader()
        limit = time.monotonic() + _CLOSE_S
        self._wake()
        with self._lock:
            while self._waits() and time.monotonic() < limit:
                self._changed.wait(limit - time.monotonic())
            self._closing = True
        self._wake()
        self._thread.join(max(0.0, limit - time.monotonic()))
        self._on = False

    # --- what it is told ---

    def orders(self) -> Order:
        """Orders in force. Ask after each step on one rank and tell the others, so that all ranks do the same: an Order can
        be pickled. `save` is in the first answer after an order only; `stop` and `pause` stay."""
        if self._order is None:
            return _NOTHING
        with self._lock:
            order = self._order
            self._save = False
            self._refresh()
            if order is not None:
                self._took |= {name for name in ("save", "stop", "pause") if getattr(order, name)}
            news = not self._took <= self._said_took
        if news:
            self._wake()
        if order is None:
            return _NOTHING
        if order.stop and self._until > 0:
            return Order(order.save, True, False, max(0.0, self._until - time.time()), order.reason)
        return order

    def outcome(self, step: int) -> Optional[bool]:
        """What became of a checkpoint that this attempt has voted on: True: it is durable, False: it was dropped, None:
        not decided yet; it may take as long as the slowest rank."""
        if not self._on:
            return None
        with self._lock:
            return self._outcomes.get(step)

    # --- inside ---

    def _awaited(self, waits: bool) -> None:
        """Only where the speaker waits: otherwise what it does is still what the rank does. At the exit it does nothing else."""
        speaks = self.held_up or threading.get_ident() == self._speaker or not threading.main_thread().is_alive()
        if waits and speaks:
            self._polls += 1
        self._awaits = waits and speaks

    def _message(self, name: str, **fields: Any) -> Dict[str, Any]:
        return {"m": name, "rank": self._place.rank, "attempt": self._place.attempt, **fields}

    def _vote(self, step: int, ok: bool, payload: str) -> None:
        if not self._on:
            return
        said = _Notice(self._message("vote", step=int(step), ok=ok, stall_us=0), payload)
        with self._lock:
            self._votes.append(said)
        self._wake()

    def _vote_on_named(self, step: int, folder: str, names: List[str]) -> None:
        if not self._on:
            return
        with self._lock:
            self._unread.append((step, folder, names))
            begins = len(self._unread) == 1
        if begins:
            threading.Thread(target=self._read_named, name="holdfast-files", daemon=True).start()

    def _read_named(self) -> None:
        def count(size: int) -> None:
            self._read += size

        while True:
            step, folder, names = self._unread[0]
            try:
                self._vote(step, True, _files.payload(folder, names, count))
            except Exception as error:  # whatever it is: this thread casts the later votes, too
                self.vote_failed(step, str(error))
            with self._lock:
                del self._unread[0]
                self._changed.notify_all()
                if not self._unread:
                    return

    def _await_reader(self) -> None:
        """While it reads on."""
        seen, since = -1, 0.0
        with self._lock:
            while self._unread:
                if self._read != seen:
                    seen, since = self._read, time.monotonic()
                    self._awaited(True)
                if time.monotonic() - since >= _STALL_S:
                    break
                self._changed.wait(1.0)
        if seen >= 0:
            self._awaited(False)

    def _say_last(self, name: str, **fields: Any) -> None:
        if not self._on:
            return
        said = _Notice(self._message(name, **fields))
        with self._lock:
            self._last_word, self._taken = said, False
        self._wake()

    def _wake(self) -> None:
        try:
            self._wake_write.send(b"x")
        except OSError:
            pass  # it is awake

    def _in_child(self) -> None:
        self._on = False
        self._order = None
        self._buffers.in_child()
        for own in (self._link, self._wake_read, self._wake_write):
            if own:
                own.close()

    def _notices(self) -> List[_Notice]:
        last = [self._last_word] if self._last_word else []
        first = [notice for notice in (self._restored, self._sealed) if notice]
        return first + self._votes + last

    def _waits(self) -> bool:
        unsent = any(not notice.sent for notice in self._notices())
        return unsent or (self._last_word is not None and not self._taken)

    def _refresh(self) -> None:
        anything = self._save or self._stop or self._pause
        reason = self._heard[1] if self._heard and (self._save or self._stop) else ""
        pause = self._pause and not self._stop
        self._order = Order(self._save, self._stop, pause, None, reason) if anything else None

    def _serve(self) -> None:
        while not self._closing:
            try:
                self._link = _link.Link(self._place)
                self._talk(self._link)
            except _link.OtherVersion as error:
                if not self._complained:
                    self._complained = True
                    print(f"holdfast: this rank cannot speak to its agent ({error}). "
                          "Install the client of the agent's release?", file=sys.stderr)
            except (OSError, ValueError):
                pass
            link, self._link = self._link, None
            if link:
                link.close()
            if not self._closing:
                self._rest(_REDIAL_S, None)

    def _rest(self, seconds: float, link: Optional[_link.Link]) -> None:
        _link.readable(seconds, self._wake_read, *([link.socket] if link else []))
        try:
            self._wake_read.recv(4096)
        except OSError:
            pass  # nobody has woken it

    def _talk(self, link: _link.Link) -> None:
        with self._lock:
            for notice in self._notices():
                notice.sent = False
            self._said_took = set()
        self._told = None
        place = self._place
        link.send({"m": "hello", "role": "rank", "node": place.node, "term": place.term, "attempt": place.attempt,
                   "rank": place.rank, "pid": os.getpid()})
        next_beat = 0.0
        while not self._closing:
            if time.monotonic() >= next_beat:
                next_beat = time.monotonic() + _BEAT_S
                self._beat(link)
            self._say_taken(link)
            self._say_notices(link)
            for message in link.read():
                self._take(message)
            self._rest(next_beat - time.monotonic(), link)

    def _beat(self, link: _link.Link) -> None:
        if self._restored is None and self._first_step >= 0:
            # A program that steps without a word about its state has one: that of its first step.
            self.restored(self._first_step, "shared" if self._first_step else "fresh")
        step, phase, moves = self._at
        if self._awaits:
            # As our own trainer says it that waits for storage: no hang, nor are those that wait for this rank hung, and the
            # leader learns nothing from how long it takes.
            phase = "finishing"
        compute_us = min(_whole(1e6 * (_number(self._compute_s) or 0.0), 0), 10**15)
        link.send(self._message("progress", step=_whole(step, -1), phase=phase if phase in PHASES else "starting",
                                compute_us=compute_us, moves=moves + self._polls))
        metrics = self._metrics
        if metrics is not None and metrics is not self._told:
            self._told = metrics
            link.send(self._message("metrics", step=_whole(metrics[0], -1), loss=_number(metrics[1]),
                                    tokens=_whole(metrics[2], 0)))

    def _say_taken(self, link: _link.Link) -> None:
        with self._lock:
            news = sorted(self._took - self._said_took)
            self._said_took |= self._took
        for name in news:
            link.send(self._message("heard", what=name))

    def _say_notices(self, link: _link.Link) -> None:
        while True:
            with self._lock:
                notice = next((n for n in self._notices() if not n.sent), None)
                if notice is None:
                    return
                notice.sent = True
            if notice is self._last_word:
                self._beat(link)  # the agent is to know how far the rank has come
            link.send(notice.message, notice.payload)
            with self._lock:
                self._changed.notify_all()

    def _take(self, message: Dict[str, Any]) -> None:
        name = message.get("m")
        with self._lock:
            if name == "commit_outcome" and message.get("attempt") == self._place.attempt:
                step, durable = message.get("step"), message.get("durable")
                if isinstance(step, int) and isinstance(durable, bool):
                    self._outcomes[step] = durable
                    self._votes = [vote for vote in self._votes if vote.message["step"] != step]
            elif name == "drain" and isinstance(message.get("stop"), bool):
                self._take_drain(message["stop"], str(message.get("reason", "")), message.get("until"))
            elif name == "pause" and isinstance(message.get("on"), bool):
                self._pause = message["on"]
                if not self._pause:
                    self._forget_taken("pause")
            elif name == "not_speaker":
                self._be_mute(str(message.get("why", "")))
            elif name == "taken":
                self._taken = True
            self._refresh()
            self._changed.notify_all()

    def _take_drain(self, stop: bool, reason: str, until: Any) -> None:
        # A new agent repeats the order, and after one to stop others change nothing.
        if self._heard is not None and (self._heard[0] or self._heard == (stop, reason)):
            return
        self._heard = (stop, reason)
        self._save, self._stop = True, stop
        self._forget_taken("save")
        self._until = until if isinstance(until, int) else 0

    def _forget_taken(self, name: str) -> None:
        self._took.discard(name)
        self._said_took.discard(name)

    def _be_mute(self, why: str) -> None:
        """Another process speaks for the rank: of the calls of this one nothing is left, as without an agent."""
        self._on = False
        self._closing = True
        self._save = self._stop = self._pause = False
        self._restored = self._sealed = self._last_word = None
        self._votes = []
        if why:
            print(f"holdfast: {why}", file=sys.stderr, flush=True)


def _number(value: Any) -> Optional[float]:
    """Also a scalar of numpy or torch. JSON has no numbers that are not finite."""
    try:
        number = float(value)
    except Exception:  # whatever the type of a program throws: the thread goes on to speak for the rank
        return None
    return number if math.isfinite(number) else None


def _whole(value: Any, least: int) -> int:
    try:
        return max(least, int(value))
    except Exception:
        return least


def _cut(text: str, most: int = _TEXT) -> str:
    """So many bytes of it, as UTF-8; what has no place in that, as the names of some files, becomes '?'."""
    return text.encode("utf-8", "replace")[:most].decode("utf-8", "ignore")


_client: Optional[Client] = None


def open() -> Client:
    """The client of this process; it connects in the background to the agent of this node."""
    global _client
    if _client is None:
        _client = Client(_link.place_from(os.environ), os.environ)
    return _client
