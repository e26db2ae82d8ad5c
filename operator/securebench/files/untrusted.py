"""Reading in folders that untrusted code could fill: no link is ever followed."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Not blocking: the opening of a FIFO must return."""

DISK_ERRORS = frozenset({errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ESTALE})
"""Errors of a disk, whatever lies on it: they say nothing about what the agent left."""


class UnreadableError(Exception):
    """There is no such regular file; the message is one plain sentence."""


@contextmanager
def open_root(path: Path) -> Iterator[int]:
    """Open a folder whose own path is trusted; yields its descriptor."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def open_regular(root: int, path: str) -> Iterator[BinaryIO]:
    """Open a regular file below a folder, one component at a time.

    Args:
        root: Descriptor of the folder.
        path: Clean relative path.

    Raises:
        UnreadableError: There is no such file, it is not a regular one, or a link is on the way.
    """
    *folders, name = path.split("/")
    parent = os.dup(root)
    try:
        for component in folders:
            child = _enter(parent, component, path)
            os.close(parent)
            parent = child
        descriptor = _open_file_at(parent, name, path)
    finally:
        os.close(parent)
    with os.fdopen(descriptor, "rb") as file:
        yield file


def _open_file_at(parent: int, name: str, path: str) -> int:
    mode = _mode_at(parent, name, path)
    if not stat.S_ISREG(mode):
        raise UnreadableError(f"{path} is {_kind(mode)}, not a regular file")
    try:
        descriptor = os.open(name, FILE, dir_fd=parent)
    except OSError as error:
        raise _refusal(error, path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableError(f"{path} changed while it was opened")
    return descriptor


def _enter(parent: int, name: str, path: str) -> int:
    mode = _mode_at(parent, name, path)
    if stat.S_ISLNK(mode):
        raise UnreadableError(f"a symbolic link is on the way to {path}")
    if not stat.S_ISDIR(mode):
        raise UnreadableError(f"{path} does not exist")
    try:
        return os.open(name, FOLDER, dir_fd=parent)
    except OSError as error:
        raise _refusal(error, path) from error


def _mode_at(parent: int, name: str, path: str) -> int:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except OSError as error:
        raise _refusal(error, path) from error


def _refusal(error: OSError, path: str) -> Exception:
    if error.errno in DISK_ERRORS:
        return error
    if error.errno in {errno.ENOENT, errno.ENOTDIR}:
        return UnreadableError(f"{path} does not exist")
    return UnreadableError(f"{path} cannot be read: {os.strerror(error.errno or 0)}")


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")
