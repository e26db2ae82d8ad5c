"""Explain from its record why an attempt did not pass; pure.

Source: decision 0037.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from securebench.benchmark.families.registry import text_verifier
from securebench.run.records.reading import Record
from securebench.text import snippet

QUOTE_CHARACTERS: Final = 300
"""Maximum length of a quoted output line or answer."""

WRONG_ANSWER: Final = "wrong_answer"
CHECKS_FAILED: Final = "checks_failed"
NO_VERIFIER: Final = "no_verifier"
"""Reasons that the command line prints for records without ``failure_reason``."""

_PYTEST_ERROR: Final = "E  "
"""Begins the lines of pytest that say what went wrong."""

_OURS: Final = "securebench: "
"""Begins lines that SecureBench adds to the output of a check."""

_OF_THE_AGENT = frozenset({"agent", "resource", "provider"})
"""Outcomes that the harness's exit code and output help to explain, if no check ran."""


class Failure(NamedTuple):
    """Why an attempt did not pass.

    Args:
        reason: The record's ``failure_reason``, or one of this module's reasons.
        said: Details from the record's message, the output or the answer; may be empty.
    """

    reason: str
    said: str


def failure(record: Record) -> Failure | None:
    """Return why the attempt of a record did not pass, or None if it passed."""
    if record.get("passed") is True:
        return None
    return Failure(_reason(record), _details(record))


def reason_counts(records: Iterable[Record]) -> Counter[str]:
    """Count the attempts that did not pass, by reason."""
    found = map(failure, records)
    return Counter(item.reason for item in found if item is not None)


def counts_line(total: int, counts: Counter[str]) -> str:
    """Summarise the attempts that did not pass, the most frequent reason first.

    Args:
        total: Number of all attempts.
        counts: From ``reason_counts``; not empty.
    """
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    listed = ", ".join(f"{reason} {count}" for reason, count in ordered)
    return f"{counts.total()} of {total} attempts without a pass: {listed}"


def _reason(record: Record) -> str:
    reason, outcome = record.get("failure_reason"), record.get("outcome")
    if isinstance(reason, str) and reason:
        return reason
    if outcome == "scored":
        return (
            CHECKS_FAILED if text_verifier(str(record.get("task_type"))) is None else WRONG_ANSWER
        )
    return outcome if isinstance(outcome, str) and outcome else NO_VERIFIER


def _details(record: Record) -> str:
    details = snippet(str(record.get("failure_message") or ""))
    for part in _parts(record):
        if part and part not in details:
            details = f"{details}; {part}" if details else part
    return details


def _parts(record: Record) -> tuple[str, ...]:
    if _reason(record) == WRONG_ANSWER:
        answer = snippet(str(record.get("candidate_text") or ""))
        return (f'the answer was "{answer[:QUOTE_CHARACTERS]}"',)
    verifier = tuple(_exit_details(record, "verifier"))
    if verifier:
        return (*verifier, *_failed_agent(record))
    if record.get("outcome") not in _OF_THE_AGENT:
        return ()
    return tuple(_exit_details(record, "producer"))


def _failed_agent(record: Record) -> Iterator[str]:
    """Yield how the agent ended whose candidate was checked, if it said that it failed."""
    code = _exit_code(record, "producer")
    if code:
        line = _quote(record, "producer")
        yield f"the agent ended with exit code {code}" + (f", {line}" if line else "")


def _exit_details(record: Record, who: str) -> Iterator[str]:
    code = _exit_code(record, who)
    if code is None:
        return
    yield f"exit code {code}"
    line = _quote(record, who)
    if line:
        yield line


def _exit_code(record: Record, who: str) -> int | None:
    metadata = record.get(f"{who}_metadata")
    code = metadata.get("exit_code") if isinstance(metadata, Mapping) else None
    return code if isinstance(code, int) else None


def _quote(record: Record, who: str) -> str:
    """Return the line that says most about how a program ended, with its stream, or nothing."""
    found = {stream: _lines(record.get(f"{who}_{stream}")) for stream in ("stderr", "stdout")}
    for choose in (_last_of_others, _last):
        for stream, lines in found.items():
            line = _pytest_error(lines) or choose(lines)
            if line:
                return f"{stream}: {snippet(line)[:QUOTE_CHARACTERS]}"
    return ""


def _lines(text: object) -> list[str]:
    lines = text.splitlines() if isinstance(text, str) else []
    return [line for line in lines if line.strip()]


def _pytest_error(lines: Sequence[str]) -> str:
    found = (line for line in lines if line.startswith(_PYTEST_ERROR))
    return next(found, "").removeprefix(_PYTEST_ERROR)


def _last_of_others(lines: Sequence[str]) -> str:
    return _last([line for line in lines if not line.startswith(_OURS)])


def _last(lines: Sequence[str]) -> str:
    return lines[-1] if lines else ""
