"""Reading of a workspace, entry by entry, within bounds and without following a link."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from securebench.files.untrusted import DISK_ERRORS, FOLDER, UnreadableError
from securebench.protocol.bounds import MIB
from securebench.protocol.extraction import Problem
from securebench.sandbox.candidate.links import stays_inside

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

    from securebench.protocol.bounds import CandidateBounds

MAX_DEPTH = 256
"""Folders inside each other; each costs a descriptor while the tree is read."""

MAX_PATH_BYTES = 4096
"""The kernel's PATH_MAX: what is longer cannot be named by the programs that judge it."""

MAX_NAMES_BYTES = 32 * MIB
"""Paths and targets of links of a whole workspace: what a program that lists it has in memory. An
honest hundred thousand files have a third of it."""

ANY_EXECUTE = 0o111
SEPARATOR = b"/"


class EntryKind(Enum):
    """What an entry is; the value stands in the workspace's digest, as git writes modes."""

    FILE = "100644"
    PROGRAM = "100755"
    FOLDER = "040755"
    LINK = "120000"


class TreeEntry(NamedTuple):
    """One entry that is kept.

    Attributes:
        path: From the root, in UTF-8.
        kind: What it is.
        parent: Descriptor of its folder, open until the next entry is asked for.
        name: In that folder.
        size: Of a file.
        target: Of a link.
    """

    path: str
    kind: EntryKind
    parent: int
    name: bytes
    size: int = 0
    target: str = ""


@dataclass(slots=True)
class _Folder:
    """A folder that is being read: its path with a separator, and what is ahead, the next last.

    A folder among it stands there twice, the second time with a separator: for what it holds. In
    the order of paths other entries may lie between (``a``, ``a-b``, ``a/b``).
    """

    descriptor: int
    prefix: bytes
    ahead: list[bytes] = field(default_factory=list)


@dataclass(slots=True)
class Walk:
    """One reading of a tree, in the byte order of its paths.

    Args:
        root: Descriptor of the tree.
        bounds: How much there may be.
        exclude: Relative paths that are passed over with all that is below, without being counted.

    Attributes:
        dropped: Entries so far that are not kept.
    """

    root: int
    bounds: CandidateBounds
    exclude: Collection[str]
    dropped: int = 0
    _seen: int = 0
    _names: int = 0
    _size: int = 0
    _open: list[_Folder] = field(default_factory=list)

    def entries(self) -> Generator[TreeEntry]:
        """Yield what is kept; the iterator has to be used up or closed.

        Raises:
            RefusedError: There is more than the bounds allow.
        """
        try:
            self._list(os.dup(self.root), b"")
            while self._open:
                folder = self._open[-1]
                if not folder.ahead:
                    os.close(self._open.pop().descriptor)
                    continue
                name = folder.ahead.pop()
                if name.endswith(SEPARATOR):
                    self._descend(folder, name)
                elif (entry := self._entry(folder, name)) is not None:
                    yield entry
        finally:
            while self._open:
                os.close(self._open.pop().descriptor)

    def _list(self, descriptor: int, prefix: bytes) -> None:
        folder = _Folder(descriptor, prefix)
        self._open.append(folder)
        with os.scandir(descriptor) as listing:
            for entry in listing:
                name = os.fsencode(entry.name)
                if not self._counts(prefix + name):
                    continue
                folder.ahead.append(name)
                if entry.is_dir(follow_symlinks=False):
                    folder.ahead.append(name + SEPARATOR)
        folder.ahead.sort(reverse=True)

    def _counts(self, path: bytes) -> bool:
        """Count an entry; false for one that is passed over or has a name that cannot be kept."""
        try:
            if path.decode("utf-8") in self.exclude:
                return False
        except UnicodeDecodeError:
            self.dropped += 1
            self._count(path)
            return False
        self._count(path)
        return True

    def _count(self, path: bytes) -> None:
        self._seen += 1
        if self._seen > self.bounds.workspace_files:
            raise _too_large(f"{self.bounds.workspace_files} entries")
        if len(path) > MAX_PATH_BYTES:
            raise _too_large(f"{MAX_PATH_BYTES} bytes in one path")
        self._count_name(len(path))

    def _count_name(self, size: int) -> None:
        self._names += size
        if self._names > MAX_NAMES_BYTES:
            raise _too_large(f"{MAX_NAMES_BYTES} bytes of names")
        self._measure(size)

    def _measure(self, size: int) -> None:
        self._size += size
        if self._size > self.bounds.workspace_bytes:
            raise _too_large(f"{self.bounds.workspace_bytes} bytes")

    def _descend(self, parent: _Folder, name: bytes) -> None:
        if len(self._open) >= MAX_DEPTH:
            raise _too_large(f"{MAX_DEPTH} folders inside each other")
        try:
            descriptor = os.open(name[:-1], FOLDER, dir_fd=parent.descriptor)
        except OSError as error:
            _ignore(error)  # ``_entry`` has dropped and counted it
            return
        self._list(descriptor, parent.prefix + name)

    def _entry(self, folder: _Folder, name: bytes) -> TreeEntry | None:
        try:
            return self._classified(folder, name)
        except UnicodeDecodeError:
            self.dropped += 1
            return None
        except OSError as error:
            _ignore(error)
            self.dropped += 1
            return None

    def _classified(self, folder: _Folder, name: bytes) -> TreeEntry | None:
        path = (folder.prefix + name).decode("utf-8")
        parent = folder.descriptor
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            os.close(os.open(name, FOLDER, dir_fd=parent))
            return TreeEntry(path, EntryKind.FOLDER, parent, name)
        if stat.S_ISREG(status.st_mode):
            self._measure(status.st_size)
            kind = EntryKind.PROGRAM if status.st_mode & ANY_EXECUTE else EntryKind.FILE
            return TreeEntry(path, kind, parent, name, status.st_size)
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(name, dir_fd=parent)
            self._count_name(len(target))
            if stays_inside(path, target.decode("utf-8")):
                return TreeEntry(path, EntryKind.LINK, parent, name, target=target.decode("utf-8"))
        self.dropped += 1
        return None


def _ignore(error: OSError) -> None:
    """Raise an error of the disk again; every other is one of the entry, which is left out."""
    if error.errno in DISK_ERRORS:
        raise error


def _too_large(bound: str) -> UnreadableError:
    return UnreadableError(Problem.TOO_LARGE, f"the workspace has more than {bound}")
