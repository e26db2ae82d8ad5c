"""Fresh worker processes for repeated calls, without state of earlier ones.

The tests connect once for themselves and once for each call to come, before any code of the
candidate runs. A process that never runs such code, and that no process of its user can read or
trace, holds these connections. It serves each in a process of its own; before each it ends every
process that the one before started and empties the folders that it could write.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Sequence
from typing import Any, NoReturn

SET_DUMPABLE, SET_SUBREAPER = 4, 36
"""Options of prctl(2)."""

RESOURCES = range(16)
"""Numbers of all resource limits."""

CHILDREN = "/proc/thread-self/children"
IPC = ("/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg")
"""What outlives processes and is no file."""

END_SECONDS = 20.0
PAUSE_SECONDS = 0.002

Work = Any
"""What serves one connection, a socket, to its end."""


class LeftoverError(Exception):
    """Something of an earlier worker stays."""


def prepare() -> None:
    """Become the reaper of all processes below, which cannot read or trace this one.

    Raises:
        OSError: The kernel refuses.
    """
    _control(SET_SUBREAPER, 1)
    _control(SET_DUMPABLE, 0)


def serve(listener: socket.socket, repeats: int, folders: Sequence[str], work: Work) -> None:
    """Serve the tests, then each of the calls that they make again; after ``prepare``.

    Args:
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
        if _process_state() != state:
            raise LeftoverError("a limit of this process or a memory that lasts")
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, range(os.cpu_count() or 1))
        worker = os.fork()
        if worker == 0:
            _be_worker(connections, work)
        connections.pop(0).close()
    os.waitpid(worker, 0)


def _be_worker(connections: Sequence[socket.socket], work: Work) -> NoReturn:
    try:
        for other in connections[1:]:
            other.close()
        _control(SET_DUMPABLE, 1)
        work(connections[0])
    finally:
        os._exit(0)


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
    """Return what processes of this user can change and later ones find, other than files."""
    limits = [resource.getrlimit(number) for number in RESOURCES]
    readable = [path for path in IPC if os.access(path, os.R_OK)]  # not every kernel has them
    objects = [[words[:2] for words in _lines(path)] for path in readable]
    return os.nice(0), limits, objects


def _lines(path: str) -> list[list[str]]:
    with open(path, encoding="ascii") as file:  # noqa: PTH123  # pathlib is slow to load
        return [line.split() for line in file] or [[]]


def _control(option: int, value: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    arguments = [ctypes.c_ulong(number) for number in (value, 0, 0, 0)]
    if library.prctl(ctypes.c_int(option), *arguments) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
