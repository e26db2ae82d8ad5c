"""What people read in a BenchmarkRun: state, counts, score, usage; pure."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import NamedTuple

from securebench.client.watch.follow import run_state
from securebench.clock import seconds_since_epoch
from securebench.cluster.port import Raw
from securebench.json_values import object_at, text_at


class ShownScore(NamedTuple):
    """Share of the verdicts that are a pass, with its 95 % interval; all from 0 to 1."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class RunView:
    """A BenchmarkRun as commands show it.

    Attributes:
        state: Reason of ``Succeeded``, or ``new`` while the operator has not seen the run.
        message: Its message.
        total: Attempts of the run, 0 while unknown.
        done: Finished attempts.
        active: Attempts in flight.
        passed: Attempts that passed; None while the status says nothing.
        verified: Attempts with a verdict.
        score: None while nothing is verified.
        usage: Requests and tokens of the model provider; empty without one.
        pack: Id of the pack, empty while unknown.
        created: RFC 3339.
        started: RFC 3339; empty while the operator has not started it.
        completed: RFC 3339; empty while the run is active.
    """

    name: str
    run_id: str
    state: str
    message: str
    total: int
    done: int
    active: int
    passed: int | None
    verified: int
    score: ShownScore | None
    usage: Mapping[str, int] = field(default_factory=dict)
    pack: str = ""
    harness: str = ""
    created: str = ""
    started: str = ""
    completed: str = ""

    @property
    def started_at(self) -> float | None:
        """When the operator started it, in seconds since the epoch, or None."""
        with suppress(ValueError):
            return seconds_since_epoch(self.started)
        return None

    def to_json(self) -> dict[str, object]:
        """Return the fields as JSON values."""
        score = None if self.score is None else self.score._asdict()
        return {**asdict(self), "usage": dict(self.usage), "score": score}


def run_view(run: Raw) -> RunView:
    """Extract what is shown from a BenchmarkRun."""
    state, status, spec = run_state(run), object_at(run, "status"), object_at(run, "spec")
    tasks, score = object_at(status, "tasks"), object_at(status, "score")
    return RunView(
        name=state.name,
        run_id=run_id_of(run),
        state=state.reason or "new",
        message=state.message,
        total=state.total,
        done=state.done,
        active=_count(tasks, "active"),
        passed=_count(score, "passed") if score else None,
        verified=_count(score, "verified"),
        score=_pass_rate(object_at(score, "passRate")),
        usage=_counts(object_at(status, "usage")),
        pack=text_at(object_at(status, "resolved"), "pack"),
        harness=text_at(object_at(spec, "harness"), "type"),
        created=created_at(run),
        started=text_at(status, "startTime"),
        completed=text_at(status, "completionTime"),
    )


def run_id_of(run: Raw) -> str:
    """Return the run_id of a run's records; by default it is the name."""
    resolved = object_at(object_at(run, "status"), "resolved").get("runId")
    name = object_at(run, "metadata").get("name")
    return str(resolved or object_at(run, "spec").get("runId") or name or "")


def created_at(run: Raw) -> str:
    """Return when a run was created, in the form of RFC 3339."""
    return text_at(object_at(run, "metadata"), "creationTimestamp")


def _pass_rate(raw: Mapping[str, object]) -> ShownScore | None:
    with suppress(KeyError, TypeError, ValueError):
        return ShownScore(*(float(raw[name]) for name in ShownScore._fields))  # type: ignore[arg-type]
    return None


def _count(fields: Mapping[str, object], name: str) -> int:
    value = fields.get(name)
    return value if isinstance(value, int) else 0


def _counts(fields: Mapping[str, object]) -> dict[str, int]:
    return {name: value for name, value in fields.items() if isinstance(value, int)}
