"""Reading and writing files safely, for more than one process; standard library only.

Written files and names are on the disk on return: a file's content alone does not survive a crash.
Work on large files reports its progress. In folders that untrusted code could fill, no link is ever
followed.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import IO, BinaryIO
from uuid import uuid4

from securebench.digests import listing_digest
from securebench.errors import StorageError
from securebench.protocol.messages import MAX_MESSAGE_BYTES
from securebench.sizes import MIB

FOLDER_MODE = 0o755
"""Folders that Pods of other users enter."""

FILE_MODE = 0o644
"""Files that Pods of other users read."""


def fsync_folder(path: Path) -> None:
    """Return when the disk has the names in a folder.

    Raises:
        OSError: It is no folder, or the disk did not take them.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(path: Path) -> None:
    """Make a folder with its parents, 0755 whatever the umask is, and let the disk have the names.

    Nothing happens to folders that are there.
    """
    if path.is_dir():
        return
    make_folder(path.parent)
    path.mkdir(exist_ok=True)
    path.chmod(FOLDER_MODE)
    fsync_folder(path.parent)


def replace_file(path: Path, data: bytes, staging: Path | None = None) -> None:
    """Replace a file as a whole, 0644 whatever the umask is, and return when the disk has it.

    Args:
        staging: As of ``replacing``.
    """
    with replacing(path, staging) as file:
        file.write(data)


@contextlib.contextmanager
def replacing(path: Path, staging: Path | None = None) -> Iterator[BinaryIO]:
    """Replace a file by what is written in the body, when the body ends without an error.

    Readers see the old content or the whole new one; the disk has it on return.

    Args:
        staging: Folder of the same file system where the new content is written; None for the
            file's own.
    """
    name = f"{path.name}.part"
    part = path.with_name(name) if staging is None else staging / f"{uuid4().hex}-{name}"
    try:
        with part.open("wb") as file:
            os.fchmod(file.fileno(), FILE_MODE)
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        # Who tries again writes a draft more, and drafts of a whole export fill a volume.
        with contextlib.suppress(OSError):
            part.unlink()
        raise
    fsync_folder(path.parent)


def write_all(file: BinaryIO, data: bytes) -> None:
    """Write everything to an unbuffered file, which may take less at a time.

    Raises:
        OSError: The disk did not take it, or not all of it.
    """
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


PIECE_BYTES = MIB
"""Bytes that are in memory at a time."""


def pieces(source: IO[bytes]) -> Iterator[bytes]:
    """Yield what is left of an open file; after each piece that its user has done with, tell so."""
    while piece := source.read(PIECE_BYTES):
        yield piece
        note_progress()


def content_sha256(source: IO[bytes]) -> str:
    """Return the hex SHA-256 of what is left of an open file."""
    digest = hashlib.sha256()
    for piece in pieces(source):
        digest.update(piece)
    return digest.hexdigest()


def file_sha256(path: Path) -> str:
    """Return the hex SHA-256 of a file's content."""
    with path.open("rb") as content:
        return content_sha256(content)


_TELL: ContextVar[Callable[[], None]] = ContextVar("progress", default=lambda: None)


def tell_progress_to(tell: Callable[[], None]) -> None:
    """Have what is done in this context from now on tell its progress.

    Args:
        tell: Called after each part, in the thread of the work.
    """
    _TELL.set(tell)


def note_progress() -> None:
    """Tell that a part of the work is done, if somebody wants to know."""
    _TELL.get()()


def tree_digest(root: Path) -> str:
    """Return the digest of a trusted folder's regular files.

    Args:
        root: A folder that nobody changes meanwhile.

    Returns:
        ``sha256:`` and hex over, for every file in byte order of its path relative to the root:
        path, NUL, hex SHA-256 of the content, LF.

    Raises:
        StorageError: The folder is missing, or an entry is neither file nor folder.
    """
    if not root.is_dir():
        raise StorageError(f"{root.name!r} is not a folder")
    return listing_digest((name, _regular_sha256(path)) for name, path in tree_entries(root))


def tree_entries(root: Path) -> list[tuple[bytes, Path]]:
    """Return all below a folder but folders, with relative paths, in byte order of these."""
    entries: list[tuple[bytes, Path]] = []
    for folder, folders, files in os.walk(root):
        for name in (*folders, *files):
            path = Path(folder, name)
            if not stat.S_ISDIR(path.lstat().st_mode):
                entries.append((os.fsencode(path.relative_to(root)), path))
    return sorted(entries)


def _regular_sha256(path: Path) -> str:
    if not stat.S_ISREG(path.lstat().st_mode):
        raise StorageError(f"{path.name!r} is no regular file")
    return file_sha256(path)


FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Not blocking: the opening of a FIFO must return."""

_DISK_ERRORS = frozenset({errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ESTALE})
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
    if error.errno in _DISK_ERRORS:
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


TERMINATION_LOG = Path("/dev/termination-log")


def write_message(message: bytes, log: Path) -> None:
    """Write a termination message into the file that the kubelet made."""
    log.write_bytes(message[:MAX_MESSAGE_BYTES])
