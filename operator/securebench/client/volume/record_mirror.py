"""Mirror a run's ``candidates.jsonl`` locally: whole lines, replaced atomically.

The operator rewrites its file in pack order, so a new record can appear anywhere near the end. The
mirror offers several prefixes that end at line ends, and the operator sends only what follows the
longest matching one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import IO

from securebench.benchmark.files.bundle import CHUNK_BYTES, require_digest
from securebench.client.handed_files import handed_lines
from securebench.client.volume.link import OperatorLink
from securebench.protocol.exec_calls import PrefixMark
from securebench.protocol.volume import CANDIDATES
from securebench.run.records.reading import (
    Record,
    RecordFlaws,
    RecordKey,
    distinct_records,
    record_key,
)

_LINES_BACK = (0, 4, 16, 64, 256, 1024)
"""Ends of the offered prefixes, in lines from the end; parallelism bounds how far records move."""


class RecordMirror:
    """Keeps a local file in sync with the one on the volume.

    Args:
        link: Exec protocol with the operator's Pod.
        uid: Uid of the BenchmarkRun.
        path: The local file; its folder exists.
        file: Its name on the volume.
    """

    def __init__(self, link: OperatorLink, uid: str, path: Path, file: str = CANDIDATES) -> None:
        self._link = link
        self._uid = uid
        self._path = path
        self._file = file
        self._seen: set[RecordKey] = set()

    async def refresh(self) -> list[Record]:
        """Fetch changes; the local file is replaced only if the transfer is complete.

        Returns:
            The new records, in file order.

        Raises:
            DigestMismatchError: The transfer was corrupted.
            SecureBenchError: See ``OperatorLink.get_run``.
        """
        return list(self._unseen()) if await self.fetch() else []

    async def fetch(self, outdated: Path | None = None) -> bool:
        """Do the same without parsing records; return whether the volume has the file.

        Args:
            outdated: A file that tells of the records that are there; it is removed before they
                are replaced, so that it never lies beside others.
        """
        draft = self._path.with_name(f".{self._path.name}.part")
        try:
            with draft.open("wb") as sink:
                arrived = await self._fetch(sink)
            if arrived:
                self._replace(draft, outdated)
        finally:
            draft.unlink(missing_ok=True)
        return arrived

    def _replace(self, draft: Path, outdated: Path | None) -> None:
        if outdated is not None:
            outdated.unlink(missing_ok=True)
        draft.replace(self._path)

    async def _fetch(self, sink: IO[bytes]) -> bool:
        marks = line_marks(self._path)
        content, position = hashlib.sha256(), 0
        while True:
            part = await self._link.get_run(self._uid, self._file, marks)
            if part is None:
                return False
            if part.offset != position:
                content = self._restart(sink, part.offset)
            sink.write(part.data)
            content.update(part.data)
            position = part.offset + len(part.data)
            require_digest(self._file, expected=part.sha256, found=content.hexdigest())
            if part.is_complete:
                return True
            marks = (PrefixMark(position, content.hexdigest()),)

    def _restart(self, sink: IO[bytes], size: int) -> hashlib._Hash:
        """Restart from a prefix of the local file."""
        sink.seek(0)
        sink.truncate()
        content = hashlib.sha256()
        if size:
            with self._path.open("rb") as local:
                for data in _first(local, size):
                    content.update(data)
                    sink.write(data)
        return content

    def _unseen(self) -> Iterator[Record]:
        for record in read_records(self._path):
            key = record_key(record)
            if key not in self._seen:
                self._seen.add(key)
                yield record


def read_records(path: Path, flaws: RecordFlaws | None = None) -> Iterator[Record]:
    """Yield the first valid record of each attempt in a file, in file order.

    Args:
        path: The file, which somebody may have handed over.
        flaws: Gets what is wrong with it.

    Raises:
        FileNotFoundError: There is no such file.
        InvalidInputError: It is no file of records.
    """
    return distinct_records(handed_lines(path), RecordFlaws() if flaws is None else flaws)


def line_marks(path: Path) -> tuple[PrefixMark, ...]:
    """Return prefixes of a file that end at line ends, shortest first; none if it is missing."""
    try:
        source = path.open("rb")
    except FileNotFoundError:
        return ()
    with source:
        ends = list(accumulate(len(line) for line in source if line.endswith(b"\n")))
        offsets = sorted({ends[-1 - back] for back in _LINES_BACK if back < len(ends)})
        source.seek(0)
        return tuple(_marks(source, offsets))


def _marks(source: IO[bytes], offsets: list[int]) -> Iterator[PrefixMark]:
    content, position = hashlib.sha256(), 0
    for offset in offsets:
        for data in _first(source, offset - position):
            content.update(data)
        position = offset
        yield PrefixMark(offset, content.hexdigest())


def _first(source: IO[bytes], size: int) -> Iterator[bytes]:
    while size > 0 and (data := source.read(min(size, CHUNK_BYTES))):
        size -= len(data)
        yield data
