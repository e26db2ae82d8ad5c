"""Lines of the local ``candidates.jsonl`` that a resume ignores (contract 15.6).

The results volume is authoritative: a local line is valid only if it equals the record that the
resumed run has there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from securebench.client.session.earlier import Binding
from securebench.protocol.messages import decode_value
from securebench.run.records.reading import Record, RecordKey, record_key

_REQUIRED = ("task_id", "attempt", "verification_status", "outcome")


class Flaw(StrEnum):
    """Why a line is ignored; also a field name of the summary."""

    DAMAGED = "damaged"
    FOREIGN = "foreign"


class LeftOut(NamedTuple):
    """One ignored line.

    Args:
        line: Line number, from 1.
        flaw: Kind of defect.
        reason: A few words for the user.
    """

    line: int
    flaw: Flaw
    reason: str


def left_out_lines(
    path: Path, binding: Binding, ledger: Mapping[RecordKey, Record]
) -> tuple[LeftOut, ...]:
    """Return the ignored lines of a file, in file order; none if the file does not exist.

    Args:
        path: The local ``candidates.jsonl``.
        binding: Binding of the resumed run.
        ledger: Records of that run on the results volume.
    """
    try:
        with path.open("rb") as source:
            return tuple(_flaws(source, binding, ledger))
    except FileNotFoundError:
        return ()


def _flaws(
    lines: Iterable[bytes], binding: Binding, ledger: Mapping[RecordKey, Record]
) -> Iterator[LeftOut]:
    seen: set[RecordKey] = set()
    for number, line in enumerate(lines, start=1):
        record, reason = _parsed(line)
        if record is None:
            yield LeftOut(number, Flaw.DAMAGED, reason)
            continue
        reason = _foreign_reason(record, binding, ledger, seen)
        if reason:
            yield LeftOut(number, Flaw.FOREIGN, reason)


def _parsed(line: bytes) -> tuple[Record | None, str]:
    if b"\0" in line:
        return None, "NUL bytes"
    try:
        record = decode_value(line.decode("utf-8"))
    except UnicodeDecodeError:
        return None, "not UTF-8"
    except ValueError:
        return None, "not JSON" if line.endswith(b"\n") else "cut line"
    return (record, "") if isinstance(record, dict) else (None, "not an object")


def _foreign_reason(
    record: Record,
    binding: Binding,
    ledger: Mapping[RecordKey, Record],
    seen: set[RecordKey],
) -> str:
    missing = [name for name in (*Binding._fields, *_REQUIRED) if name not in record]
    if missing:
        return f"without {', '.join(missing)}"
    for name, value in binding._asdict().items():
        if record[name] != value:
            return f"of another run: other {name.replace('_', ' ')}"
    key = record_key(record)
    if key in seen:
        return f"second line of task {key.task_id}"
    if key not in ledger:
        return f"unknown task {key.task_id}"
    if record != ledger[key]:
        return f"differs from the record of task {key.task_id} on the results volume"
    seen.add(key)
    return ""
