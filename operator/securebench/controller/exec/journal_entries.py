"""Read the journal of a run that the operator may be writing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from securebench.controller.volume.journal import journal_lines
from securebench.json_values import object_at
from securebench.protocol.journal_lines import whole_line
from securebench.run.plan.keys import AttemptKey


def journal_entries(folder: Path) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the whole lines of a run's journal, which may be written meanwhile.

    Args:
        folder: Folder of the run.

    Raises:
        JournalCorruptError: A file that others continue is missing or damaged.
    """
    for text in journal_lines(folder):
        line = whole_line(text.removesuffix(b"\n"))
        if line is not None:
            found = json.loads(line.body)
            yield found["type"], found["entry"]


def entry_attempt(entry: Mapping[str, object]) -> AttemptKey | None:
    """Return the attempt that an entry is about, or None."""
    sources = (entry, object_at(entry, "lost"), object_at(entry, "finish"))
    for source in sources:
        for name in ("launch", "key"):
            match entry_numbers(source, name):
                case [int(task), int(attempt), *_]:
                    return AttemptKey(task, attempt)
    return None


def entry_numbers(entry: Mapping[str, object], name: str) -> list[object]:
    """Return a key of an entry as the journal has it, or an empty list."""
    value = entry.get(name)
    return value if isinstance(value, list) else []
