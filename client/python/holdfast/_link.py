"""One connection to the agent: the handshake, sealed lines out and in."""

from __future__ import annotations

import builtins
import hashlib
import hmac
import json
import secrets
import select
import socket
import sys
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional

VERSION, OLDEST_VERSION = 2, 2
_PATIENCE_S = 5.0
_LINE_LIMIT = 1 << 20


class OtherVersion(ValueError):
    """The agent does not speak a version of the protocol that this client does."""


@dataclass(frozen=True)
class Place:
    """Who this rank is, and where its agent listens."""

    socket: str
    key: bytes
    rank: int
    attempt: int
    term: int
    node: str
    newest: int


def place_from(environment: Mapping[str, str]) -> Optional[Place]:
    """None: no agent has started this process."""
    path = environment.get("HOLDFAST_AGENT_SOCKET")
    if not path:
        return None
    try:
        rank, attempt, term = (int(environment["HOLDFAST_" + name]) for name in ("RANK", "ATTEMPT", "TERM"))
        key_file = environment["HOLDFAST_KEY_FILE"]
        steps = [int(step) for step in environment.get("HOLDFAST_DURABLE_STEPS", "").split(",") if step]
    except (KeyError, ValueError) as error:
        print(f"holdfast: the environment of this rank is incomplete ({error}). Is its agent of an older release?",
              file=sys.stderr)
        return None
    try:
        with builtins.open(key_file, encoding="ascii") as file:
            key = bytes.fromhex(file.read().strip())
        if len(key) != 32:
            raise ValueError("it is not 64 hex digits")
    except (OSError, ValueError) as error:
        print(f"holdfast: the key of this rank cannot be read ({error}). Does a container hide /dev/shm?", file=sys.stderr)
        return None
    return Place(path, key, rank, attempt, term, environment.get("HOLDFAST_NODE", ""), steps[0] if steps else -1)


def mac(key: bytes, text: bytes) -> bytes:
    """HMAC-SHA-512 cut to 256 bits."""
    return hmac.new(key, text, hashlib.sha512).digest()[:32]


def readable(seconds: float, *sockets: socket.socket) -> bool:
    """One of them can be read within this time; select() does not know descriptors above 1023."""
    poll = select.poll()
    for one in sockets:
        poll.register(one, select.POLLIN)
    return bool(poll.poll(max(0.0, seconds) * 1000))


class Link:
    """Throws OSError or ValueError when the connection is of no use any more."""

    def __init__(self, place: Place) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._input = b""
        self._sent = self._received = 0
        try:
            self.socket.settimeout(_PATIENCE_S)
            self.socket.connect(place.socket)
            self._session = self._shake(place)
        except BaseException:
            self.socket.close()
            raise

    def _line(self) -> Dict[str, Any]:
        while b"\n" not in self._input:
            part = self.socket.recv(4096)
            if not part or len(self._input) > 512:
                raise ValueError("the agent does not answer")
            self._input += part
        line, self._input = self._input.split(b"\n", 1)
        value = json.loads(line)
        if not isinstance(value, dict):
            raise ValueError("what listens there is no agent")
        return value

    def _shake(self, place: Place) -> bytes:
        server = self._line()
        version, theirs = server.get("holdfast"), server.get("nonce")
        oldest = server.get("oldest", version)
        if not isinstance(version, int) or not isinstance(oldest, int) or not isinstance(theirs, str):
            raise ValueError("what listens there is no agent")
        if version < OLDEST_VERSION or oldest > VERSION:
            raise OtherVersion(f"the agent speaks version {version} of the protocol, and this client {OLDEST_VERSION} to {VERSION}")
        mine = secrets.token_hex(32)
        nonces = (theirs + mine).encode()
        answer = {"holdfast": VERSION, "rank": place.rank, "attempt": place.attempt, "nonce": mine,
                  "proof": mac(place.key, b"client" + nonces).hex()}
        self.socket.sendall(json.dumps(answer).encode() + b"\n")
        proof = str(self._line().get("proof", ""))
        if not hmac.compare_digest(proof.encode(), mac(place.key, b"server" + nonces).hex().encode()):
            raise ValueError("what listens there does not know the key of this rank")
        return mac(place.key, b"session" + nonces)

    def _seal(self, direction: bytes, number: int, text: bytes) -> bytes:
        return mac(self._session, direction + str(number).encode() + b" " + text).hex().encode()

    def send(self, message: Dict[str, Any], payload: Optional[str] = None) -> None:
        """Waits at most 5 s."""
        text = json.dumps(message).encode()
        if payload is not None:
            text += b"\t" + payload.encode("utf-8", "replace").replace(b"\n", b" ")
        self.socket.sendall(text + b"\t" + self._seal(b"c", self._sent, text) + b"\n")
        self._sent += 1

    def read(self) -> List[Dict[str, Any]]:
        """What has come; does not wait."""
        while True:
            if not readable(0, self.socket):
                break
            part = self.socket.recv(65536)
            if not part:
                raise ValueError("the agent has closed the connection")
            self._input += part
        *lines, self._input = self._input.split(b"\n")
        if len(self._input) > _LINE_LIMIT:
            raise ValueError("a line is too long")
        messages = []
        for line in lines:
            text, _, seal = line.rpartition(b"\t")
            if not hmac.compare_digest(seal, self._seal(b"s", self._received, text)):
                raise ValueError("a seal is broken")
            self._received += 1
            try:
                message = json.loads(text)
            except ValueError:
                continue  # a later version may say anything
            if isinstance(message, dict):
                messages.append(message)
        return messages

    def close(self) -> None:
        self.socket.close()
