"""The write-ahead journal of a run: append-only, fsynced, a chain of checksums, one writer.

``protocol.volume`` has the form of a line. A last line that is cut or whose checksum does
not match was never acknowledged and is removed. Any other bad line is corruption, also where a lost
newline makes it one with the last, and so is a whole line that does not follow the line before it.

Each leader writes a file of its own. ``journal.jsonl`` is the first. The next leader continues in
``journal.<epoch>.jsonl``, whose first line (``Continued``) names the file that it continues and how
many bytes of that file count. What an earlier leader still appends to its own file comes behind
those bytes and does not count. The parts that count form one chain of lines (decision 0066).
Every function of the second half, on the files of one run, blocks.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, NamedTuple

from securebench.controller.volume.lead import VolumeLead
from securebench.errors import JournalCorruptError, StorageError
from securebench.files import fsync_folder, write_all
from securebench.protocol.volume import (
    CRC_DIGITS,
    JOURNAL,
    JournalLine,
    checksum,
    first_link,
    whole_line,
)
from securebench.run.state.entries import (
    Continued,
    Entry,
    Finished,
    LaunchLost,
    Produced,
    Verified,
    noisy_part,
)
from securebench.run.state.entry_json import decode_entry, encode_entry

_START = b' {"type":"'
"""Follows the checksum in every line."""

_ADVICE = "nothing was changed; put the file back from a copy or start a new run without resumeFrom"


class Replay(NamedTuple):
    """What a journal holds.

    Attributes:
        entries: In their order.
        size_bytes: How many bytes of the file hold them; what follows was never acknowledged.
        link: What the next line links to.
    """

    entries: tuple[Entry, ...]
    size_bytes: int
    link: bytes


class Journal:
    """The open journal of one run; ``journal_files.open_journal`` sees to it that it is one.

    Args:
        path: The file that is written; made when it is absent.
        before: What counts of the files that it continues.
        replay: The same, decoded; then the file is new.
        head: First line of a new file that continues others.
        require: Raises unless the process may still write.

    Attributes:
        link: Checksum of the last line that counts.

    Raises:
        JournalCorruptError: As of ``read_entries``; the file stays as it is.
        LeaseOverdueError: Another operator may work; may be called again.
        OSError: The disk did not take the first line.
    """

    def __init__(
        self,
        path: Path,
        run_uid: str,
        *,
        before: bytes = b"",
        replay: Replay | None = None,
        head: Continued | None = None,
        require: Callable[[], None] = lambda: None,
    ) -> None:
        is_new = not path.exists()
        self._has_cut_line = False
        self._require = require
        self._lock = threading.RLock()
        self.path = path
        self._file: BinaryIO = path.open("a+b", buffering=0)
        try:
            self._require()
            replay = replay or _recover(self._file, run_uid, before)
            self.entries, self.link = replay.entries, replay.link
            self._append([head] if head is not None else [])
        except BaseException:
            self._file.close()
            raise
        if is_new:
            fsync_folder(path.parent)

    def append(self, batch: Iterable[Entry]) -> None:
        """Write entries and return when the disk has them; nothing happens for an empty batch.

        Raises:
            LeaseOverdueError: Another operator may work; may be called again.
            OSError: The disk did not take them; what was written in part is removed. Where that
                fails too, nothing is written behind it until the journal is opened again.
        """
        with self._lock:
            self._append(batch)

    def _append(self, batch: Iterable[Entry]) -> None:
        data, link = encode_all(batch, self.link)
        if not data:
            return
        self._require()
        if self._has_cut_line:
            raise OSError(errno.EIO, "the journal ends with a cut line; it must be opened again")
        end = self._file.seek(0, os.SEEK_END)
        try:
            write_all(self._file, data)
            os.fsync(self._file.fileno())
        except OSError:
            self._has_cut_line = True
            self._require()  # what is there may count for a later leader by now
            self._file.truncate(end)
            self._has_cut_line = False
            raise
        self.link = link

    def take_entries(self) -> tuple[Entry, ...]:
        """Return what was read when the journal was opened, and keep it no longer."""
        entries, self.entries = self.entries, ()
        return entries

    @property
    def size_bytes(self) -> int:
        """Size of the file."""
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        """Give the file back, once no other thread writes.

        Raises:
            OSError: The disk did not take what was written; the file is given back all the same.
        """
        with self._lock:
            self._file.close()


def encode(entry: Entry, link: bytes) -> bytes:
    """Return one line with its newline.

    Args:
        link: Checksum of the line before it, or ``first_link``.
    """
    body = encode_entry(entry)
    return b"%b %b %b\n" % (link, checksum(link, body), body)


def encode_all(batch: Iterable[Entry], link: bytes) -> tuple[bytes, bytes]:
    """Return lines that follow each other, and what the line behind them links to."""
    lines = []
    for entry in batch:
        line = encode(entry, link)
        link = line[CRC_DIGITS + 1 :][:CRC_DIGITS]
        lines.append(line)
    return b"".join(lines), link


def decode(body: bytes) -> Entry:
    """Return a line's entry; of its evidence only what met a limit, the rest stays on the disk.

    Raises:
        ValueError: It is none.
    """
    entry = decode_entry(body)
    if isinstance(entry, LaunchLost | Produced | Verified | Finished):
        return replace(entry, evidence=noisy_part(entry.evidence))
    return entry


def read_entries(data: bytes, run_uid: str) -> Replay:
    """Decode a whole journal.

    Args:
        run_uid: The run that it must belong to.

    Raises:
        JournalCorruptError: A line before the last does not hold; a whole line is missing, doubled,
            in another place or of another run.
    """
    *lines, rest = data.split(b"\n")
    found: list[Entry] = []
    link, good = first_link(run_uid), 0
    for number, text in enumerate(lines, start=1):
        line = whole_line(text)
        is_last = number == len(lines) and not rest
        if line is None and is_last and not _hides_entry(text):
            break
        if line is None or line.link != link:
            raise _corrupt(number, _fault(lines, number))
        try:
            found.append(decode(line.body))
        except ValueError as error:
            raise _corrupt(number, f"holds no entry: {error}") from error
        link, good = line.checksum, good + len(text) + 1
    return Replay(tuple(found), good, link)


def _corrupt(number: int, fault: str) -> JournalCorruptError:
    return JournalCorruptError(f"line {number} of the journal {fault}; {_ADVICE}", line=number)


def _fault(lines: Sequence[bytes], number: int) -> str:
    """Return what is wrong with a line that does not continue the chain."""
    line = whole_line(lines[number - 1])
    if line is None:
        return "is damaged"
    own = [other and other.checksum for other in map(whole_line, lines)]
    if line.checksum in own[: number - 1]:
        return f"is line {own.index(line.checksum) + 1} once more"
    if line.link in own:
        return f"belongs behind line {own.index(line.link) + 1}: lines changed places"
    if number == 1:
        return "does not begin this run: lines before it are missing, or it is of another run"
    return f"does not follow line {number - 1}: lines are missing, or it is of another run"


def _hides_entry(line: bytes) -> bool:
    """Whether a whole line follows in this one: its start lost its newline to a flipped bit."""
    before = 2 * CRC_DIGITS + 1
    at = line.find(_START, before + 1)
    while at > 0:
        if whole_line(line[at - before :]) is not None:
            return True
        at = line.find(_START, at + 1)
    return False


def _recover(file: BinaryIO, run_uid: str, before: bytes) -> Replay:
    file.seek(0)
    replay = read_entries(before + file.read(), run_uid)
    if replay.size_bytes != len(before) + file.seek(0, os.SEEK_END):
        file.truncate(replay.size_bytes - len(before))
        os.fsync(file.fileno())
    return replay


_STEM, _SUFFIX = Path(JOURNAL).stem, Path(JOURNAL).suffix
_FIRST = 0
"""Stands for ``journal.jsonl``, whatever its writer's epoch."""


class JournalPart(NamedTuple):
    """A file of a journal.

    Attributes:
        path: The file; only the last one may be absent.
        size_bytes: How many bytes of it count; None for all.
    """

    path: Path
    size_bytes: int | None

    def content(self) -> bytes:
        """Return the bytes that count; fewer when the file lost some, none when it is absent."""
        if not self.path.exists():
            return b""
        with self.path.open("rb") as file:
            return file.read(-1 if self.size_bytes is None else self.size_bytes)

    def lines(self) -> Iterator[bytes]:
        """Yield the lines that count, one at a time; none when the file is absent."""
        left = self.size_bytes
        with suppress(FileNotFoundError), self.path.open("rb") as file:
            for line in file:
                if left is not None:
                    left -= len(line)
                    if left < 0:
                        return
                yield line


def journal_parts(folder: Path) -> Sequence[JournalPart]:
    """Return the files of a run's journal in their order, at least one.

    Raises:
        JournalCorruptError: A file that others continue is missing or damaged.
    """
    heads = _heads(folder)
    epoch, size_bytes = max(heads, default=_FIRST), None
    parts: list[JournalPart] = []
    while epoch != _FIRST:
        parts.append(JournalPart(_file(folder, epoch), size_bytes))
        head = heads.get(epoch)
        if head is None or not _FIRST <= head.previous < epoch:
            raise JournalCorruptError(
                f"{_file(folder, epoch).name} is missing or damaged, and the journal goes on "
                "behind it; put it back from a copy or start a new run without resumeFrom",
                line=1,
            )
        epoch, size_bytes = head.previous, head.size_bytes
    parts.append(JournalPart(_file(folder, _FIRST), size_bytes))
    return parts[::-1]


def journal_lines(folder: Path) -> Iterator[tuple[bytes, JournalLine]]:
    """Yield the whole lines of a run's journal, which may be written meanwhile, with their parts.

    Raises:
        JournalCorruptError: A file that others continue is missing or damaged.
    """
    for part in journal_parts(folder):
        for text in part.lines():
            line = whole_line(text.removesuffix(b"\n"))
            if line is not None:
                yield text, line


def journal_entries(folder: Path) -> Iterator[Entry]:
    """Yield the entries of these lines, with their evidence.

    Raises:
        JournalCorruptError: A file that others continue is missing or damaged.
        ValueError: A line holds no entry.
    """
    return (decode_entry(line.body) for _, line in journal_lines(folder))


def journal_bytes(folder: Path) -> bytes:
    """Return what counts of a run's journal, as one text; its last line may be cut.

    Raises:
        FileNotFoundError: There is none.
        JournalCorruptError: A file that others continue is missing or damaged.
    """
    parts = journal_parts(folder)
    if not parts[-1].path.exists():
        raise FileNotFoundError(parts[-1].path)
    return _joined(parts)


def read_journal(folder: Path, run_uid: str) -> Replay:
    """Decode a run's journal.

    Args:
        run_uid: The run that it must belong to.

    Raises:
        FileNotFoundError: There is none.
        JournalCorruptError: As of ``journal.read_entries``.
    """
    return read_entries(journal_bytes(folder), run_uid)


def open_journal(folder: Path, run_uid: str, lead: VolumeLead) -> Journal:
    """Open a run's journal as its only writer.

    Raises:
        StorageError: A later leader has it.
        JournalCorruptError: As of ``read_journal``; nothing is changed.
        OSError: The volume did not do what was asked, or a later leader has begun.
    """
    if _is_made(folder / JOURNAL):
        lead.own.add(folder / JOURNAL)
    *earlier, last = journal_parts(folder)
    if last.path in lead.own:
        return Journal(last.path, run_uid, before=_joined(earlier), require=lead.require)
    return _continued(folder, run_uid, lead)


def _continued(folder: Path, run_uid: str, lead: VolumeLead) -> Journal:
    """Go on in a file of this leader's own.

    The file is made before the folder is listed: a client of a file server, which may remember an
    older list, then asks for a new one.
    """
    path = _file(folder, lead.epoch)
    lead.place_new(path)
    latest = max(_heads(folder), default=_FIRST)
    if latest >= lead.epoch:
        raise StorageError(f"a leader of epoch {latest} has the journal, this one {lead.epoch}")
    *parts, last = journal_parts(folder)
    # Read once: an earlier leader may still append to the last file.
    earlier, content = _joined(parts), last.content()
    replay = read_entries(earlier + content, run_uid)
    head = Continued(lead.epoch, lead.holder, latest, replay.size_bytes - len(earlier))
    return Journal(path, run_uid, replay=replay, head=head, require=lead.require)


def _is_made(path: Path) -> bool:
    """Make an empty file; False where there is one."""
    try:
        path.open("xb").close()
    except FileExistsError:
        return False
    return True


def _joined(parts: Sequence[JournalPart]) -> bytes:
    return b"".join(part.content() for part in parts)


def _file(folder: Path, epoch: int) -> Path:
    return folder / (JOURNAL if epoch == _FIRST else f"{_STEM}.{epoch}{_SUFFIX}")


def journal_names(folder: Path) -> Iterator[Path]:
    """Yield every file of a run's journal, also those that count for nothing."""
    yield from folder.glob(f"{_STEM}.*{_SUFFIX}")
    if (folder / JOURNAL).exists():
        yield folder / JOURNAL


def _heads(folder: Path) -> Mapping[int, Continued]:
    """Return the first line of each file but ``journal.jsonl``, by epoch."""
    found = {}
    for path in folder.glob(f"{_STEM}.*{_SUFFIX}"):
        epoch = path.name.removeprefix(f"{_STEM}.").removesuffix(_SUFFIX)
        head = _head(path, int(epoch)) if epoch.isdecimal() else None
        if head is not None:
            found[head.epoch] = head
    return found


def _head(path: Path, epoch: int) -> Continued | None:
    """Return what a file continues; None where its leader came no further than to make it.

    Raises:
        JournalCorruptError: There are lines behind a first one that is no such entry.
    """
    with path.open("rb") as file:
        first, rest = file.readline(), file.read(1)
    line = whole_line(first.removesuffix(b"\n"))
    try:
        head = decode(line.body) if line is not None and first.endswith(b"\n") else None
    except ValueError:
        head = None
    if isinstance(head, Continued) and head.epoch == epoch:
        return head
    if rest:
        raise JournalCorruptError(f"line 1 of {path.name} is damaged; nothing was changed", line=1)
    return None
