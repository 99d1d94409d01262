#!/usr/bin/env python3
"""What another user does to the files of a run's owner on a minipod, as the kernel tells it (fanotify).

    watch_files.py OWNER OTHER

Both are numbers of users. scripts/proof/intruder.sh runs it as root on the login host of a minipod whose folder is a file system of
its own. It watches that one (shared storage, the nodes' disks) and the /tmp and /dev/shm of every node, those of revived nodes
too. Who opens a file or a folder waits until the watch has looked who it is, so none has ended before; who creates, moves,
removes or changes something is looked up afterwards, and may have. Prints lines of JSON:
{"ready": true} once it watches all nodes, then one for each thing that OTHER does to what is OWNER's, and at its end, when it
reads something, one that counts what it saw.
"""
import collections
import ctypes
import json
import os
import pathlib
import select
import struct
import sys
import threading
import time

OWNER, OTHER = map(int, sys.argv[1:])
NODES, SHARED = pathlib.Path("/run/minipod/nodes"), "/shared"
MODIFY, ATTRIB, MOVED_FROM, MOVED_TO, CREATE, DELETE, OVERFLOW, OPEN_PERM, ONDIR = (
    0x2, 0x4, 0x40, 0x80, 0x100, 0x200, 0x4000, 0x10000, 0x40000000)
NAMES = {MODIFY: "modify", ATTRIB: "attributes", MOVED_FROM: "move away", MOVED_TO: "move here", CREATE: "create", DELETE: "remove"}
DFID_NAME, ALLOW = 2, 1  # a record that names a folder and an entry of it; the answer to one who waits
libc = ctypes.CDLL(None, use_errno=True)


def call(name, *arguments):
    result = getattr(libc, name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


# CLOEXEC, queues and marks without a limit; the first with CLASS_CONTENT, the second with REPORT_DIR_FID and REPORT_NAME.
OPENS = call("fanotify_init", 0x35, os.O_RDONLY | os.O_CLOEXEC | os.O_LARGEFILE)
CHANGES = call("fanotify_init", 0x31 | 0xC00, os.O_RDONLY | os.O_CLOEXEC)
counts = collections.Counter(opens=0, opens_of_other=0, changes=0, changes_of_other=0, changes_of_unknown=0)
systems = {}  # number of a file system: a descriptor in it
of_node = {}  # (node, place): (process 1 of the node, number of the file system)
owners = set()  # (device, inode, name) of entries of OWNER's; the first two are the folder's


def key(folder, name):
    return folder.st_dev, folder.st_ino, name


def mark(path, group, mask):
    """All of its file system."""
    call("fanotify_mark", group, 0x101, ctypes.c_uint64(mask), -100, os.fsencode(path))


def watch(path):
    system = os.statvfs(path).f_fsid
    systems[system] = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    mark(path, CHANGES, MODIFY | ATTRIB | MOVED_FROM | MOVED_TO | CREATE | DELETE | ONDIR)
    for folder, folders, files in os.walk(path):
        for name in folders + files:
            entry = stat(os.path.join(folder, name))
            if entry and entry.st_uid == OWNER:
                owners.add(key(os.stat(folder), name))
    mark(path, OPENS, OPEN_PERM | ONDIR)
    return system


def watch_nodes():
    """Those that have begun since; what is watched on one that has ended is let go."""
    for node in NODES.iterdir():
        try:
            process = int((node / "pid").read_text())
            for place in ("tmp", "dev/shm"):
                before, system = of_node.get((node, place), (None, None))
                if before != process:
                    of_node[node, place] = process, watch(f"/proc/{process}/root/{place}")
                    if system is not None:
                        os.close(systems.pop(system))
        except (OSError, ValueError):
            pass  # it begins, or is gone


def stat(path, at=None):
    try:
        return os.stat(path, dir_fd=at, follow_symlinks=False)
    except OSError:
        return None


def user_of(process):
    """None: it has ended."""
    try:
        with open(f"/proc/{process}/status") as status:
            users = next(line for line in status if line.startswith("Uid:")).split()[1:]
        return OTHER if str(OTHER) in users else int(users[0])
    except (OSError, StopIteration):
        return None


def say(**line):
    os.write(1, (json.dumps(line) + "\n").encode())


def events(group):
    """Waits for some. (mask, descriptor, process, what follows)"""
    data = os.read(group, 1 << 18)
    while data:
        length, _, _, begin, mask, descriptor, process = struct.unpack_from("=IBBHQii", data)
        yield mask, descriptor, process, data[begin:length]
        data = data[length:]


def answer_opens():
    """In a thread of its own, which opens nothing but of /proc: what the others open here waits for it, too."""
    while True:
        for _, opened, process, _ in events(OPENS):
            answer(opened, process)


def answer(opened, process):
    try:
        counts["opens"] += 1
        if user_of(process) == OTHER:
            counts["opens_of_other"] += 1
            if os.fstat(opened).st_uid == OWNER:
                say(what="open", path=os.readlink(f"/proc/self/fd/{opened}"))
    finally:
        os.write(OPENS, struct.pack("=iI", opened, ALLOW))
        os.close(opened)


def look_at_changes():
    for mask, _, process, record in events(CHANGES):
        if mask & OVERFLOW:
            say(what="overflow", path="")
            continue
        kind, _, _, system, size = struct.unpack_from("=BBHQI", record)
        if kind != DFID_NAME or system not in systems:
            continue  # of a node that has ended
        handle, name = record[12:20 + size], os.fsdecode(record[20 + size:].split(b"\0")[0])
        user = user_of(process)
        counts["changes"] += 1
        counts["changes_of_other"] += user == OTHER
        at = libc.open_by_handle_at(systems[system], handle, os.O_PATH | os.O_CLOEXEC)
        if at < 0:
            continue  # the folder is gone; its own end is another event
        folder, entry = os.fstat(at), stat(name, at)
        mine = {folder.st_uid, entry.st_uid if entry else OWNER if key(folder, name) in owners else None}
        if OWNER in mine:
            counts["changes_of_unknown"] += user is None
            if user == OTHER:
                what = ", ".join(word for bit, word in NAMES.items() if mask & bit)
                say(what=what, path=os.path.join(os.readlink(f"/proc/self/fd/{at}"), name))
        if entry and entry.st_uid == OWNER:
            owners.add(key(folder, name))
        else:
            owners.discard(key(folder, name))
        os.close(at)


def main():
    threading.Thread(target=answer_opens, daemon=True).start()
    watch(SHARED)
    watch_nodes()
    say(ready=True)
    poll = select.poll()
    poll.register(0, select.POLLIN)
    poll.register(CHANGES, select.POLLIN)
    looked = 0
    while True:
        ready = {descriptor for descriptor, _ in poll.poll(500)}
        if 0 in ready:
            break
        if CHANGES in ready:
            look_at_changes()
        if time.monotonic() - looked > 0.5:
            watch_nodes()
            looked = time.monotonic()
    say(**counts)


main()
