"""Records as what reads candidates.jsonl sees them: values that may lack anything. Pure.

A line ends at a line feed and nowhere else. A file that was joined from two, or edited, may have
several records of one attempt: the first counts, and the reader reports the others.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from securebench.protocol.messages import decode_value

Record = Mapping[str, object]


class RecordKey(NamedTuple):
    """Identifies the attempt of a record."""

    task_id: str
    attempt: int


def record_key(record: Record) -> RecordKey:
    """Return the attempt of a record."""
    attempt = record.get("attempt")
    return RecordKey(str(record.get("task_id")), attempt if isinstance(attempt, int) else 1)


def parse_record(line: bytes) -> Record | None:
    """Return the record of a line, or None for a damaged one."""
    try:
        record = decode_value(line.removeprefix(BOM_UTF8))
    except ValueError:
        return None
    return record if isinstance(record, dict) else None


_NAMED = 3
"""Attempts that a message names."""


@dataclass(slots=True)
class RecordFlaws:
    """What is wrong with the lines of a file.

    Attributes:
        damaged: Lines that are no records.
        repeated: Attempts whose record stands there more than once, in the order of the lines.
        contradicting: Attempts with records that differ.
    """

    damaged: int = 0
    repeated: list[RecordKey] = field(default_factory=list)
    contradicting: list[RecordKey] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Whether anything is wrong."""
        return bool(self.damaged or self.repeated or self.contradicting)

    def sentences(self, file: str) -> Iterator[str]:
        """Yield what a user should know of them.

        Args:
            file: Its name.
        """
        if self.damaged:
            yield f"{self.damaged} damaged lines of {file} left out"
        if self.repeated:
            yield f"{file} repeats {_listed(self.repeated)}: each counts once"
        if self.contradicting:
            listed = _listed(self.contradicting)
            yield f"{file} has records that contradict one another of {listed}: the first counts"


def _listed(keys: Iterable[RecordKey]) -> str:
    names = [f"task {key.task_id!r}, attempt {key.attempt}" for key in dict.fromkeys(keys)]
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return "; ".join(names[:_NAMED]) + more


def distinct_records(lines: Iterable[bytes], flaws: RecordFlaws) -> Iterator[Record]:
    """Yield the first record of each attempt.

    Args:
        lines: Lines of ``candidates.jsonl``.
        flaws: Gets what is wrong with them; complete when the last record was yielded.
    """
    return first_of_each(map(parse_record, lines), flaws)


def first_of_each(records: Iterable[Record | None], flaws: RecordFlaws) -> Iterator[Record]:
    """Do the same of records that were parsed; None is a damaged line."""
    seen: dict[RecordKey, int] = {}
    for record in records:
        if record is None:
            flaws.damaged += 1
            continue
        key, content = record_key(record), hash(json.dumps(record, sort_keys=True))
        if key not in seen:
            seen[key] = content
            yield record
        elif seen[key] == content:
            flaws.repeated.append(key)
        else:
            flaws.contradicting.append(key)
