"""The write-ahead journal: append-only, fsynced, one checksum per line, one writer.

A line is ``<crc32 of the rest, 8 hex digits> <JSON of {"type", "entry"}>``. A last line that is
cut or does not hold was never acknowledged and is removed; any other bad line is corruption, also
where a lost newline makes it one with the last.
"""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from pydantic import TypeAdapter, ValidationError

from securebench.engine import entries
from securebench.engine.entries import Entry
from securebench.errors import JournalCorruptError, StorageError

_TYPES: dict[str, type[Entry]] = {
    kind.__name__: kind
    for kind in (
        entries.RunBound,
        entries.Opened,
        entries.Isolated,
        entries.LaunchBegun,
        entries.LaunchLost,
        entries.Produced,
        entries.Verified,
        entries.Finished,
        entries.Kept,
        entries.RunEnded,
    )
}
_ADAPTERS: dict[str, TypeAdapter[Entry]] = {
    name: TypeAdapter(kind) for name, kind in _TYPES.items()
}


_CRC_DIGITS = 8
_START = b' {"type":"'
"""Follows the checksum in every line."""


class Journal:
    """The open journal of one run.

    Args:
        path: The file; made when it is absent.

    Raises:
        StorageError: Another process holds it.
        JournalCorruptError: A line before the last does not hold.
    """

    def __init__(self, path: Path) -> None:
        is_new = not path.exists()
        self._file: BinaryIO = path.open("a+b", buffering=0)
        try:
            _lock(self._file, path)
            self.entries = tuple(_recover(self._file))
        except BaseException:
            self._file.close()
            raise
        if is_new:
            fsync_folder(path.parent)

    def append(self, batch: Iterable[Entry]) -> None:
        """Write entries and return when the disk has them; nothing happens for an empty batch.

        Raises:
            OSError: The disk did not take them; what was written in part is removed.
        """
        data = b"".join(encode(entry) for entry in batch)
        if not data:
            return
        end = self._file.seek(0, os.SEEK_END)
        try:
            _write_all(self._file, data)
            os.fsync(self._file.fileno())
        except OSError:
            self._file.truncate(end)
            raise

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        """Give the file and its lock back."""
        self._file.close()


def encode(entry: Entry) -> bytes:
    """Return one line."""
    name = type(entry).__name__
    body = b'{"type":"%b","entry":%b}' % (name.encode(), _ADAPTERS[name].dump_json(entry))
    return b"%b %b\n" % (_checksum(body), body)


def decode(line: bytes) -> Entry:
    """Return the entry of one line without its newline.

    Raises:
        ValueError: The line does not hold.
    """
    checksum, _, body = line.partition(b" ")
    if checksum != _checksum(body):
        raise ValueError("checksum does not match")
    name, _, rest = body.removeprefix(b'{"type":"').partition(b'","entry":')
    adapter = _ADAPTERS.get(name.decode())
    if adapter is None:
        raise ValueError(f"unknown entry {name.decode()!r}")
    return adapter.validate_json(rest.removesuffix(b"}"))


def _checksum(body: bytes) -> bytes:
    return b"%08x" % zlib.crc32(body)


def read_entries(data: bytes) -> tuple[tuple[Entry, ...], int]:
    """Decode a whole journal.

    Args:
        data: The file's content.

    Returns:
        The entries, and how many bytes of the file hold them.

    Raises:
        JournalCorruptError: A line before the last does not hold.
    """
    found: list[Entry] = []
    good = 0
    lines = data.split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        try:
            found.append(decode(line))
        except (ValueError, ValidationError) as error:
            is_last = number == len(lines) - 1 and not lines[-1]
            if is_last and not _hides_entry(line):
                break
            reason = f"line {number} of the journal does not hold: {error}"
            raise JournalCorruptError(reason, line=number) from error
        good += len(line) + 1
    return tuple(found), good


def _hides_entry(line: bytes) -> bool:
    """Whether a whole line follows in this one: its start lost its newline to a flipped bit."""
    at = line.find(_START, len(_START))
    while at > 0:
        checksum, body = line[at - _CRC_DIGITS : at], line[at + 1 :]
        if checksum == _checksum(body):
            return True
        at = line.find(_START, at + 1)
    return False


def _recover(file: BinaryIO) -> Iterator[Entry]:
    file.seek(0)
    found, good = read_entries(file.read())
    if good != file.seek(0, os.SEEK_END):
        file.truncate(good)
        os.fsync(file.fileno())
    return iter(found)


def _lock(file: BinaryIO, path: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise StorageError(f"another operator holds {path.name}; it must stop first") from error


def _write_all(file: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def fsync_folder(path: Path) -> None:
    """Return when the disk has the names in a folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
