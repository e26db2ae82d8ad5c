"""The summary of a run (contract 15.5) and its result line on stdout."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from securebench.client.terminal_text import shown_path
from securebench.core.errors import StorageError
from securebench.protocol.messages import decode_object
from securebench.protocol.volume import CANDIDATES, SUMMARY
from securebench.run.records.summary import NO_OUTCOME

_DAMAGED = f"{SUMMARY} on the results volume is damaged"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TesterRunSummary:
    """Aggregate result of a run.

    Attributes:
        output_dir: Absolute path of the output folder.
        output_path: Absolute path of ``candidates.jsonl``.
        total: Number of attempts with a record.
        verified: Attempts with a verdict.
        passed: Attempts that passed.
        verification_status: ``complete``, ``partial`` or ``pending``.
        outcomes: Number of attempts by outcome.
        usage: Requests to and tokens of the model provider; empty without one.
    """

    run_id: str
    output_dir: str
    output_path: str
    total: int
    verified: int
    passed: int
    score_sum: float
    verification_status: str
    outcomes: Mapping[str, int] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)

    def line(self) -> str:
        """Return the result line of ``securebench run`` (contract 2.1)."""
        return (
            f"securebench: run_id={self.run_id} total={self.total}"
            f" verification={self.verification_status} verified={self.verified}"
            f" passed={self.passed} output={self.output_path}"
        )

    def missing_result(self) -> str:
        """Return why there is no result, or an empty string if there is one (decision 0037)."""
        if self.total == 0:
            return "nothing was graded: the run has no attempt"
        if self.verified == 0 and self.outcomes.get(NO_OUTCOME, 0) < self.total:
            return f"nothing was graded: none of {self.total} attempts has a verdict"
        return ""


def localized_summary(text: bytes, folder: Path) -> dict[str, object]:
    """Parse the operator's ``summary.json`` and set its paths to the output folder.

    Raises:
        StorageError: It is not a valid summary.
    """
    try:
        raw = decode_object(text)
    except ValueError:
        raise StorageError(_DAMAGED) from None
    return {
        **raw,
        "output_dir": shown_path(folder),
        "output_path": shown_path(folder / CANDIDATES),
    }


def parse_summary(raw: Mapping[str, object]) -> TesterRunSummary:
    """Parse a summary from a JSON object.

    Raises:
        StorageError: A field is missing or has the wrong type.
    """
    try:
        return TesterRunSummary(
            run_id=_typed(raw, "run_id", str),
            output_dir=_typed(raw, "output_dir", str),
            output_path=_typed(raw, "output_path", str),
            total=_typed(raw, "total", int),
            verified=_typed(raw, "verified", int),
            passed=_typed(raw, "passed", int),
            score_sum=float(raw["score_sum"]),  # type: ignore[arg-type]
            verification_status=_typed(raw, "verification_status", str),
            outcomes=_typed({"outcomes": {}, **raw}, "outcomes", dict),
            usage=_typed({"usage": {}, **raw}, "usage", dict),
        )
    except (KeyError, TypeError, ValueError):
        raise StorageError(_DAMAGED) from None


def write_summary(raw: Mapping[str, object], folder: Path) -> None:
    """Write ``summary.json`` atomically into the output folder."""
    draft = folder / f".{SUMMARY}.part"
    draft.write_text(json.dumps(raw, sort_keys=True, indent=2) + "\n", encoding="utf-8")
    draft.replace(folder / SUMMARY)


def _typed(raw: Mapping[str, object], key: str, kind: type[T]) -> T:
    value = raw[key]
    if not isinstance(value, kind):
        raise TypeError(key)
    return value
