"""The same as driver.c, with the Python package."""

import os
import sys
import threading

import holdfast

hf = None
named = {}
say = lambda *words: print(*words, flush=True)
for line in sys.stdin:
    name, *rest = line.rstrip("\n").split(" ", 1)
    text = rest[0] if rest else ""
    words = text.split(" ")
    if name == "open":
        hf = holdfast.open()
        say(int(hf.supervised))
        continue
    assert hf is not None
    if name == "at":
        hf.at(int(words[0]), words[1])  # type: ignore[arg-type]
    elif name == "metrics":
        hf.metrics(float(words[0]), int(words[1]), float(words[2]))
    elif name == "restored":
        hf.restored(int(words[0]), words[1])
    elif name == "vote":
        names = named.pop(int(words[0]), None)
        hf.vote(int(words[0]), text.split(" ", 3)[3], files=int(words[1]) if names is None else names, bytes=int(words[2]))
    elif name == "vote_file":
        named.setdefault(int(words[0]), []).append(text.split(" ", 1)[1])
    elif name == "vote_failed":
        hf.vote_failed(int(words[0]), text.split(" ", 1)[1])
    elif name == "orders":
        order = hf.orders()
        left = -1 if order.seconds_left is None else order.seconds_left
        say(int(bool(order)), int(order.save), int(order.stop), int(order.pause), f"{left:.0f}", order.reason)
        continue
    elif name == "outcome":
        say({None: 0, True: 1, False: 2}[hf.outcome(int(words[0]))])
        continue
    elif name == "buffer":
        try:
            there = hf.buffer(words[0], int(words[1]))
        except holdfast.BuffersError as error:
            there = print(f"holdfast: {error}", file=sys.stderr)
        if there is not None:
            there[:] = words[2][0].encode() * len(there)
        say("none" if there is None else "ok")
        continue
    elif name == "seal":
        try:
            say(int(hf.seal(int(words[0]))))
        except holdfast.BuffersError as error:
            print(f"holdfast: {error}", file=sys.stderr)
            say(0)
        continue
    elif name == "seal_aside":
        aside = threading.Thread(target=hf.seal, args=(int(words[0]),))
        aside.start()
    elif name == "join":
        aside.join()
        say(1)
        continue
    elif name == "sealed":
        say(hf.sealed)
        continue
    elif name == "load":
        try:
            found = hf.load(words[0])
            say(len(found), chr(found[0]) + chr(found[-1]))
        except holdfast.BuffersError as error:
            print(f"holdfast: {error}", file=sys.stderr)
            say("none")
        continue
    elif name == "newest":
        say(hf.newest)
        continue
    elif name == "finished":
        hf.finished(int(words[0]))
    elif name == "failed":
        hf.failed(text.split(" ", 1)[1], int(words[0]))
    elif name == "fork":
        child = os.fork()
        if child == 0:
            hf.at(99)
            hf.vote(99, "child")
            hf.failed("child")
            sys.exit(int(holdfast.open().supervised) + int(bool(hf.orders())))
        say(os.waitpid(child, 0)[1])
        continue
    elif name == "close":
        hf.close()
    elif name == "exit":
        sys.exit(int(words[0]))
    else:
        say("what?", line)
        continue
    say("ok")
