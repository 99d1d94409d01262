#!/usr/bin/env python3
"""Nanoseconds of a call of the client, in C and in Python, with an agent that listens and without one; seconds of
sealing snapshot buffers of 1 GiB in /dev/shm, without a partner and with one; rates of movers and of the trainer's exchange.
client.py BUILD; for scripts/bench/client.sh."""

import json
import os
import pathlib
import secrets
import subprocess
import sys
import tempfile
import threading

source = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(source / "tests/client"), str(source / "client/python")]
from python_test import Agent  # noqa: E402

PYTHON = r"""
import json, statistics, time, holdfast
hf = holdfast.open()
def measure(call, calls=200000, rounds=11):
    each = []
    for _ in range(rounds):
        begin = time.perf_counter_ns()
        for i in range(calls): call(i)
        each.append((time.perf_counter_ns() - begin) / calls)
    return {"median_ns": round(statistics.median(each), 1), "slowest_round_ns": round(max(each), 1)}
print(json.dumps({"agent": hf.supervised, "at": measure(lambda i: hf.at(i, "forward")),
                  "metrics": measure(lambda i: hf.metrics(1.0, i, 0.25)), "orders": measure(lambda i: hf.orders()),
                  "nothing": measure(lambda i: None)}))
"""


SEALS = r"""
import json, statistics, sys, time, holdfast
hf, size, seals, copies = holdfast.open(), int(sys.argv[1]), [], []
source = bytes(size)
for step in range(11):
    buffer = hf.buffer("bench", size)
    begin = time.perf_counter()
    buffer[:] = source
    copied = time.perf_counter()
    hf.seal(step)
    copies.append(copied - begin), seals.append(time.perf_counter() - copied)
print(json.dumps({"agent": True, "bytes": size, "seal_s": round(statistics.median(seals), 4),
                  "copy_s": round(statistics.median(copies), 4)}))
"""
SEALED = 1 << 30


def run(argv, environment):
    return json.loads(subprocess.run(argv, env=environment, check=True, capture_output=True, text=True).stdout)


def seals_of(commands, agent, environment, movers=None):
    """`movers`: hear of each seal, and copy it."""
    over = threading.Event()
    before = len(agent.messages("sealed"))

    def tell():
        told = before
        while not over.is_set():
            with agent.changed:
                agent.changed.wait_for(lambda: len(agent.messages("sealed")) > told, 0.1)
            for _ in range(len(agent.messages("sealed")) - told):
                told += 1
                movers.stdin.write("sealed\n")
                movers.stdin.flush()

    teller = threading.Thread(target=tell)
    if movers:
        teller.start()
    try:
        return {language: run([*argv, str(SEALED)], environment) for language, argv in commands.items()}
    finally:
        over.set()
        if movers:
            teller.join()


def rates_of_movers(program):
    rates = []
    for ranks in (1, 4):
        with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
            rates.append(run([program, "rate", memory, "256", "9", str(ranks)], os.environ))
    return rates


def rates_of_exchange(program):
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    argv = ["mpirun", "-n", "2", "--oversubscribe", "--bind-to", "none", program, "lo", "9"]
    lines = subprocess.run(argv, env=environment, check=True, capture_output=True, text=True).stdout.splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def main():
    build = pathlib.Path(sys.argv[1])
    client_bench, mover_bench = str(build / "tests/client/client_bench"), str(build / "tests/launcher/mover_bench")
    bare = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    bare["PYTHONPATH"] = str(source / "client/python")
    results = {"cores": os.cpu_count(), "c": [], "python": []}
    with tempfile.TemporaryDirectory() as folder:
        key = secrets.token_bytes(32)
        path = os.path.join(folder, "agent.sock")
        pathlib.Path(folder, "key").write_text(key.hex())
        agent = Agent(path, key)
        place = {"AGENT_SOCKET": path, "KEY_FILE": os.path.join(folder, "key"), "RANK": "0", "ATTEMPT": "1", "TERM": "1"}
        supervised = {**bare, **{"HOLDFAST_" + name: value for name, value in place.items()}}
        for environment in (supervised, bare):
            for language, argv in (("c", [client_bench]), ("python", [sys.executable, "-c", PYTHON])):
                heard = len(agent.heard)
                result = run(argv, environment)
                result["messages"] = len(agent.heard) - heard
                if bool(result["messages"]) != result["agent"]:
                    sys.exit(f"{language}: agent {result['agent']}, and {result['messages']} messages came")
                results[language].append(result)
        commands = {"c": [client_bench], "python": [sys.executable, "-c", SEALS]}
        kept = {**supervised, "HOLDFAST_BUFFERS_LIMIT": str(2 * SEALED), "HOLDFAST_WORLD": "1"}
        with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
            results["seal"] = seals_of(commands, agent, {**kept, "HOLDFAST_BUFFERS": os.path.join(memory, "rank-00000")})
        results["seal_copied"] = {}
        for language, argv in commands.items():
            with tempfile.TemporaryDirectory(dir="/dev/shm") as memory, subprocess.Popen(
                    [mover_bench, "serve", memory], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as movers:
                copied = {**kept, "HOLDFAST_BUFFERS": movers.stdout.readline().strip(), "HOLDFAST_BUFFERS_COPIED": "1"}
                results["seal_copied"].update(seals_of({language: argv}, agent, copied, movers))
                movers.stdin.close()
        agent.close()
    results["mover"] = rates_of_movers(mover_bench)
    results["exchange"] = rates_of_exchange(str(build / "tests/comm/state_pull_bench"))
    print("RESULT " + json.dumps(results))


main()
