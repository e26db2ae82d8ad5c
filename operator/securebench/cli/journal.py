"""``securebench journal``: prints the journal of a run, for whoever asks why a run did what it did.

It only reads, so it may run beside the operator that writes the file.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from securebench.client.output import print_note, print_table
from securebench.clock import rfc3339
from securebench.controller.volume.journal import journal_bytes, read_entries
from securebench.controller.volume.registers import RunIndex, is_results_volume
from securebench.controller.volume.store import RunStore
from securebench.errors import ConfigError, JournalCorruptError
from securebench.protocol.volume import whole_line

HEADER = ("LINE", "TIME", "ENTRY", "ATTEMPT", "LAUNCH", "DETAILS")
DETAILS_WIDTH = 160
_COLUMNS = ("key", "launch", "at")


class JournalOutput(StrEnum):
    """How entries are printed."""

    TEXT = "text"
    JSON = "json"


class PrintedEntry(NamedTuple):
    """One entry as it stands in the file.

    Attributes:
        number: Number of the line, from 1.
        kind: Type of the entry.
        body: Its fields as JSON values.
    """

    number: int
    kind: str
    body: Mapping[str, object]

    @property
    def attempt(self) -> tuple[int, int] | None:
        """Index of the task and number of the attempt; None if the entry is about the run."""
        for found in _objects(self.body):
            for name in ("launch", "key"):
                match found.get(name):
                    case [int(task), int(attempt), *_]:
                        return task, attempt
        return None


def show_journal(root: Path, run: str, task: int | None, form: JournalOutput) -> int:
    """Print the entries of a run's journal and whether the file is intact.

    Args:
        root: Where the results volume is mounted.
        run: Name, run id or uid of a run; of several with one name, the latest.
        task: Only entries of this task, by its index from 0.
        form: Columns for people, or one JSON object a line.

    Returns:
        0, or 1 if the journal is damaged.

    Raises:
        ConfigError: No results volume, no such run, or it has no journal.
    """
    if not is_results_volume(root):
        raise ConfigError(f"{root} is no results volume; see --data-root")
    uid = _uid(root, run)
    try:
        data = journal_bytes(RunStore(root, uid).folder)
    except FileNotFoundError:
        reason = f"run {uid} has no journal: it never began, or its results were removed"
        raise ConfigError(reason) from None
    lines = [line for line in _lines(data) if task is None or _is_about(line, task)]
    if form is JournalOutput.JSON:
        for line in lines:
            entry = {"line": line.number, "type": line.kind, "entry": line.body}
            sys.stdout.write(json.dumps(entry) + "\n")
    else:
        print_table(HEADER, map(_row, lines))
    return _conclude(data, uid)


def _uid(root: Path, run: str) -> str:
    entries = RunIndex(root).entries()
    for entry in reversed(entries):
        if run in (entry.uid, entry.run, entry.run_id):
            return entry.uid
    raise ConfigError(f"no run {run!r} on the volume; runs/index.jsonl lists all {len(entries)}")


def _lines(data: bytes) -> Iterator[PrintedEntry]:
    """Yield every line whose checksum matches, also of a damaged file."""
    for number, text in enumerate(data.split(b"\n"), start=1):
        line = whole_line(text)
        if line is not None:
            found = json.loads(line.body)
            yield PrintedEntry(number, found["type"], found["entry"])


def _conclude(data: bytes, uid: str) -> int:
    try:
        replay = read_entries(data, uid)
    except JournalCorruptError as error:
        print_note(f"damaged: {error}")
        return 1
    cut = len(data) - replay.size_bytes
    end = f"; {cut} bytes of a cut last line follow, which counts for nothing" if cut else ""
    print_note(f"{len(replay.entries)} entries, intact{end}")
    return 0


def _is_about(line: PrintedEntry, task: int) -> bool:
    return line.attempt is not None and line.attempt[0] == task


def _row(line: PrintedEntry) -> tuple[str, ...]:
    attempt = "" if line.attempt is None else "{}/{}".format(*line.attempt)
    at = _first(line.body, "at")
    time = rfc3339(at) if isinstance(at, (int, float)) else ""
    details = {name: value for name, value in line.body.items() if name not in _COLUMNS}
    text = json.dumps(details, separators=(",", ":")) if details else ""
    shown = text if len(text) <= DETAILS_WIDTH else f"{text[:DETAILS_WIDTH]}..."
    return str(line.number), time, line.kind, attempt, _launch(line.body), shown


def _launch(body: Mapping[str, object]) -> str:
    match _first(body, "launch"):
        case [int(), int(), str(role), int(number)]:
            return f"{role} {number}"
    return ""


def _first(body: Mapping[str, object], name: str) -> object:
    """Return a field of an entry, or of one of the objects in it."""
    return next((found[name] for found in _objects(body) if name in found), None)


def _objects(body: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    yield body
    for value in body.values():
        if isinstance(value, Mapping):
            yield value
