"""Streams without an end: what reads them stops early and needs little memory."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from itertools import chain, count, repeat
from pathlib import Path

import pytest

from fuzz.archives import LIMITS, header, member
from fuzz.loop import limited, timed
from securebench.benchmark.files.bundle import unpack_bundle
from securebench.errors import InvalidInputError, StorageError

MOST_READ_BYTES = 4 * 1024**2
HUGE = 8 * 1024**3 - 1


def announced(kind: bytes, size: int) -> bytes:
    info = member("x", kind)
    info.size = size
    return info.tobuf(tarfile.GNU_FORMAT)


def pax(*words: str) -> bytes:
    lines = (f" {word}\n" for word in words)
    content = "".join(f"{len(line) + 2}{line}" for line in lines)
    return header("pax", tarfile.XHDTYPE, content.encode())


BLOCKS = repeat(b"0" * 512)
SPARSE = (
    pax("GNU.sparse.major=1", "GNU.sparse.minor=0")
    + announced(tarfile.REGTYPE, HUGE)
    + b"9999999999\n"
)
BOMBS = {
    "an extended header": lambda: chain([announced(tarfile.XHDTYPE, HUGE)], BLOCKS),
    "a global header": lambda: chain([announced(tarfile.XGLTYPE, HUGE)], BLOCKS),
    "a long name": lambda: chain([announced(tarfile.GNUTYPE_LONGNAME, HUGE)], BLOCKS),
    "a long link": lambda: chain([announced(tarfile.GNUTYPE_LONGLINK, HUGE)], BLOCKS),
    "a sparse map": lambda: chain([SPARSE], repeat(b"1\n" * 256)),
    "a file": lambda: chain([announced(tarfile.REGTYPE, HUGE)], BLOCKS),
    "extended headers": lambda: repeat(pax("comment=x")),
    "empty files": lambda: (header(f"f{number}", tarfile.REGTYPE, b"") for number in count()),
    "folders": lambda: repeat(header("folder", tarfile.DIRTYPE, b"")),
    "files of negative size": lambda: (
        pax("size=-500") + header(f"f{number}", tarfile.REGTYPE, b"") for number in count()
    ),
    "names of 8 KiB": lambda: (
        pax("path=" + "x" * 90) + header(str(n), tarfile.REGTYPE, b"") for n in count()
    ),
}


class Source:
    """Counts what is read."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self._parts = parts
        self._rest = b""
        self.given = 0

    def read(self, size: int = -1) -> bytes:
        assert size >= 0
        while len(self._rest) < size and self.given < 64 * MOST_READ_BYTES:
            part = next(self._parts)
            self.given += len(part)
            self._rest += part
        data, self._rest = self._rest[:size], self._rest[size:]
        return data


@pytest.mark.parametrize("name", BOMBS)
def test_a_bundle_without_end_is_refused_early(name: str, tmp_path: Path) -> None:
    source = Source(iter(BOMBS[name]()))
    with pytest.raises((InvalidInputError, StorageError)), limited(), timed():
        unpack_bundle(source, tmp_path / "folder", LIMITS)
    assert source.given < MOST_READ_BYTES
