"""When a new round of a suite begins: at once, by the schedule, or by the annotation.

The schedule has five fields as in Debian's cron, in a time zone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from securebench.clock import rfc3339
from securebench.errors import SpecError
from securebench.suite.api import BenchmarkSuiteSpec, CellState, ConcurrencyPolicy, SuiteRunPolicy
from securebench.suite.planning import Plan, Trigger
from securebench.suite.progress import CellProgress

FIELDS = 5
_FORM = "write minute, hour, day of the month, month and day of the week, such as '0 2 * * *'"


class Times(NamedTuple):
    """Times of a schedule around a moment, in seconds since the epoch.

    Args:
        due: The latest time that has come and is not handled; None without one. Earlier ones that
            were missed are left out.
        following: The next time after now.
        is_clock_back: Whether the clock shows less than a time that is handled already.
    """

    due: float | None
    following: float
    is_clock_back: bool


def schedule_times(spec: BenchmarkSuiteSpec, handled: float, now: float) -> Times:
    """Return what is due.

    Args:
        spec: Has a schedule.
        handled: The last time that was handled, or when the suite was created.
        now: Seconds since the epoch.

    Raises:
        SpecError: The schedule or its time zone is not valid, or it never fires.
    """
    zone = time_zone(spec.time_zone)
    # What was handled stays handled when the clock is set back.
    following = _next(spec, zone, max(now, handled))
    latest = _latest(spec, zone, now)
    earliest = handled
    if spec.starting_deadline_seconds is not None:
        earliest = max(handled, now - spec.starting_deadline_seconds)
    is_due = latest is not None and latest > handled and latest >= earliest
    return Times(latest if is_due else None, following, is_clock_back=handled > now)


def time_zone(name: str | None) -> tzinfo:
    """Return a time zone by its name; UTC for None.

    Raises:
        SpecError: There is none.
    """
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise SpecError(
            f"spec.timeZone: there is no time zone {name!r}; use a name such as Europe/Berlin"
        ) from None


def _next(spec: BenchmarkSuiteSpec, zone: tzinfo, after: float) -> float:
    for time in _simulated(spec, datetime.fromtimestamp(after, zone)):
        # A time in the hour that is repeated when summer time ends may lie before its start.
        if time.timestamp() > after:
            return time.timestamp()
    raise SpecError(
        f"spec.schedule: {spec.schedule!r} never fires: no date of the next 50 years matches"
    )


def _latest(spec: BenchmarkSuiteSpec, zone: tzinfo, now: float) -> float | None:
    """Return the latest time that is not after ``now``."""
    # Counted from the next whole second, so that a time equal to now is found.
    start = datetime.fromtimestamp(int(now) + 1, zone)
    for time in _simulated(spec, start, reverse=True):
        if time.timestamp() <= now:
            return time.timestamp()
    return None


def _simulated(spec: BenchmarkSuiteSpec, start: datetime, *, reverse: bool = False) -> CronSim:
    expression = spec.schedule or ""
    # The library also takes six fields, of which the first is seconds.
    if len(expression.split()) != FIELDS:
        raise SpecError(f"spec.schedule: {expression!r} has not {FIELDS} fields; {_FORM}")
    try:
        return CronSim(expression, start, reverse=reverse)
    except CronSimError as error:
        raise SpecError(
            f"spec.schedule: {expression!r} is not valid or never fires ({error}); {_FORM}"
        ) from None


@dataclass(frozen=True, slots=True)
class PassedResult:
    """The result of a cell in the last round that passed its gates.

    Attributes:
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
