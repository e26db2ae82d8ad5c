"""When a new round of a suite begins: at once, by the schedule, or by the annotation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from securebench.clock import rfc3339
from securebench.suite.api.models import BenchmarkSuiteSpec, ConcurrencyPolicy, SuiteRunPolicy
from securebench.suite.api.status import CellState
from securebench.suite.planning import Plan, Trigger
from securebench.suite.progress import CellProgress
from securebench.suite.schedule import Times


@dataclass(frozen=True, slots=True)
class PassedResult:
    """The result of a cell in the last round that passed its gates.

    Attributes:
        run: Name of the run.
        uid: UID of the run.
        sha256: Digest of its records.
    """

    run: str
    uid: str
    sha256: str


@dataclass(frozen=True, slots=True)
class BoundBaseline:
    """The object that the name of a baseline meant when the suite first used it.

    Attributes:
        uid: UID of the run or suite.
        sha256: Digest of the run's sealed records; empty until it has ended, and of a suite.
    """

    uid: str
    sha256: str = ""


@dataclass(frozen=True, slots=True)
class SuiteState:
    """What a suite remembers on the volume.

    Attributes:
        handled: The last time of the schedule that was handled, or when the suite was created.
        trigger: What the current round began with.
        plan: The current round.
        good: Results that passed the gates before the current round, by cell; what that round is
            compared with.
        passed: Results of the current round, while they pass the gates.
        allowances: Tokens that runs may use of the suite's budget, by name of the run.
        baselines: What the baselines of the spec are bound to, by ``Baseline.key``.
    """

    handled: float
    trigger: Trigger
    plan: Plan = field(default_factory=Plan)
    good: Mapping[str, PassedResult] = field(default_factory=dict)
    passed: Mapping[str, PassedResult] = field(default_factory=dict)
    allowances: Mapping[str, int] = field(default_factory=dict)
    baselines: Mapping[str, BoundBaseline] = field(default_factory=dict)

    @property
    def latest_good(self) -> Mapping[str, PassedResult]:
        """The last result of each cell that passed the gates."""
        return {**self.good, **self.passed}


def initial_state(created_at: float, now: float, rerun: str) -> SuiteState:
    """Return the state of a suite of which nothing has run; its annotation asks for nothing.

    Args:
        created_at: When the suite was created, seconds since the epoch.
        now: Seconds since the epoch.
        rerun: Value of the annotation.
    """
    return SuiteState(handled=min(created_at, now), trigger=Trigger(rerun))


class RoundStart(NamedTuple):
    """A round begins, unless it would be the current one.

    Args:
        trigger: Why.
        handled: The time of the schedule that counts as handled then.
    """

    trigger: Trigger
    handled: float


def opening(
    spec: BenchmarkSuiteSpec,
    state: SuiteState,
    times: Times | None,
    cells: Sequence[CellProgress],
    rerun: str,
) -> RoundStart | None:
    """Return the round that begins now, or None.

    Args:
        spec: Spec of the suite.
        state: What it remembers.
        times: Times of its schedule; None without one.
        cells: How far the current round is.
        rerun: Value of the annotation; without it, that of the current round goes on to count, so
            that its removal runs nothing.
    """
    if spec.suspend:
        return None
    rerun = rerun or state.trigger.rerun
    if times is None:
        return RoundStart(Trigger(rerun), state.handled)
    is_always = spec.run_policy is SuiteRunPolicy.ALWAYS
    if rerun != state.trigger.rerun:
        scheduled = state.trigger.scheduled if is_always else ""
        return RoundStart(Trigger(rerun, scheduled), state.handled)
    if times.due is None or _has_to_wait(spec.concurrency_policy, cells):
        return None
    return RoundStart(Trigger(rerun, rfc3339(times.due) if is_always else ""), times.due)


def _has_to_wait(policy: ConcurrencyPolicy, cells: Sequence[CellProgress]) -> bool:
    """Whether a time of the schedule waits for the current round.

    With Allow it waits until all runs of that round are created, so that none is lost.
    """
    states = {cell.state for cell in cells}
    if policy is ConcurrencyPolicy.FORBID:
        return bool(states & {CellState.WAITING, CellState.RUNNING})
    return policy is ConcurrencyPolicy.ALLOW and CellState.WAITING in states
