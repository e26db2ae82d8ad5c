"""A results volume that fails as disks and file servers do; the files are real."""

from __future__ import annotations

import asyncio
import errno
import io
import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast
from unittest import mock

from securebench.controller.volume import results
from securebench.controller.volume.journal import Journal, encode_all
from securebench.run.state.entries import Entry
from support.build import finish
from support.journal_entries import append_bytes

WRITING = set("wax+")


class OperatorDied(BaseException):
    """The process was killed."""


@dataclass
class Fate:
    """Kills the operator at one of its effects; nothing that it tries afterwards happens."""

    fuse: int | None = None
    is_dead: bool = False
    is_outside: int = 0

    def point(self) -> None:
        if self.is_outside:
            return
        if self.fuse is not None:
            self.fuse -= 1
            self.is_dead = self.is_dead or self.fuse <= 0
        if self.is_dead:
            raise OperatorDied

    def outside(self) -> AbstractContextManager[Any]:
        """Do something that is not the operator's."""
        return mock.patch.object(self, "is_outside", self.is_outside + 1)


class Volume:
    """What writes of the operator meet below one folder.

    Attributes:
        trouble: An errno with which changes fail; 0 for none.
        read_trouble: An errno with which files cannot be opened for reading; 0 for none.
        room_bytes: How much may still be written, or None without a bound.
        piece_bytes: What one call of write takes at most, or None for all.
        is_syncing: Whether fsync works.
        is_truncating: Whether a file can be cut; after one failure everything works again.
        tear: Chooses how many bytes of the next append reach the disk before the operator dies.
        is_hanging: Whether calls neither fail nor return until the volume is healed.
        hits: How often a fault was met.
    """

    def __init__(self, root: Path, fate: Fate) -> None:
        self._root = root
        self._fate = fate
        self._stack = ExitStack()
        self.on_append: Callable[[tuple[Entry, ...]], None] = lambda _: None
        self._hung: list[tuple[asyncio.Future[Any], Callable[[], Any]]] = []
        self.heal()
        self.hits = 0

    def heal(self) -> None:
        """Make everything work again."""
        self.trouble = self.read_trouble = 0
        self.room_bytes: int | None = None
        self.piece_bytes: int | None = None
        self.is_syncing = self.is_truncating = True
        self.tear: Callable[[bytes], int] | None = None
        self.release()

    def release(self) -> None:
        """Let calls return that hang; their work is done now."""
        self.is_hanging = False
        hung, self._hung = self._hung, []
        for call, work in hung:
            if not call.cancelled():
                finish(call, work)

    def hang(self, call: asyncio.Future[Any], work: Callable[[], Any]) -> None:
        """Keep a call until the volume is healed; then its work is done.

        Args:
            call: Is waited for.
            work: Uses the volume.
        """
        self.hits += 1
        self._hung.append((call, work))

    def install(self) -> None:
        """Come between the operator and the disk until ``remove``."""
        patches = [
            mock.patch.object(Path, "open", self._open(Path.open)),
            mock.patch.object(Path, "mkdir", self._guarded(Path.mkdir)),
            mock.patch.object(Path, "replace", self._replace(Path.replace)),
            mock.patch.object(shutil, "rmtree", self._guarded(shutil.rmtree)),
            mock.patch.object(os, "fsync", self._fsync),
            mock.patch.object(results, "open_root", self._open_root(results.open_root)),
            mock.patch.object(Journal, "append", self._append(Journal.append)),
        ]
        for patch in patches:
            self._stack.enter_context(patch)

    def remove(self) -> None:
        """Leave the disk to itself."""
        self._stack.close()

    def check(self) -> None:
        """Raise the trouble that a change meets."""
        self._fail_with(self.trouble)

    def _fail_with(self, trouble: int) -> None:
        if trouble and not self._fate.is_outside:
            self.hits += 1
            raise OSError(trouble, os.strerror(trouble))

    def take(self, size: int) -> int:
        """Return how many bytes of a write reach the disk.

        Raises:
            OSError: None does.
        """
        self.check()
        if self._fate.is_outside:
            return size
        if self.piece_bytes is not None and size > self.piece_bytes:
            self.hits += 1
            size = self.piece_bytes
        if self.room_bytes is not None:
            if self.room_bytes == 0:
                self.hits += 1
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            size = min(size, self.room_bytes)
            self.room_bytes -= size
        return size

    def _open(self, real: Any) -> Any:
        def opened(
            path: Path, mode: str = "r", buffering: int = -1, *more: Any, **named: Any
        ) -> Any:
            if not path.is_relative_to(self._root):
                return real(path, mode, buffering, *more, **named)
            if not (WRITING & set(mode)) or "b" not in mode:
                self._fail_with(self.read_trouble)
                return real(path, mode, buffering, *more, **named)
            self.check()
            raw = _File(path, mode.replace("b", ""))
            raw.volume = self
            return raw if buffering == 0 else cast("IO[bytes]", io.BufferedWriter(raw))

        return opened

    def _open_root(self, real: Any) -> Any:
        def open_root(path: Path) -> Any:
            self._fail_with(self.read_trouble)
            return real(path)

        return open_root

    def _guarded(self, real: Any) -> Any:
        def guarded(path: Any, *more: Any, **named: Any) -> Any:
            self.check()
            return real(path, *more, **named)

        return guarded

    def _replace(self, real: Any) -> Any:
        def replace(path: Path, target: Path) -> Path:
            self.check()
            self._fate.point()
            done: Path = real(path, target)
            self._fate.point()
            return done

        return replace

    def _fsync(self, _descriptor: int) -> None:
        self.check()
        if not self.is_syncing:
            self.hits += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _append(self, real: Any) -> Any:
        def append(journal: Journal, batch: Iterable[Entry]) -> None:
            entries = tuple(batch)
            self._fate.point()
            if self.tear is not None and entries:
                data, _ = encode_all(entries, journal.link)
                append_bytes(journal.path, data[: self.tear(data)])
                self.tear = None
                self.hits += 1
                self._fate.is_dead = True
            self._fate.point()
            real(journal, entries)
            self.on_append(entries)
            self._fate.point()

        return append


class _File(io.FileIO):
    volume: Volume

    def write(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        return super().write(view[: self.volume.take(len(view))])

    def truncate(self, size: int | None = None) -> int:
        self.volume.check()
        if not self.volume.is_truncating:
            self.volume.heal()
            self.volume.hits += 1
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().truncate(size)
