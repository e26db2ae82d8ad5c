"""The summary of a run (contract 15.5), its cost, and its result line on stdout."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from securebench.client.output import shown_path
from securebench.client.result_folder import read_records
from securebench.client.tester_config import Prices
from securebench.errors import StorageError
from securebench.json_values import object_at, object_in
from securebench.protocol.messages import decode_object
from securebench.protocol.volume import CANDIDATES, SUMMARY
from securebench.run.records.reading import record_use, whole_number
from securebench.run.records.summary import NO_OUTCOME
from securebench.stats.cost import Cost, Price, cost
from securebench.stats.intervals import Interval, reward_text

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
        pass_rate: ``value``, ``low`` and ``high`` of the share that passed; empty without one.
        pass_at_k: The same with ``k`` and ``tasks`` for each k; empty with one attempt per task.
        mean_reward: ``value``, ``low`` and ``high``; empty for a run without rewards.
        cost: ``micro_dollars`` and ``unpriced_tokens`` by model; empty without a price table.
    """

    run_id: str
    output_dir: str
    output_path: str
    total: int
    verified: int
    passed: int
    verification_status: str
    outcomes: Mapping[str, int] = field(default_factory=dict)
    usage: Mapping[str, int] = field(default_factory=dict)
    pass_rate: Mapping[str, float] = field(default_factory=dict)
    pass_at_k: Sequence[Mapping[str, float]] = ()
    mean_reward: Mapping[str, float] = field(default_factory=dict)
    cost: Mapping[str, Any] = field(default_factory=dict)

    def line(self) -> str:
        """Return the result line of ``securebench run`` (contract 2.1)."""
        return (
            f"securebench: run_id={self.run_id} total={self.total}"
            f" verification={self.verification_status} verified={self.verified}"
            f" passed={self.passed} output={self.output_path}"
        )

    def figures(self) -> Iterator[str]:
        """Yield a line each about score, pass@k, rewards, tokens and cost, where there are."""
        if self.pass_rate:
            yield f"passed {_percent(self.pass_rate)}"
        for chance in self.pass_at_k:
            yield f"pass@{chance['k']} {_percent(chance)}, {chance['tasks']} tasks"
        if self.mean_reward:
            reward = Interval(*(float(self.mean_reward[name]) for name in Interval._fields))
            yield f"mean reward {reward_text(reward)}"
        if self.usage:
            spent = {name: f"{count:,}" for name, count in self.usage.items()}
            yield (
                f"{spent['requests']} requests, {spent['input_tokens']} input tokens"
                f" ({spent['cached_tokens']} cached), {spent['output_tokens']} output tokens"
            )
        if self.cost:
            yield f"cost {Cost(self.cost['micro_dollars'], self.cost['unpriced_tokens']).summary}"

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
            verification_status=_typed(raw, "verification_status", str),
            outcomes=_typed({"outcomes": {}, **raw}, "outcomes", dict),
            usage=_typed({"usage": {}, **raw}, "usage", dict),
            pass_rate=_typed({"pass_rate": {}, **raw}, "pass_rate", dict),
            pass_at_k=_typed({"pass_at_k": [], **raw}, "pass_at_k", list),
            mean_reward=_typed({"mean_reward": {}, **raw}, "mean_reward", dict),
            cost=_typed({"cost": {}, **raw}, "cost", dict),
        )
    except (KeyError, TypeError, ValueError):
        raise StorageError(_DAMAGED) from None


def write_summary(raw: Mapping[str, object], folder: Path) -> None:
    """Write ``summary.json`` atomically into the output folder."""
    draft = folder / f".{SUMMARY}.part"
    draft.write_text(json.dumps(raw, sort_keys=True, indent=2) + "\n", encoding="utf-8")
    draft.replace(folder / SUMMARY)


def _percent(share: Mapping[str, float]) -> str:
    value, low, high = (f"{share[name] * 100:.1f}" for name in Interval._fields)
    return f"{value} % (95 % interval {low} to {high})"


def _typed(raw: Mapping[str, object], key: str, kind: type[T]) -> T:
    value = raw[key]
    if not isinstance(value, kind):
        raise TypeError(key)
    return value


def cost_fields(candidates: Path, prices: Prices) -> dict[str, object]:
    """Return what ``summary.json`` says of the cost; nothing without a price table.

    Args:
        candidates: The records; the cost is that of all their attempts.
        prices: By model; the summary keeps them.
    """
    if not prices:
        return {}
    found = cost(filter(None, map(record_use, read_records(candidates))), prices)
    return {
        "cost": {"micro_dollars": found.micro_dollars, "unpriced_tokens": dict(found.unpriced)},
        "prices": {model: price._asdict() for model, price in prices.items()},
    }


def summary_prices(summary: Mapping[str, object]) -> dict[str, Price]:
    """Return the prices that a summary was written with."""
    rows = object_at(summary, "prices")
    return {
        model: Price(*(whole_number(object_in(row).get(name)) for name in Price._fields))
        for model, row in rows.items()
    }
