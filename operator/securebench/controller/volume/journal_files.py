"""The files of one run's journal: one for each leader that wrote it. Every function blocks.

``journal.jsonl`` is the first. The next leader continues in ``journal.<epoch>.jsonl``, whose first
line (``Continued``) says which file it continues and how many bytes of that file count. What an
earlier leader still appends to its own file comes behind those bytes and counts for nothing. The
parts that count, one behind the other, are one chain of lines as ``journal`` describes it.

Source: decision 0066.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from securebench.controller.volume.journal import Journal, Replay, decode, read_entries
from securebench.controller.volume.lead import VolumeLead
from securebench.core.errors import JournalCorruptError, StorageError
from securebench.protocol.journal_lines import whole_line
from securebench.protocol.volume import JOURNAL
from securebench.run.state.entries import Continued

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

    Args:
        folder: Folder of the run.

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


def journal_lines(folder: Path) -> Iterator[bytes]:
    """Yield the lines of a run's journal that count, one at a time; the last one may be cut.

    Raises:
        JournalCorruptError: A file that others continue is missing or damaged.
    """
    for part in journal_parts(folder):
        yield from part.lines()


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
        folder: Folder of the run.
        run_uid: The run that it must belong to.

    Raises:
        FileNotFoundError: There is none.
        JournalCorruptError: As of ``journal.read_entries``.
    """
    return read_entries(journal_bytes(folder), run_uid)


def open_journal(folder: Path, run_uid: str, lead: VolumeLead) -> Journal:
    """Open a run's journal as its only writer.

    Args:
        folder: Folder of the run.
        run_uid: The run.
        lead: Who writes.

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
