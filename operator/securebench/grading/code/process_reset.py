"""Workers for calls that are made again: nothing that an earlier one left is there.

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
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SET_DUMPABLE, SET_SUBREAPER = 4, 36
"""Options of prctl(2)."""

CHILDREN = "/proc/thread-self/children"
RESOURCES = range(16)
"""Numbers of all resource limits."""

IPC = ("/proc/sysvipc/shm", "/proc/sysvipc/sem", "/proc/sysvipc/msg")
"""What outlives processes and is no file."""

END_SECONDS = 20.0
PAUSE_SECONDS = 0.002


class LeftoverError(Exception):
    """Something of an earlier worker stays."""


def serve(
    listener: socket.socket,
    repeats: int,
    folders: Sequence[str],
    work: Callable[[socket.socket], object],
) -> None:
    """Serve the tests, then each of the calls that they make again.

    Args:
        listener: Where they connect.
        repeats: So many connections follow their first one.
        folders: All that candidate code can write; those that are not there do not count.
        work: Serves one connection to its end.

    Raises:
        LeftoverError, OSError: A worker would not be fresh. There is none, and the tests fail.
    """
    _control(SET_SUBREAPER, 1)
    _control(SET_DUMPABLE, 0)
    connections = _connected(listener, repeats, work)
    listener.close()
    state = _process_state()
    while connections:
        # Its first message comes when the tests are done with the connection before.
        select.select(connections[:1], [], [])
        end_children()
        for folder in filter(os.path.isdir, folders):
            empty(folder)
        if _process_state() != state:
            raise LeftoverError("a limit of this process or a memory that lasts")
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, range(os.cpu_count() or 1))
        worker = os.fork()
        if worker == 0:
            _be_worker(connections, work)
        connections.pop(0).close()
    os.waitpid(worker, 0)


def end_children() -> None:
    """End all processes below this one.

    Raises:
        LeftoverError: One does not end.
    """
    deadline = time.monotonic() + END_SECONDS
    while time.monotonic() < deadline:
        with open(CHILDREN, encoding="ascii") as file:  # noqa: PTH123  # pathlib is slow to load
            children = [int(word) for word in file.read().split()]
        for child in children:
            os.kill(child, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                continue
        except ChildProcessError:
            return
        time.sleep(PAUSE_SECONDS)
    raise LeftoverError("a process cannot be ended")


def empty(folder: str) -> None:
    """Remove all that a folder holds, and what its attributes say.

    Raises:
        OSError: Something stays.
    """
    for name in _attributes(folder):
        os.removexattr(folder, name)
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                with contextlib.suppress(PermissionError):  # not ours: it is empty, or stays
                    os.chmod(entry.path, 0o700)  # noqa: PTH101
                empty(entry.path)
                os.rmdir(entry.path)  # noqa: PTH106
            else:
                os.unlink(entry.path)  # noqa: PTH108


def _attributes(folder: str) -> list[str]:
    try:
        return [name for name in os.listxattr(folder) if name.startswith("user.")]
    except OSError:
        return []  # the file system has none


def _connected(
    listener: socket.socket, repeats: int, work: Callable[[socket.socket], object]
) -> list[socket.socket]:
    """Return the connections of the tests; until they come, answer who asks for a worker."""
    while True:
        first, _ = listener.accept()
        select.select([first], [], [])
        if select.select([listener], [], [], 0)[0]:
            return [first, *(listener.accept()[0] for _ in range(repeats))]
        work(first)
        first.close()


def _be_worker(
    connections: Sequence[socket.socket], work: Callable[[socket.socket], object]
) -> NoReturn:
    try:
        for other in connections[1:]:
            other.close()
        _control(SET_DUMPABLE, 1)
        work(connections[0])
    finally:
        os._exit(0)


def _process_state() -> object:
    """Return what processes of this user can change and later ones find, other than files."""
    limits = [resource.getrlimit(number) for number in RESOURCES]
    return os.nice(0), limits, [_keys(path) for path in IPC]


def _keys(path: str) -> list[list[str]]:
    try:
        with open(path, encoding="ascii") as file:  # noqa: PTH123
            return [line.split()[:2] for line in file]
    except OSError:
        return []  # this kernel has none


def _control(option: int, value: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    arguments = [ctypes.c_ulong(number) for number in (value, 0, 0, 0)]
    if library.prctl(ctypes.c_int(option), *arguments) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
