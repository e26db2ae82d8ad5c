"""Sealing of a workspace into a deterministic archive (contract 13.3, 21.2)."""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from securebench.candidates.extraction import Problem
from securebench.candidates.links import escaping
from securebench.candidates.untrusted import (
    FOLDER,
    RefusedError,
    open_file_at,
)
from securebench.digests import PREFIX

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from io import BufferedIOBase
    from typing import BinaryIO

    from securebench.candidates.bounds import Bounds

MAX_DEPTH = 256
"""Folders inside each other; each costs a descriptor while the tree is read."""

MAX_PATH_BYTES = 4096
"""The kernel's PATH_MAX: what is longer cannot be named by the programs that judge it."""

ANY_EXECUTE = 0o111
EXECUTABLE = 0o755
PLAIN = 0o644


class Kind(Enum):
    """What an entry is; the value stands in the workspace's digest, as git writes modes."""

    FILE = "100644"
    PROGRAM = "100755"
    FOLDER = "040755"
    LINK = "120000"


class Entry(NamedTuple):
    """One entry that is kept: path from the root, in UTF-8, and a link's target."""

    path: str
    kind: Kind
    size: int = 0
    target: str = ""


class Packed(NamedTuple):
    """What an archive holds: digest of the sorted list of path, mode and content, and a count."""

    candidate_sha256: str
    dropped_entries: int


@dataclass(slots=True)
class _Scan:
    """Everything that a tree holds, as far as the bounds allow."""

    bounds: Bounds
    exclude: Collection[str]
    entries: list[Entry] = field(default_factory=list)
    unreadable: set[str] = field(default_factory=set)
    dropped: int = 0
    seen: int = 0
    size: int = 0

    def add(self, folder: int, prefix: str, entry: os.DirEntry[str]) -> str | None:
        """Take one entry; returns the path of a folder that has to be read too."""
        try:
            path = prefix + entry.name
            encoded = path.encode("utf-8")
        except UnicodeEncodeError:
            self._count(len(entry.name))
            self.dropped += 1
            return None
        if path in self.exclude:
            return None
        self._count(len(encoded))
        if len(encoded) > MAX_PATH_BYTES:
            raise RefusedError(
                Problem.TOO_LARGE, f"the workspace has a path of more than {MAX_PATH_BYTES} bytes"
            )
        return self._classify(folder, path, entry)

    def _classify(self, folder: int, path: str, entry: os.DirEntry[str]) -> str | None:
        try:
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                self.entries.append(Entry(path, Kind.FOLDER))
                return path
            if stat.S_ISREG(status.st_mode):
                self._measure(status.st_size)
                kind = Kind.PROGRAM if status.st_mode & ANY_EXECUTE else Kind.FILE
                self.entries.append(Entry(path, kind, status.st_size))
                return None
            if stat.S_ISLNK(status.st_mode):
                target = os.readlink(entry.name, dir_fd=folder)
                target.encode("utf-8")
                self.entries.append(Entry(path, Kind.LINK, target=target))
                return None
        except (OSError, UnicodeEncodeError):
            pass
        self.dropped += 1
        return None

    def _count(self, name_bytes: int) -> None:
        self.seen += 1
        if self.seen > self.bounds.workspace_files:
            raise RefusedError(
                Problem.TOO_LARGE,
                f"the workspace has more than {self.bounds.workspace_files} entries",
            )
        self._measure(name_bytes)

    def _measure(self, size: int) -> None:
        self.size += size
        if self.size > self.bounds.workspace_bytes:
            raise RefusedError(
                Problem.TOO_LARGE,
                f"the workspace has more than {self.bounds.workspace_bytes} bytes",
            )


def pack_workspace(
    root: int, target: BufferedIOBase, bounds: Bounds, exclude: Collection[str]
) -> Packed:
    """Write a workspace as an archive whose bytes depend on the tree alone.

    Args:
        root: Descriptor of the workspace; nobody changes it any more.
        target: Where the archive is written.
        bounds: How much is taken.
        exclude: Relative paths that are left out with all that is below, without being counted.

    Returns:
        Digest and number of dropped entries.

    Raises:
        RefusedError: A bound is crossed, or the tree changes while it is read.
    """
    scan = _Scan(bounds, frozenset(exclude))
    _read_tree(root, scan)
    links = {entry.path: entry.target for entry in scan.entries if entry.kind is Kind.LINK}
    bad = escaping(links) | scan.unreadable
    entries = sorted(
        (entry for entry in scan.entries if entry.path not in bad),
        key=lambda entry: entry.path.encode("utf-8"),
    )
    digest, unreadable = _write_archive(root, target, entries)
    return Packed(digest, scan.dropped + len(bad) + unreadable)


def _read_tree(root: int, scan: _Scan) -> None:
    """Read folders depth first; ``pending`` holds, per level, a descriptor and what is ahead."""
    pending: list[tuple[int, list[str]]] = []
    try:
        pending.append((os.dup(root), _read_folder(root, "", scan)))
        while pending:
            parent, ahead = pending[-1]
            if not ahead:
                os.close(pending.pop()[0])
                continue
            path = ahead.pop()
            if len(pending) >= MAX_DEPTH:
                raise RefusedError(
                    Problem.TOO_LARGE, f"the workspace is deeper than {MAX_DEPTH} folders"
                )
            try:
                child = os.open(path.rpartition("/")[2], FOLDER, dir_fd=parent)
            except OSError:
                scan.unreadable.add(path)
                continue
            ahead = []
            pending.append((child, ahead))
            ahead += _read_folder(child, path + "/", scan)
    finally:
        for descriptor, _ in pending:
            os.close(descriptor)


def _read_folder(folder: int, prefix: str, scan: _Scan) -> list[str]:
    found = []
    with os.scandir(folder) as listing:
        for entry in listing:
            path = scan.add(folder, prefix, entry)
            if path is not None:
                found.append(path)
    return found


def _write_archive(root: int, target: BufferedIOBase, entries: Sequence[Entry]) -> tuple[str, int]:
    total = hashlib.sha256()
    unreadable = 0
    folders = _Folders(root)
    with (
        tarfile.open(
            fileobj=target, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8"
        ) as archive,
        folders,
    ):
        for entry in entries:
            digest = _add(archive, folders, entry)
            if digest is None:
                unreadable += 1
                continue
            total.update(f"{entry.path}\0{entry.kind.value}\0{digest}\n".encode())
    return PREFIX + total.hexdigest(), unreadable


def _add(archive: tarfile.TarFile, folders: _Folders, entry: Entry) -> str | None:
    """Add one entry and return the digest of its content; None when it cannot be read."""
    if entry.kind in {Kind.FILE, Kind.PROGRAM}:
        return _add_file(archive, folders, entry)
    header = tarfile.TarInfo(entry.path)
    header.mode = EXECUTABLE
    header.type = tarfile.DIRTYPE
    if entry.kind is Kind.LINK:
        header.type = tarfile.SYMTYPE
        header.linkname = entry.target
    archive.addfile(header)
    return hashlib.sha256(entry.target.encode("utf-8")).hexdigest()


def _add_file(archive: tarfile.TarFile, folders: _Folders, entry: Entry) -> str | None:
    parent, _, name = entry.path.rpartition("/")
    try:
        descriptor = open_file_at(folders.enter(parent), name, entry.path)
    except (RefusedError, OSError):
        return None
    header = tarfile.TarInfo(entry.path)
    header.size = entry.size
    header.mode = EXECUTABLE if entry.kind is Kind.PROGRAM else PLAIN
    with os.fdopen(descriptor, "rb") as file:
        content = _Hashed(file)
        try:
            archive.addfile(header, content)
        except OSError as error:
            raise RefusedError(Problem.INVALID, f"{entry.path} cannot be read") from error
        if content.size != entry.size or file.read(1):
            raise RefusedError(Problem.INVALID, f"{entry.path} changed while it was read")
    return content.hash.hexdigest()


class _Hashed:
    """A reader that hashes what passes."""

    def __init__(self, source: BinaryIO) -> None:
        self._source = source
        self.hash = hashlib.sha256()
        self.size = 0

    def read(self, count: int = -1, /) -> bytes:
        """Read at most ``count`` bytes."""
        data = self._source.read(count)
        self.hash.update(data)
        self.size += len(data)
        return data


class _Folders:
    """Descriptors of the folders on the way to the current one; sorted paths share most of it."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._open: list[tuple[str, int]] = []

    def __enter__(self) -> None:
        """Nothing to do; leaving closes what is open."""

    def __exit__(self, *_: object) -> None:
        """Close everything."""
        self._leave(0)

    def enter(self, path: str) -> int:
        """Return the descriptor of a folder, opened without following links."""
        components = path.split("/") if path else []
        shared = 0
        for (name, _), component in zip(self._open, components, strict=False):
            if name != component:
                break
            shared += 1
        self._leave(shared)
        for component in components[shared:]:
            descriptor = os.open(component, FOLDER, dir_fd=self._current())
            self._open.append((component, descriptor))
        return self._current()

    def _current(self) -> int:
        return self._open[-1][1] if self._open else self._root

    def _leave(self, keep: int) -> None:
        while len(self._open) > keep:
            os.close(self._open.pop()[1])
