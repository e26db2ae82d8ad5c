"""The folder of a run's results on the tester's machine.

Somebody else may have prepared the folder: a FIFO that never ends, a link to a device or to a file
of the reader, one line of many gigabytes. Only regular files are opened, no link is followed, and
what is in memory at a time is bounded.

``candidates.jsonl`` mirrors the operator's file: whole lines, replaced atomically. The operator
rewrites its file in pack order, so a new record can appear anywhere near the end. The mirror offers
several prefixes that end at line ends, and the operator sends only what follows the longest
matching one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from io import BytesIO
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Final
from uuid import uuid4

from securebench.benchmark.files.bundle import CHUNK_BYTES, require_digest
from securebench.client.output import print_note, shown_path
from securebench.client.volume import OperatorLink
from securebench.errors import ConfigError, InvalidInputError, StorageError
from securebench.files import UnreadableError, open_regular, open_root
from securebench.protocol.exec_calls import PrefixMark
from securebench.protocol.volume import CANDIDATES
from securebench.run.records.reading import (
    Record,
    RecordFlaws,
    RecordKey,
    distinct_records,
    record_key,
)
from securebench.sizes import MIB

LINE_BYTES: Final = 64 * MIB
"""Bytes of a line, or of a file that is read whole. A record has some MiB at most."""


def handed_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file with their line feeds.

    Raises:
        FileNotFoundError: There is no such file.
        InvalidInputError: It is no regular file, or has a line of more than ``LINE_BYTES``.
    """
    if not path.is_symlink() and not path.exists():
        raise FileNotFoundError(2, "No such file or directory", str(path))
    try:
        with open_root(path.parent) as root, open_regular(root, path.name) as file:
            while line := file.readline(LINE_BYTES + 1):
                if len(line) > LINE_BYTES:
                    raise InvalidInputError(
                        f"{shown_path(path)} has a line of more than {LINE_BYTES // MIB} MiB: it"
                        " is no file of a run"
                    )
                yield line
    except UnreadableError as error:
        raise InvalidInputError(f"{shown_path(path.parent)}: {error}") from None


def handed_content(path: Path) -> bytes:
    """Return the content of a file.

    Raises:
        FileNotFoundError: There is no such file.
        InvalidInputError: It is no regular file, or has more than ``LINE_BYTES``.
    """
    content = bytearray()
    for line in handed_lines(path):
        content += line
        if len(content) > LINE_BYTES:
            raise InvalidInputError(
                f"{shown_path(path)} has more than {LINE_BYTES // MIB} MiB: it is no file of a run"
            )
    return bytes(content)


def means_folder(subject: str) -> bool:
    """Return whether an argument means a result folder and no run: it is written as a path.

    A bare name always means the run in the cluster: a folder of that name, which others may have
    put there, would answer for it.
    """
    if "/" in subject or subject in {".", ".."}:
        return True
    if Path(subject).is_dir():
        print_note(f"{subject}: the run of this name in the cluster; the folder is ./{subject}")
    return False


def make_output_folder(folder: Path) -> None:
    """Create the folder and its parents, and check that it is writable.

    Raises:
        ConfigError: It cannot be created or written to.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise ConfigError(f"{_problem(folder, error)}; choose another with --output-dir") from error


def refuse_other_run(folder: Path, run_id: str) -> None:
    """Check that records in an output folder are none of another run.

    Raises:
        ConfigError: They are.
    """
    path = folder / CANDIDATES
    found = (record.get("run_id") for record in read_records(path)) if path.exists() else ()
    other = next((each for each in found if each not in (None, run_id)), None)
    if other is not None:
        raise ConfigError(
            f"{shown_path(folder)} has the records of run {other!r}; choose another folder with"
            " --output-dir, or remove them"
        )


def _problem(folder: Path, error: OSError) -> str:
    if isinstance(error, FileExistsError | NotADirectoryError):
        file = next(path for path in (folder, *folder.parents) if path.exists())
        return (
            f"the output folder {shown_path(folder)} cannot be created:"
            f" {shown_path(file)} is a file"
        )
    why = (error.strerror or str(error)).lower()
    return f"the output folder {shown_path(folder)} cannot be written: {why}"


_LINES_BACK = (0, 4, 16, 64, 256, 1024)
"""Ends of the offered prefixes, in lines from the end; parallelism bounds how far records move."""


class RecordMirror:
    """Keeps a local file in sync with the one on the volume.

    Args:
        link: Exec protocol with the operator's Pod.
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
        # Another terminal may follow the same run into the same folder.
        draft = self._path.with_name(f".{self._path.name}.{uuid4().hex}.part")
        try:
            with draft.open("wb") as sink, _present(self._path) as local:
                arrived = await self._fetch(sink, local)
            if arrived:
                self._replace(draft, outdated)
        except OSError as error:
            raise StorageError(
                f"{shown_path(self._path)} cannot be written: {error.strerror}; the results are on"
                " the results volume: make room, and fetch them with securebench results"
            ) from error
        finally:
            draft.unlink(missing_ok=True)
        return arrived

    def _replace(self, draft: Path, outdated: Path | None) -> None:
        if outdated is not None:
            outdated.unlink(missing_ok=True)
        draft.replace(self._path)

    async def _fetch(self, sink: IO[bytes], local: IO[bytes]) -> bool:
        marks = line_marks(local)
        content, position = hashlib.sha256(), 0
        while True:
            part = await self._link.get_run(self._uid, self._file, marks)
            if part is None:
                return False
            if part.offset != position:
                content = _restart(sink, local, part.offset)
            sink.write(part.data)
            content.update(part.data)
            position = part.offset + len(part.data)
            require_digest(self._file, expected=part.sha256, found=content.hexdigest())
            if part.is_complete:
                return True
            marks = (PrefixMark(position, content.hexdigest()),)

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


def _present(path: Path) -> IO[bytes]:
    """Open a file, or an empty one in its place."""
    try:
        return path.open("rb")
    except FileNotFoundError:
        return BytesIO()


def _restart(sink: IO[bytes], local: IO[bytes], size: int) -> hashlib._Hash:
    """Let the sink begin with a prefix of the local file."""
    sink.seek(0)
    sink.truncate()
    local.seek(0)
    content = hashlib.sha256()
    for data in _first(local, size):
        content.update(data)
        sink.write(data)
    return content


def line_marks(source: IO[bytes]) -> tuple[PrefixMark, ...]:
    """Return prefixes of a file that end at line ends, shortest first."""
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
