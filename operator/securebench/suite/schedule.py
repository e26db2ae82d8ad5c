"""When the schedule of a suite fires: five fields as in Debian's cron, in a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from securebench.errors import SpecError
from securebench.suite.api.models import BenchmarkSuiteSpec

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
