"""Fresh worker processes for repeated calls, without state of earlier ones.

The tests connect once for themselves and once for each call to come, before any code of the
candidate runs. A process that never runs such code, and that no process of its user can read or
trace, holds these connections. It serves each in a process of its own; before each it ends every
process that the one before started and empties the folders that it could write.

What the kernel remembers beside them (closed connections, ids that count on) belongs to
namespaces. Where the node lets a process have its own, each worker has new ones. Where it does not,
as under the usual profile of seccomp, no worker can make what would be remembered: see
``FORBIDDEN``.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import resource
import select
import signal
import socket
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

SET_DUMPABLE, SET_SECCOMP, SET_SUBREAPER, SET_NO_NEW_PRIVILEGES = 4, 22, 36, 38
"""Options of prctl(2)."""

NAMESPACES = 0x10000000 | 0x40000000 | 0x08000000 | 0x20000000 | 0x00020000
"""Of users, network, IPC, processes and mounts, for unshare(2)."""

HARDENED = 2 | 4 | 8
"""Flags of a mount: no set-id bits, devices or programs."""

GET_FLAGS, SET_FLAGS, UP = 0x8913, 0x8914, 1
"""Of a network interface, see netdevice(7)."""

MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""Name of an architecture for the kernel's audit, and its place in ``FORBIDDEN``."""

SOCKET = (41, 198)
"""Number of the system call; sockets that are files stay."""

FORBIDDEN = {
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "io_uring_setup": (425, 425),
    "ioprio_set": (251, 30),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
}
"""System calls of a worker that makes something which outlives it, or reaches its parent by it."""

RESOURCES = range(16)
"""Numbers of all resource limits."""

CHILDREN = "/proc/thread-self/children"

END_SECONDS = 20.0
PAUSE_SECONDS = 0.002

Work = Any
"""What serves one connection, a socket, to its end."""


class LeftoverError(Exception):
    """Something of an earlier worker stays."""


def prepare() -> Callable[[], None]:
    """Become the reaper of all processes below, which cannot read or trace this one.

    Returns:
        What a new process does to be fresh.

    Raises:
        OSError: The kernel refuses.
    """
    _control(SET_SUBREAPER, 1)
    _control(SET_DUMPABLE, 0)
    way = next(filter(_is_possible, (enter_namespaces, forbid)), None)
    if way is None:
        raise OSError(errno.ENOSYS, "no worker can be fresh here")
    return way


def serve(
    isolate: Callable[[], None],
    listener: socket.socket,
    repeats: int,
    folders: Sequence[str],
    work: Work,
) -> None:
    """Serve the tests, then each of the calls that they make again; after ``prepare``.

    Args:
        isolate: What that returned.
        listener: Where they connect.
        repeats: So many connections follow their first one.
        folders: All that candidate code can write; those that are not there do not count.
        work: Serves one connection.

    Raises:
        LeftoverError, OSError: A worker would not be fresh. There is none, and the tests fail.
    """
    connections = [listener.accept()[0] for _ in range(1 + repeats)]
    listener.close()
    state = _process_state()
    while connections:
        # Its first message comes when the tests are done with the connection before.
        select.select(connections[:1], [], [])
        _end_children()
        for folder in filter(os.path.isdir, folders):
            _empty(folder)
            with contextlib.suppress(OSError):  # not ours to change
                os.utime(folder)  # else it says whether anything was there
        if _process_state() != state:
            raise LeftoverError("a limit of this process")
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, range(os.cpu_count() or 1))
        worker = os.fork()
        if worker == 0:
            _be_worker(connections, isolate, work)
        connections.pop(0).close()
    os.waitpid(worker, 0)


def _be_worker(
    connections: Sequence[socket.socket], isolate: Callable[[], None], work: Work
) -> NoReturn:
    try:
        for other in connections[1:]:
            other.close()
        isolate()
        _control(SET_DUMPABLE, 1)
        work(connections[0])
    finally:
        os._exit(0)


def _is_possible(isolate: Callable[[], None]) -> bool:
    child = os.fork()
    if child == 0:
        try:
            isolate()
        except BaseException:  # noqa: BLE001  # whatever it is, it is not possible
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def enter_namespaces() -> None:
    """Return in a new process, the second one of namespaces of its own; this one ends with it.

    Raises:
        OSError: The node lets nobody do this.
    """
    user, group = os.getuid(), os.getgid()
    _control(SET_DUMPABLE, 1)  # its files below belong to others otherwise
    _call("unshare", NAMESPACES)
    for name, text in (("setgroups", "deny"), ("uid_map", user), ("gid_map", group)):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:  # noqa: PTH123
            file.write(text if isinstance(text, str) else f"{text} {text} 1")
    _bring_up_loopback()
    _control(SET_DUMPABLE, 0)
    _end_with_child()  # the first process of the namespaces, whom signals do not end
    with contextlib.suppress(OSError):  # refused where a part of /proc is hidden
        _call("mount", b"proc", b"/proc", b"proc", HARDENED, None)
    _end_with_child()
    header, nothing = struct.pack("Ii", 0x20080522, 0), bytes(24)
    _call("capset", header, nothing)


def _end_with_child() -> None:
    """Return in a new process, whose exit code this one takes over."""
    child = os.fork()
    while child:
        ended, status = os.wait()
        if ended == child:
            os._exit(min(status, 1))


def _bring_up_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh22x", b"lo", 0)
        flags = struct.unpack_from("16sh", fcntl.ioctl(any_socket, GET_FLAGS, request))[1]
        if not flags & UP:
            fcntl.ioctl(any_socket, SET_FLAGS, struct.pack("16sh22x", b"lo", flags | UP))


def forbid() -> None:
    """Have the kernel refuse ``FORBIDDEN`` and all sockets but those that are files, for good.

    Raises:
        OSError: The kernel cannot, or no numbers are known for this machine.
    """
    if os.uname().machine not in MACHINES:
        raise OSError(errno.ENOSYS, os.uname().machine)
    machine, column = MACHINES[os.uname().machine]
    load, equal, at_least, end = 0x20, 0x15, 0x35, 0x06
    refused = (end, 0, 0, 0x00050000 | errno.EPERM)
    steps = [(load, 0, 0, 4), (equal, 1, 0, machine), refused, (load, 0, 0, 0)]
    steps += [(at_least, 0, 1, 0x40000000), refused]  # numbers of another interface
    for numbers in FORBIDDEN.values():
        steps += [(equal, 0, 1, numbers[column]), refused]
    steps += [(equal, 0, 3, SOCKET[column]), (load, 0, 0, 16), (equal, 1, 0, socket.AF_UNIX)]
    steps += [(end, 0, 0, 0x00050000 | errno.EAFNOSUPPORT), (end, 0, 0, 0x7FFF0000)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    _control(SET_NO_NEW_PRIVILEGES, 1)
    filtered = ctypes.create_string_buffer(struct.pack("HP", len(steps), ctypes.addressof(program)))
    _control(SET_SECCOMP, 2, ctypes.addressof(filtered))


def _end_children() -> None:
    """End all processes below this one, or raise LeftoverError."""
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        for child in _lines(CHILDREN)[0]:
            os.kill(int(child), signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        time.sleep(PAUSE_SECONDS)
    raise LeftoverError("a process cannot be ended")


def _empty(folder: str) -> None:
    """Remove all that a folder holds and what its attributes say; OSError where something stays."""
    for name in _attributes(folder):
        os.removexattr(folder, name)
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(PermissionError):  # not ours: it is empty, or stays
                    os.chmod(entry.path, 0o700)  # noqa: PTH101
                _empty(entry.path)
                os.rmdir(entry.path)  # noqa: PTH106
            else:
                os.unlink(entry.path)  # noqa: PTH108


def _attributes(folder: str) -> list[str]:
    try:
        return [name for name in os.listxattr(folder) if name.startswith("user.")]
    except OSError:
        return []  # the file system has none


def _process_state() -> object:
    """Return what processes of this user can change in this one, and later ones inherit."""
    return os.nice(0), [resource.getrlimit(number) for number in RESOURCES]


def _lines(path: str) -> list[list[str]]:
    with open(path, encoding="ascii") as file:  # noqa: PTH123  # pathlib is slow to load
        return [line.split() for line in file] or [[]]


def _control(option: int, *values: int) -> None:
    padded = [*values, 0, 0, 0][:4]
    _call("prctl", option, *map(ctypes.c_ulong, padded))


def _call(name: str, *arguments: Any) -> None:
    if getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)
