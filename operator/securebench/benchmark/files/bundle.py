"""Folders as checked tar: what the command line and the operator send each other.

A bundle holds regular files and folders only, modes 0644 and 0755, no owner and no time, in byte
order of the paths: the same content gives the same bytes. Both ends hash the files while they
pass and compare the tree's digest. The receiver writes into a folder of its own that appears
under its final name only when it is complete.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, NamedTuple, NoReturn, Protocol, Self, cast
from uuid import uuid4

from securebench.digests import listing_digest
from securebench.errors import (
    DigestMismatchError,
    InvalidInputError,
    StorageError,
    TooLargeError,
)
from securebench.files import FILE_MODE, content_sha256
from securebench.sizes import GIB, KIB, MIB

CHUNK_BYTES = MIB
"""Bytes that are in memory at a time."""

MAX_PATH_BYTES = 1024
"""Longest path of an entry, far below PATH_MAX of Linux (4096) with any root in front."""

MAX_NAME_BYTES = 255
"""Longest part of a path: NAME_MAX of Linux."""

MAX_EXTENSION_BYTES = 8 * KIB
"""Largest extended header; ours hold a path and a size. A reader holds it in memory as a whole."""

_TAR_OVERHEAD_BYTES = 4 * KIB
"""Of one entry: header, extended header for long names, padding."""

_FOLDER_MODE = 0o755
_PLAIN_TYPES = (tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE)


Content = Path | bytes
"""A file of a bundle: where it lies on this machine, or what it holds."""


@dataclass(frozen=True, slots=True)
class BundleLimits:
    """Bounds of one bundle.

    Attributes:
        files: Entries, folders included.
        size_bytes: Sum of the file sizes.
    """

    files: int = 100_000
    size_bytes: int = 8 * GIB

    @property
    def tar_bytes(self) -> int:
        """Largest tar within these bounds, roughly."""
        return self.size_bytes + (self.files + 1) * _TAR_OVERHEAD_BYTES


LOG_LIMITS = BundleLimits(files=1_000, size_bytes=64 * MIB)
"""Of the streams of one attempt (get-log)."""


class BundleReceipt(NamedTuple):
    """What passed.

    Args:
        digest: ``sha256:…`` as ``files.tree_digest`` gives it for the files.
    """

    digest: str
    files: int
    size_bytes: int


class ByteSource(Protocol):
    """Where a bundle is read from."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to ``size`` bytes, empty at the end."""
        ...


class _Account:
    """Counts and hashes what passes, refuses what is too much."""

    def __init__(self, limits: BundleLimits) -> None:
        self._limits = limits
        self._entries = 0
        self.size_bytes = 0
        self.content: dict[bytes, str] = {}

    def entry(self) -> None:
        self._entries += 1
        if self._entries > self._limits.files:
            raise TooLargeError(f"the bundle has more than {self._limits.files} entries")

    def announce(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        if self.size_bytes > self._limits.size_bytes:
            raise TooLargeError(f"the bundle has more than {self._limits.size_bytes} bytes")

    def receipt(self) -> BundleReceipt:
        digest = listing_digest(sorted(self.content.items()))
        return BundleReceipt(digest, len(self.content), self.size_bytes)


def folder_files(folder: Path) -> dict[str, Path]:
    """Return the regular files below a folder by relative path; links and devices are left out."""
    found: dict[str, Path] = {}
    for parent, _, names in os.walk(folder, followlinks=False):
        for name in names:
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                found[path.relative_to(folder).as_posix()] = path
    return found


def files_receipt(files: Mapping[str, Content], limits: BundleLimits) -> BundleReceipt:
    """Return the receipt that a bundle of these files would have.

    Args:
        files: Each file by its path inside the bundle.
        limits: Bounds.

    Raises:
        InvalidInputError: A file is no regular file.
        TooLargeError: The files exceed the limits.
    """
    account = _Account(limits)
    for name, content in files.items():
        account.entry()
        with _opened(content) as source:
            account.announce(_size_bytes(source))
            account.content[name.encode()] = content_sha256(source)
    return account.receipt()


def write_bundle(
    files: Mapping[str, Content], target: IO[bytes], limits: BundleLimits
) -> BundleReceipt:
    """Write files as a bundle.

    Args:
        files: Each file by its path inside the bundle.
        target: Where the tar goes; need not be seekable.
        limits: Bounds.

    Returns:
        The receipt to compare with the receiver's.

    Raises:
        InvalidInputError: A path is not safe, or a file is no regular file or changed meanwhile.
        TooLargeError: The files exceed the limits.
    """
    account = _Account(limits)
    with tarfile.open(fileobj=target, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for name in sorted(files, key=str.encode):
            account.entry()
            with _opened(files[name]) as source:
                member = tarfile.TarInfo(safe_path(name))
                member.size = _size_bytes(source)
                member.mode = FILE_MODE
                account.announce(member.size)
                hashing = _HashingReader(source)
                _add(archive, member, hashing)
                account.content[name.encode()] = hashing.hexdigest()
    return account.receipt()


def unpack_bundle(source: ByteSource, folder: Path, limits: BundleLimits) -> BundleReceipt:
    """Unpack a bundle into a new folder.

    Args:
        source: The tar; need not be seekable.
        folder: Must not exist; its parent must be writable by nobody else meanwhile.
        limits: Bounds.

    Returns:
        The receipt over what was written.

    Raises:
        InvalidInputError: An entry is no plain file or folder, leaves the folder, or comes twice.
        TooLargeError: The bundle exceeds the limits.
        StorageError: The stream is damaged or ends early.
    """
    account = _Account(limits)
    folder.mkdir(mode=_FOLDER_MODE)
    try:
        with tarfile.open(fileobj=cast("IO[bytes]", source), mode="r|", tarinfo=_Header) as archive:
            while (member := archive.next()) is not None:
                account.entry()
                _unpack_member(archive, member, folder, account)
                archive.members.clear()  # type: ignore[attr-defined]  # they would fill the memory
    except (tarfile.TarError, EOFError, ValueError, ArithmeticError, RecursionError) as error:
        raise StorageError(f"the bundle is damaged: {error}") from error
    return account.receipt()


@contextmanager
def received_folder(target: Path, incoming: Path) -> Iterator[Path]:
    """Give a place to unpack into that takes the target's name when all went well.

    Args:
        target: The final folder; what stands there is replaced.
        incoming: Folder on the same file system for unfinished work; made when missing.
    """
    incoming.mkdir(mode=0o700, parents=True, exist_ok=True)
    work = incoming / uuid4().hex
    work.mkdir(mode=0o700)
    try:
        yield work / "new"
        if target.exists():
            target.rename(work / "old")
        (work / "new").rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def require_digest(what: str, *, expected: str, found: str) -> None:
    """Compare the digests of both ends.

    Raises:
        DigestMismatchError: They differ.
    """
    if expected != found:
        raise DigestMismatchError(
            f"{what} arrived damaged: expected {expected}, found {found}; send it again",
            expected=expected,
            found=found,
        )


def safe_path(path: str) -> str:
    """Return the path when it is relative, stays inside and has one meaning only.

    Raises:
        InvalidInputError: It is not.
    """
    try:
        size = len(path.encode())
    except UnicodeEncodeError:
        raise InvalidInputError(f"the bundle has a path that is not UTF-8: {path!r}") from None
    parts = path.split("/")
    if "\\" in path or "\0" in path or any(part in {"", ".", ".."} for part in parts):
        raise InvalidInputError(f"the bundle has an unsafe path: {path!r}")
    if size > MAX_PATH_BYTES or any(len(part.encode()) > MAX_NAME_BYTES for part in parts):
        raise InvalidInputError(
            f"the bundle has a path of more than {MAX_PATH_BYTES} bytes"
            f" or a name of more than {MAX_NAME_BYTES}"
        )
    return path


class _Header(tarfile.TarInfo):
    """A header that is checked before anything that it announces is read."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        header = super().frombuf(buf, encoding, errors)
        if header.type == tarfile.XHDTYPE:
            if header.size > MAX_EXTENSION_BYTES:
                raise TooLargeError("the bundle has an extended header that is too large")
        elif header.type not in _PLAIN_TYPES:
            raise InvalidInputError(f"the bundle holds no plain file or folder: {header.name!r}")
        if header.size < 0:
            raise InvalidInputError(f"the bundle has a file of negative size: {header.name!r}")
        return header

    def _proc_gnusparse_10(self, *_: object) -> NoReturn:
        """Refuse the map of a sparse file, which tarfile would read to its end, however long."""
        raise InvalidInputError(f"the bundle holds no plain file or folder: {self.name!r}")


class _HashingReader:
    """A file object for tarfile that hashes what it hands out."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self._hash = hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self._hash.update(data)
        return data

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


def _add(archive: tarfile.TarFile, member: tarfile.TarInfo, source: _HashingReader) -> None:
    try:
        archive.addfile(member, source)
    except OSError as error:
        raise InvalidInputError(f"{member.name} changed while it was read: {error}") from error


def _unpack_member(
    archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path, account: _Account
) -> None:
    if member.type not in _PLAIN_TYPES or member.issparse() or member.size < 0:
        raise InvalidInputError(f"the bundle holds no plain file or folder: {member.name!r}")
    name = safe_path(member.name)
    target = folder / name
    try:
        if member.isdir():
            target.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            return
        account.announce(member.size)
        target.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        with target.open("xb") as sink:
            account.content[name.encode()] = _copy_member(archive, member, sink)
            os.fchmod(sink.fileno(), FILE_MODE)
    except (FileExistsError, NotADirectoryError, IsADirectoryError):
        raise InvalidInputError(f"the bundle holds {name!r} twice or below a file") from None


def _copy_member(archive: tarfile.TarFile, member: tarfile.TarInfo, sink: IO[bytes]) -> str:
    source = cast("IO[bytes]", archive.extractfile(member))
    content = hashlib.sha256()
    while data := source.read(CHUNK_BYTES):
        content.update(data)
        sink.write(data)
    return content.hexdigest()


def _opened(content: Content) -> IO[bytes]:
    return BytesIO(content) if isinstance(content, bytes) else _open_plain(content)


def _size_bytes(source: IO[bytes]) -> int:
    if isinstance(source, BytesIO):
        return len(source.getbuffer())
    return os.fstat(source.fileno()).st_size


def _open_plain(path: Path) -> IO[bytes]:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        source = os.fdopen(os.open(path, flags), "rb")
    except OSError as error:
        raise InvalidInputError(f"{path}: {error.strerror}") from error
    if not _is_regular(source):
        source.close()
        raise InvalidInputError(f"{path}: is no regular file")
    return source


def _is_regular(source: IO[bytes]) -> bool:
    return stat.S_ISREG(os.fstat(source.fileno()).st_mode)
