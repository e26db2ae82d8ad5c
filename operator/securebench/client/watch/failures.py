"""Why an attempt has no pass, in the words of its record; pure.

Source: decision 0037.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from securebench.benchmark.families.registry import text_verifier
from securebench.client.terminal_text import snippet

SAID_CHARACTERS: Final = 300
"""Longest line of a command and longest answer that is quoted."""

WRONG_ANSWER: Final = "wrong_answer"
CHECKS_FAILED: Final = "checks_failed"
NO_VERIFIER: Final = "no_verifier"
"""Words of the command line for records without ``failure_reason``."""

_OF_THE_AGENT = frozenset({"agent", "resource", "provider"})
"""Outcomes for which the harness' own end says something, where no check ran."""

Record = Mapping[str, object]


class Failure(NamedTuple):
    """Why an attempt has no pass.

    Args:
        reason: One word: the record's ``failure_reason``, or one of this module's.
        said: What record, command or answer say about it; may be empty.
    """

    reason: str
    said: str


def failure(record: Record) -> Failure | None:
    """Return why a record's attempt has no pass, or None when it has."""
    if record.get("passed") is True:
        return None
    return Failure(_reason(record), _said(record))


def reason_counts(records: Iterable[Record]) -> Counter[str]:
    """Count the attempts without a pass by reason."""
    found = map(failure, records)
    return Counter(item.reason for item in found if item is not None)


def counts_line(total: int, counts: Counter[str]) -> str:
    """Return the sentence about the attempts without a pass, the most frequent reason first.

    Args:
        total: All attempts.
        counts: As ``reason_counts`` returns it, not empty.
    """
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    words = ", ".join(f"{reason} {count}" for reason, count in ordered)
    return f"{counts.total()} of {total} attempts without a pass: {words}"


def _reason(record: Record) -> str:
    reason, outcome = record.get("failure_reason"), record.get("outcome")
    if isinstance(reason, str) and reason:
        return reason
    if outcome == "scored":
        return (
            CHECKS_FAILED if text_verifier(str(record.get("task_type"))) is None else WRONG_ANSWER
        )
    return outcome if isinstance(outcome, str) and outcome else NO_VERIFIER


def _said(record: Record) -> str:
    told = snippet(str(record.get("failure_message") or ""))
    for part in _parts(record):
        if part and part not in told:
            told = f"{told}; {part}" if told else part
    return told


def _parts(record: Record) -> tuple[str, ...]:
    if _reason(record) == WRONG_ANSWER:
        answer = snippet(str(record.get("candidate_text") or ""))
        return (f'the answer was "{answer[:SAID_CHARACTERS]}"',)
    verifier = tuple(_end(record, "verifier"))
    if verifier or record.get("outcome") not in _OF_THE_AGENT:
        return verifier
    return tuple(_end(record, "producer"))


def _end(record: Record, who: str) -> Iterator[str]:
    metadata = record.get(f"{who}_metadata")
    code = metadata.get("exit_code") if isinstance(metadata, Mapping) else None
    if not isinstance(code, int):
        return
    yield f"exit code {code}"
    for stream in ("stderr", "stdout"):
        line = _last_line(record.get(f"{who}_{stream}"))
        if line:
            yield f"{stream}: {line}"
            return


def _last_line(text: object) -> str:
    lines = text.rstrip().splitlines() if isinstance(text, str) else []
    return snippet(lines[-1])[:SAID_CHARACTERS] if lines else ""
