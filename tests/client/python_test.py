"""The Python client by itself: its handshake and seals against an agent that is written here, versions, limits."""

import contextlib
import hashlib
import hmac
import io
import json
import math
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import holdfast
from holdfast import _buffers, _client, _link


def mac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha512).digest()[:32]


class Agent:
    """Accepts one connection after another, by the text of docs/protocol.md."""

    def __init__(self, path, key, version=2, oldest=2):
        self.key, self.version, self.oldest = key, version, oldest
        self.heard, self.refused, self.changed = [], 0, threading.Condition()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(4)
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                try:
                    self._talk(connection)
                except (OSError, ValueError, KeyError):
                    with self.changed:
                        self.refused += 1
                        self.changed.notify_all()

    def _talk(self, connection):
        lines = connection.makefile("r", newline="\n")
        mine = secrets.token_hex(32)
        hello = {"holdfast": self.version, "nonce": mine}
        if self.oldest is not None:
            hello["oldest"] = self.oldest
        connection.sendall((json.dumps(hello) + "\n").encode())
        answer = json.loads(lines.readline())
        both = mine + answer["nonce"]
        if answer["proof"] != mac(self.key, "client" + both).hex():
            raise ValueError("no proof")
        connection.sendall((json.dumps({"proof": mac(self.key, "server" + both).hex()}) + "\n").encode())
        self.session, self.sent, self.connection = mac(self.key, "session" + both), 0, connection
        for number, line in enumerate(lines):
            text, _, seal = line.rstrip("\n").rpartition("\t")
            if seal != mac(self.session, f"c{number} {text}").hex():
                raise ValueError("a broken seal")
            with self.changed:
                self.heard.append(text)
                self.changed.notify_all()

    def say(self, message, seal=None):
        text = json.dumps(message)
        seal = seal or mac(self.session, f"s{self.sent} {text}").hex()
        self.sent += 1
        self.connection.sendall(f"{text}\t{seal}\n".encode())

    def messages(self, name):
        return [m for m in (json.loads(text.split("\t")[0]) for text in self.heard) if m["m"] == name]

    def until(self, there):
        with self.changed:
            return self.changed.wait_for(there, 30)

    def close(self):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


class CopiesTest(unittest.TestCase):
    def test_a_mover_that_does_not_answer_is_awaited_once(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        waited = []
        buffers = _buffers.Buffers({"HOLDFAST_BUFFERS": folder.name, "HOLDFAST_BUFFERS_LIMIT": "1000", "HOLDFAST_BUFFERS_COPIED": "1",
                                    "HOLDFAST_ATTEMPT": "5"}, waited.append)
        def waits(step):
            before = len(waited)
            buffers.wait_for_copy(step)
            return len(waited) > before

        said = io.StringIO()
        with mock.patch.object(_buffers, "_COPY_PATIENCE_S", 0.02), contextlib.redirect_stderr(said):
            self.assertEqual([waits(step) for step in (1, 2, 3)], [True, False, False])
            pathlib.Path(folder.name, "copied").write_text("5 2\n")
            self.assertEqual([waits(step) for step in (2, 4, 5)], [False, True, False])
        self.assertEqual(said.getvalue().count("holdfast: the agent has not copied"), 1)
        self.assertIs(waited[-1], False)

    def test_what_is_not_there_is_said(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        buffers = _buffers.Buffers({"HOLDFAST_BUFFERS": folder.name, "HOLDFAST_BUFFERS_LIMIT": "1000"})
        for where, what in (("1", "its folder cannot be opened (Not a directory)"),
                            ("1/model.buffer", "its file cannot be opened (Too many levels of symbolic links)")):
            os.makedirs(os.path.dirname(os.path.join(folder.name, where)), exist_ok=True)
            os.symlink("nothing", os.path.join(folder.name, where)) if "/" in where else pathlib.Path(folder.name, where).touch()
            with self.assertRaises(_buffers.BuffersError) as caught:
                buffers.buffer("model", 10)
            self.assertEqual(str(caught.exception), "no buffer 'model': " + what)
            os.unlink(os.path.join(folder.name, where))


class ClientTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.socket = os.path.join(self.folder.name, "agent.sock")
        self.key = secrets.token_bytes(32)
        self.agent = self.client = None

    def tearDown(self):
        if self.client:
            self.client._on and self.client.close()
        if self.agent:
            self.agent.close()
        self.folder.cleanup()

    def place(self, **changes):
        key_file = os.path.join(self.folder.name, "key")
        pathlib.Path(key_file).write_text(self.key.hex() + "\n")
        environment = {"HOLDFAST_AGENT_SOCKET": self.socket, "HOLDFAST_KEY_FILE": key_file, "HOLDFAST_RANK": "0",
                       "HOLDFAST_ATTEMPT": "5", "HOLDFAST_TERM": "2", "HOLDFAST_NODE": "dgx001",
                       "HOLDFAST_DURABLE_STEPS": "300,200"}
        environment.update(changes)
        return _link.place_from({name: value for name, value in environment.items() if value is not None})

    def connect(self, **agent):
        self.agent = Agent(self.socket, self.key, **agent)
        self.client = _client.Client(self.place())

    def test_versions_that_meet(self):
        self.connect(version=7, oldest=2)
        self.assertTrue(self.agent.until(lambda: self.agent.messages("hello")))

    def test_versions_that_do_not_meet(self):
        for version, oldest in ((1, None), (3, 3), (3, None)):
            with self.assertRaises(_link.OtherVersion) as caught:
                agent = Agent(self.socket, self.key, version=version, oldest=oldest)
                try:
                    _link.Link(self.place())
                finally:
                    agent.close()
                    os.unlink(self.socket)
            self.assertIn(f"the agent speaks version {version}", str(caught.exception))

    def test_a_newer_agent_says_what_this_client_does_not_know(self):
        self.connect()
        self.agent.until(lambda: self.agent.messages("progress"))
        self.agent.say({"m": "something new", "x": [1]})
        self.agent.say({"m": "commit_outcome", "attempt": 5, "step": 20, "durable": True, "why": "", "new": {}})
        self.agent.say({"m": "drain", "stop": False, "reason": "without until"})
        self.client.vote(20, "a")
        while self.client.outcome(20) is None or not (order := self.client.orders()):
            pass
        self.assertEqual(order, holdfast.Order(save=True, reason="without until"))

    def test_a_worker_is_told_that_it_does_not_speak(self):
        self.connect()
        self.agent.until(lambda: self.agent.messages("progress"))
        self.client.failed("of a worker")
        with mock.patch("sys.stderr", io.StringIO()) as said:
            self.agent.say({"m": "not_speaker", "why": "this process, 7, is a child of process 3, which speaks for rank 0"})
            self.client._thread.join(30)
        self.assertEqual(said.getvalue(), "holdfast: this process, 7, is a child of process 3, which speaks for rank 0\n")
        self.assertFalse(self.client.supervised)
        begin = time.monotonic()
        self.client.finished(1)
        self.client.close()
        self.assertLess(time.monotonic() - begin, 1)
        self.assertEqual(self.client.newest, -1)
        self.assertEqual(len(self.agent.messages("hello")), 1)

    def test_names_as_bytes_and_what_goes_wrong(self):
        self.connect()
        folder = os.fsencode(os.path.realpath(self.folder.name))
        for name in (b"plain", b"caf\xe9"):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(b"abc")
        with mock.patch("sys.stderr", io.StringIO()) as said:
            self.client.vote(10, folder, files=[b"plain"])
            self.client.vote(20, folder, files=[b"plain", b"caf\xe9"])
            self.assertTrue(self.agent.until(lambda: len(self.agent.messages("vote")) == 2))
            with mock.patch("holdfast._files._find", side_effect=RuntimeError("odd")):
                self.client.vote(30, folder, files=["plain"])
                self.assertTrue(self.agent.until(lambda: len(self.agent.messages("vote")) == 3))
            self.client.vote(40, folder, files=["plain"])
            self.assertTrue(self.agent.until(lambda: len(self.agent.messages("vote")) == 4))
        self.assertIn("caf\\udce9", said.getvalue())
        self.assertIn("only counted", said.getvalue())
        payloads = [text.split("\t")[1] for text in self.agent.heard if json.loads(text.split("\t")[0])["m"] == "vote"]
        self.assertEqual([json.loads(payload)["files"] for payload in payloads if payload != "odd"], [1, 2, 1])
        self.assertEqual(json.loads(payloads[0])["list"][0][0], "plain")
        self.assertNotIn("list", json.loads(payloads[1]))
        self.assertEqual(payloads[2], "odd")

    def test_a_metric_that_is_no_number_silences_nobody(self):
        class Several:  # as a tensor with several elements
            def __float__(self):
                raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")
            __int__ = __float__

        self.connect()
        self.client.at(7)
        self.client.metrics(Several(), Several(), compute_s=Several())
        self.assertTrue(self.agent.until(lambda: self.agent.messages("metrics")))
        self.client.metrics(10 ** 400)
        self.client.at(8)
        self.assertTrue(self.agent.until(lambda: any(m["step"] == 8 for m in self.agent.messages("progress"))))
        self.assertIsNone(self.agent.messages("metrics")[0]["loss"])

    def test_the_handler_of_a_signal_may_speak(self):
        self.connect()

        def interrupted():
            with self.client._lock:
                self.client.failed("SIGTERM")

        thread = threading.Thread(target=interrupted, daemon=True)
        thread.start()
        thread.join(30)
        self.assertFalse(thread.is_alive())
        self.assertTrue(self.agent.until(lambda: self.agent.messages("failed")))
        self.agent.say({"m": "taken"})

    def test_words_are_utf8_whatever_the_program_says(self):
        self.connect()
        self.client.failed("no caf\udce9 " + "\u20ac" * 4096)
        self.assertTrue(self.agent.until(lambda: self.agent.messages("failed")))
        self.agent.say({"m": "taken"})
        why = self.agent.messages("failed")[0]["why"]
        self.assertEqual(why[:8], "no caf? ")
        self.assertLessEqual(len(why.encode()), 4096)

    def test_a_broken_seal_ends_the_connection(self):
        self.connect()
        self.agent.until(lambda: self.agent.messages("progress"))
        self.agent.say({"m": "drain", "stop": True, "reason": "a stranger"}, seal="0" * 64)
        self.assertTrue(self.agent.until(lambda: len(self.agent.messages("hello")) == 2))
        self.assertFalse(self.client.orders())

    def test_the_environment(self):
        self.assertIsNone(_link.place_from({}))
        place = self.place()
        self.assertEqual((place.rank, place.attempt, place.term, place.newest), (0, 5, 2, 300))
        self.assertEqual(self.place(HOLDFAST_DURABLE_STEPS="").newest, -1)
        stderr, sys.stderr = sys.stderr, open(os.devnull, "w")
        try:
            for changes in ({"HOLDFAST_RANK": "x"}, {"HOLDFAST_KEY_FILE": None}, {"HOLDFAST_KEY_FILE": "/nowhere"}):
                self.assertIsNone(self.place(**changes))
        finally:
            sys.stderr.close()
            sys.stderr = stderr

    def test_values_of_any_kind(self):
        class Number:  # as numpy's and torch's scalars
            def __float__(self):
                return 2.5

            def __int__(self):
                return 7

        self.connect()
        self.client.at(Number(), "no phase")
        self.client.metrics(Number(), Number())
        self.assertTrue(self.agent.until(lambda: self.agent.messages("metrics")))
        self.assertEqual(self.agent.messages("metrics")[0]["loss"], 2.5)
        self.assertEqual(self.agent.messages("metrics")[0]["step"], 7)
        self.client.metrics("no number", None, None)
        self.assertTrue(self.agent.until(lambda: len(self.agent.messages("metrics")) == 2))
        self.client.metrics(math.inf)
        self.assertTrue(self.agent.until(lambda: len(self.agent.messages("metrics")) == 3))
        self.assertEqual([message["loss"] for message in self.agent.messages("metrics")], [2.5, None, None])

    def test_who_waits_for_a_thread_that_waits_for_a_copy_is_not_hung(self):
        self.connect()
        self.client._buffers = _buffers.Buffers({"HOLDFAST_BUFFERS": os.path.join(self.folder.name, "rank-00000"),
                                                 "HOLDFAST_BUFFERS_LIMIT": "1000", "HOLDFAST_BUFFERS_COPIED": "1",
                                                 "HOLDFAST_ATTEMPT": "5"}, self.client._awaited)
        self.client.at(12, "optimizer")
        self.client.buffer("model", 10)
        sealing = threading.Thread(target=self.client.seal, args=(12,))
        sealing.start()
        newest = lambda: (self.agent.messages("progress") or [{"phase": ""}])[-1]
        self.assertTrue(self.agent.until(lambda: self.agent.messages("sealed") and newest()["phase"] == "optimizer"))
        self.client.held_up = True
        self.assertTrue(self.agent.until(lambda: newest()["phase"] == "finishing"))
        moves = newest()["moves"]
        self.assertTrue(self.agent.until(lambda: newest()["moves"] > moves + 1))
        pathlib.Path(self.folder.name, "rank-00000", "copied").write_text("5 12\n")
        sealing.join()
        self.client.held_up = False
        self.assertTrue(self.agent.until(lambda: newest()["phase"] == "optimizer"))

    def test_without_an_agent_nothing_happens(self):
        script = ("import holdfast, threading\nhf = holdfast.open()\nhf.at(1)\nhf.metrics(1.0)\nhf.restored(1)\n"
                  "hf.vote(1, 'a')\nhf.finished(1)\nhf.failed('x')\nhf.close()\n"
                  "print(bool(hf.orders()), hf.newest, hf.outcome(1), hf.supervised, threading.active_count())")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        said = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
        self.assertEqual((said.stdout, said.stderr), ("False -1 None False 1\n", ""))


if __name__ == "__main__":
    unittest.main()
