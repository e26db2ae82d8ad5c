"""Reading and writing in folders that untrusted code could fill: no link is ever followed."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.files.durable import FILE_MODE
from securebench.protocol.extraction import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Not blocking: the opening of a FIFO must return."""

DISK_ERRORS = frozenset({errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ESTALE})
"""Errors of a disk, whatever lies on it: they say nothing about what the agent left."""


class UnreadableError(Exception):
    """What the agent left is no candidate; the sealing turns this into data."""

    def __init__(self, problem: Problem, message: str) -> None:
        super().__init__(message)
        self.problem = problem
        self.message = message


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
        descriptor = open_file_at(parent, name, path)
    finally:
        os.close(parent)
    with os.fdopen(descriptor, "rb") as file:
        yield file


def open_file_at(parent: int, name: str | bytes, path: str) -> int:
    """Open a regular file in a folder and return its descriptor.

    Args:
        parent: Descriptor of the folder.
        name: Name of the file.
        path: What a message calls it.

    Raises:
        UnreadableError: It is missing, no regular file, or not readable.
    """
    mode = _mode_at(parent, name, path)
    if not stat.S_ISREG(mode):
        raise UnreadableError(Problem.INVALID, f"{path} is {_kind(mode)}, not a regular file")
    try:
        descriptor = os.open(name, FILE, dir_fd=parent)
    except OSError as error:
        raise _refusal(error, path) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableError(Problem.INVALID, f"{path} changed while it was opened")
    return descriptor


def read_regular(root: int, path: str, limit: int) -> bytes:
    """Return the content of a regular file.

    Args:
        root: Descriptor of the folder that the path starts from.
        path: Clean relative path.
        limit: Largest size in bytes.

    Raises:
        UnreadableError: There is no such file, or it is larger.
    """
    with open_regular(root, path) as file:
        size = os.fstat(file.fileno()).st_size
        content = file.read(limit + 1) if size <= limit else b""
    if size > limit or len(content) > limit:
        raise UnreadableError(Problem.TOO_LARGE, f"{path} has more than {limit} bytes")
    return content


@contextmanager
def new_file(folder: Path, name: str) -> Iterator[BinaryIO]:
    """Write a file of our own so that after a crash it is there as a whole or not at all.

    Args:
        folder: A folder that only we write to.
        name: The file's name; what has it is replaced.
    """
    draft = folder / f".{name}.new"
    draft.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(draft, flags, FILE_MODE), "wb") as file:
        yield file
        file.flush()
        os.fchmod(file.fileno(), FILE_MODE)
        os.fsync(file.fileno())
    draft.rename(folder / name)
    with open_root(folder) as descriptor:
        os.fsync(descriptor)


def write_file(folder: Path, name: str, content: bytes) -> None:
    """Write a file of our own at once; see ``new_file``."""
    with new_file(folder, name) as file:
        file.write(content)


def _enter(parent: int, name: str, path: str) -> int:
    mode = _mode_at(parent, name, path)
    if stat.S_ISLNK(mode):
        raise UnreadableError(Problem.INVALID, f"a symbolic link is on the way to {path}")
    if not stat.S_ISDIR(mode):
        raise UnreadableError(Problem.MISSING, f"{path} does not exist")
    try:
        return os.open(name, FOLDER, dir_fd=parent)
    except OSError as error:
        raise _refusal(error, path) from error


def _mode_at(parent: int, name: str | bytes, path: str) -> int:
    try:
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except OSError as error:
        raise _refusal(error, path) from error


def _refusal(error: OSError, path: str) -> Exception:
    if error.errno in DISK_ERRORS:
        return error
    if error.errno in {errno.ENOENT, errno.ENOTDIR}:
        return UnreadableError(Problem.MISSING, f"{path} does not exist")
    return UnreadableError(
        Problem.INVALID, f"{path} cannot be read: {os.strerror(error.errno or 0)}"
    )


def _kind(mode: int) -> str:
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
    }
    return kinds.get(stat.S_IFMT(mode), "a device")
