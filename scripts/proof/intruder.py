#!/usr/bin/env python3
"""What another user of a node can try against a run, at random, for some time. scripts/proof/intruder.sh starts one on each node.

    intruder.py SECONDS SEED OWNER RUN FIRST LAST

OWNER is the user number of the run's owner, RUN the run directory. FIRST to LAST: agents may listen on these ports, to which it
connects on every node. On its own node it also connects to all that listens on 127.0.0.1. Nothing here fills memory, disks or
tables of processes: these are limits that a site sets. Prints a line of JSON every few seconds and at its end, each with all of
the lines before, for its node may be lost: how often each attack was played ("played"), what was gained by it ("gained"), which
should be nothing, and whether it has ended ("ended").
"""
import collections
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

END, SEED, OWNER, RUN = time.monotonic() + float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
FIRST, LAST = int(sys.argv[5]), int(sys.argv[6])
SLURM_PORTS = range(6817, 6821)  # what SLURM's own daemons stand is not asked here
PLACES = ("/dev/shm", "/tmp", "/var/tmp")
MINE = f"/tmp/mine-{os.getpid()}"
draw = random.Random(SEED)
played, gained = collections.Counter(), []
held, planted = [], []


def report(ended=False):
    print(json.dumps({"node": socket.gethostname(), "played": played, "gained": gained, "ended": ended}), flush=True)


def gain(what):
    if len(gained) < 100:
        gained.append(what)
        report()


def owners_paths(most=400):
    """What of the owner's can be seen in the places that all users share, and the run directory."""
    found = [RUN]
    for place in PLACES:
        for folder, folders, files in os.walk(place):
            for name in folders + files:
                path = os.path.join(folder, name)
                try:
                    if os.lstat(path).st_uid == OWNER:
                        found.append(path)
                except OSError:
                    pass
            if len(found) > most:
                return found
    return found


def owners_processes():
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == OWNER:
                found.append(int(name))
        except OSError:
            pass
    return found


def listening():
    """(family, address, port)"""
    found = []
    for table, family, address in (("/proc/net/tcp", socket.AF_INET, "127.0.0.1"), ("/proc/net/tcp6", socket.AF_INET6, "::1")):
        try:
            lines = open(table).read().splitlines()[1:]
        except OSError:
            continue
        for words in map(str.split, lines):
            port = int(words[1].split(":")[1], 16)
            if words[3] == "0A" and port not in SLURM_PORTS and (FIRST <= port <= LAST or words[1].startswith("0100007F")):
                found.append((family, address, port))
    # Ports of the same kind on other nodes mostly have the same numbers.
    ports = {port for _, _, port in found if FIRST <= port <= LAST}
    return found + [(socket.AF_INET, host, port) for host in NEIGHBOURS for port in ports]


def connected():
    family, host, port = draw.choice(LISTENING)
    link = socket.socket(family, socket.SOCK_STREAM)
    link.settimeout(0.3)
    link.connect((host, port))
    return link


def silent_connections():
    for _ in range(draw.randint(1, 64)):
        held.append(connected())
    while len(held) > 300:
        held.pop(draw.randrange(len(held))).close()


def garbage():
    with connected() as link:
        text = draw.choice((
            draw.randbytes(draw.randint(1, 5000)),
            b"holdfast 1 client " + draw.randbytes(32).hex().encode() + b"\n",
            b'{"type":"hello","rank":0}\n' * draw.randint(1, 50),
            b"GET / HTTP/1.1\r\n\r\n",
            b"A" * 200000,
        ))
        for _ in range(draw.randint(1, 20)):
            link.sendall(text)
        link.recv(4096)


def slow_words():
    link = connected()
    link.sendall(b"holdfast")
    held.append(link)


def local_sockets():
    with open("/proc/net/unix") as table:
        paths = [words[7] for words in map(str.split, table) if len(words) > 7 and "slurm" not in words[7]]
    path = draw.choice(paths)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(0.3)
        link.connect("\0" + path[1:] if path.startswith("@") else path)
        link.sendall(b'{"type":"order","verb":"stop"}\n' * 3)
        answer = link.recv(4096)
        if answer and os.path.exists(path) and os.stat(path).st_uid == OWNER:
            gain(f"an answer of {path}")


def guessed_name():
    """A name beside the owner's: the same but for its end, or the next of its number."""
    path = draw.choice([p for p in owners_paths() if p != RUN] or [f"/dev/shm/holdfast-{draw.getrandbits(32):08x}"])
    stem = path.rstrip("0123456789abcdef")
    return draw.choice((
        stem + draw.randbytes(max(1, (len(path) - len(stem)) // 2)).hex(),
        f"{path}.{draw.randint(0, 9)}", f"{path}.new", f"{path}.tmp-{draw.randint(1, 40000)}",
        os.path.join(draw.choice(PLACES), f"holdfast-{draw.choice(('flight', 'scratch', 'local'))}-{draw.getrandbits(32):08x}"),
        os.path.join(draw.choice(PLACES), f"vader_segment.{socket.gethostname()}.{draw.getrandbits(16):x}.{draw.randint(0, 9)}"),
    ))


def plant():
    """Of a name that the owner may use next: a folder for all, a file, a FIFO, a link."""
    path = guessed_name()
    if os.path.lexists(path):
        return
    kind = draw.choice(("folder", "file", "fifo", "link", "trap"))
    if kind == "folder":
        os.mkdir(path)
        os.chmod(path, 0o777)
    elif kind == "file":
        with open(path, "xb") as file:
            file.write(draw.randbytes(100))
    elif kind == "fifo":
        os.mkfifo(path, 0o666)
    else:
        os.symlink(MINE if kind == "link" else draw.choice(owners_paths()), path)
    planted.append(path)
    while len(planted) > 200:
        remove(planted.pop(0))


def remove(path):
    try:
        shutil.rmtree(path) if os.path.isdir(path) and not os.path.islink(path) else os.unlink(path)
    except OSError:
        pass


def taken_from_us():
    """Nothing of the owner's comes into what was planted."""
    for path in [MINE, *planted]:
        if os.path.isdir(path) and not os.path.islink(path):
            for name in os.listdir(path):
                if os.lstat(os.path.join(path, name)).st_uid == OWNER:
                    gain(f"the owner wrote {name} into {path}")


def touch_files():
    path = draw.choice(owners_paths())
    tries = {
        "read": lambda: os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK)),
        "write": lambda: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK)),
        "cut": lambda: os.truncate(path, 0),
        "list": lambda: os.listdir(path),
        "mode": lambda: os.chmod(path, 0o777),
        "rename": lambda: os.rename(path, os.path.join(os.path.dirname(path), "moved")),
        "hard link": lambda: os.link(path, f"{MINE}/link-{draw.getrandbits(32)}"),
        "put": lambda: os.close(os.open(f"{path}/put", os.O_WRONLY | os.O_CREAT)),
        "remove": lambda: os.rmdir(path) if os.path.isdir(path) else os.unlink(path),
    }
    how = draw.choice(list(tries))
    if not os.path.lexists(path) or os.lstat(path).st_uid != OWNER:
        return
    tries[how]()
    gain(f"{how} {path}")


def touch_processes():
    pid = draw.choice(owners_processes())
    how = draw.choice(("signal", "environ", "mem", "maps", "fd", "cwd"))
    if how == "signal":
        os.kill(pid, draw.choice((signal.SIGTERM, signal.SIGSTOP, signal.SIGUSR1)))
    elif how == "fd":
        os.listdir(f"/proc/{pid}/fd")
    elif how == "cwd":
        os.readlink(f"/proc/{pid}/cwd")
    else:
        with open(f"/proc/{pid}/{how}", "rb") as file:
            if not file.read(1):
                return  # it has ended
    gain(f"{how} of process {pid}")


def remove_segments():
    with open("/proc/sysvipc/shm") as table:
        segments = [words for words in map(str.split, table) if len(words) > 7 and words[7] == str(OWNER)]
    segment = draw.choice(segments)
    if subprocess.run(["ipcrm", "-m", segment[1]], capture_output=True).returncode == 0:
        gain(f"System V memory {segment[1]}")


def claims():
    """Words of a node's kernel, and orders."""
    how = draw.choice(("kernel", "order", "inject", "cancel"))
    if how == "kernel":
        with open("/dev/kmsg", "w") as file:
            file.write("NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n")
        gain("a line of the kernel's log")
        return
    command = {"order": ["holdfast", "ctl", RUN, "stop"], "inject": ["holdfast", "inject", RUN, socket.gethostname(), "kill_agent"],
               "cancel": ["scancel", "--user", str(OWNER)]}[how]
    code = subprocess.run(command, capture_output=True, timeout=30).returncode
    if how != "cancel" and code == 0:  # scancel says 0 where it finds nothing of ours
        gain(" ".join(command))


ATTACKS = {silent_connections: 4, garbage: 8, slow_words: 4, local_sockets: 4, plant: 8, taken_from_us: 1, touch_files: 12,
           touch_processes: 6, remove_segments: 1, claims: 1}
NEIGHBOURS = [line.split()[0] for line in open("/etc/hosts") if " dgx" in line or "\tdgx" in line][:8]
LISTENING = []


def main():
    os.mkdir(MINE)
    os.chmod(MINE, 0o777)
    looked = 0
    while time.monotonic() < END:
        if not LISTENING or time.monotonic() - looked > 5:
            LISTENING[:], looked = listening(), time.monotonic()
            report()
        attack = draw.choices(list(ATTACKS), ATTACKS.values())[0]
        played[attack.__name__] += 1
        try:
            attack()
        except (OSError, IndexError, subprocess.SubprocessError):
            pass  # it was refused, or there is nothing to play it with
        time.sleep(draw.uniform(0, 0.1))
    for path in planted:
        remove(path)
    shutil.rmtree(MINE, ignore_errors=True)
    report(ended=True)


main()
