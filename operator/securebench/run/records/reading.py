"""Records as what reads candidates.jsonl sees them: values that may lack anything. Pure."""

from __future__ import annotations

from collections.abc import Mapping
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
        record = decode_value(line)
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
