"""The command ``securebench why``: what a run waits for, and why it or its attempts failed."""

from __future__ import annotations

import asyncio
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from securebench.client.inspection.advice import advice
from securebench.client.inspection.find import find_state, require_run
from securebench.client.inspection.launch_details import (
    attempt_line,
    dropped_lines,
    launch_line,
    print_launches,
)
from securebench.client.output import print_note
from securebench.client.output_formats import OutputForm, print_objects
from securebench.client.volume.connection import (
    ClusterTarget,
    Connection,
    open_cluster,
    open_connection,
)
from securebench.client.volume.watch_answers import FoundLaunches
from securebench.client.watch.follow import RunState, run_state
from securebench.client.watch.in_flight import AttemptInFlight
from securebench.client.watch.in_flight import in_flight as in_flight_of
from securebench.client.watch.progress import minutes
from securebench.client.watch.run_view import RunView, run_view
from securebench.errors import ClusterError, SecureBenchError
from securebench.json_values import text_at
from securebench.run.observe.launches import launches_of
from securebench.text import printable

_MAX_LINES = 20
"""Attempts of a kind that are listed."""

_NO_LAUNCHES = FoundLaunches((), 0)


@dataclass(frozen=True, slots=True)
class _Explained:
    """What is known of a run.

    Attributes:
        view: None for a run whose BenchmarkRun is gone.
        in_flight: Attempts in flight.
        launches: Attempts without a passing verdict, with their launches.
        unknown: Why the operator's Pod could not be asked, or empty.
    """

    state: RunState
    view: RunView | None
    in_flight: tuple[AttemptInFlight, ...] = ()
    launches: FoundLaunches = _NO_LAUNCHES
    unknown: str = ""


def explain(run: str, task: str, form: OutputForm, target: ClusterTarget) -> int:
    """Print what a run waits for, and why it or its attempts failed.

    Args:
        run: Name of a BenchmarkRun, even a deleted one, or a run id.
        task: Id of a task or ``#`` and its index from 0, to print all of its launches; or empty.
        form: Lines; with all launches; or as data.
        target: Namespace of the run.
    """
    if task:
        return print_launches(run, task, form, target)
    found = asyncio.run(_explained(run, target))
    if form.is_data:
        print_objects([_data(found)], form)
        return 0
    sys.stdout.writelines(f"{printable(line)}\n" for line in _lines(found, form))
    if found.unknown:
        print_note(f"the operator's Pod could not be asked about attempts: {found.unknown}")
    return 0


async def _explained(run: str, target: ClusterTarget) -> _Explained:
    try:
        async with open_connection(target) as connection:
            return await _asked(connection, run)
    except ClusterError as error:
        async with open_cluster(target) as cluster:
            state = run_state(await require_run(cluster, run))
        return _Explained(state, run_view(state.run), unknown=str(error))


async def _asked(connection: Connection, run: str) -> _Explained:
    state = await find_state(connection, run)
    view = run_view(state.run) if state.run else None
    link, unknown = connection.link, ""
    in_flight: tuple[AttemptInFlight, ...] = ()
    if state.end is None and view is not None and view.active:
        try:
            active = await link.get_active(state.uid)
            in_flight = in_flight_of(active, await link.list_tasks(state.uid))
        except SecureBenchError as error:
            unknown = str(error)
    launches = await link.get_launches(state.uid, "")
    return _Explained(state, view, in_flight, launches, unknown)


def _lines(found: _Explained, form: OutputForm) -> Iterator[str]:
    state = found.state
    message = f": {state.message}" if state.message else ""
    yield f"run {state.name}: {state.reason or 'not seen by the operator yet'}{message}"
    hint = advice(state.reason, state.name, state.message)
    if hint:
        yield f"  to do: {hint}"
    yield from _in_flight_lines(found.in_flight)
    failed = [each for each in found.launches.attempts if _has_ended(each)]
    for attempt in failed[:_MAX_LINES]:
        yield attempt_line(attempt)
        yield from dropped_lines(attempt)
        launches = launches_of(attempt)
        for launch in launches if form is OutputForm.WIDE else launches[-1:]:
            yield f"  {launch_line(launch, found.launches.now)}"
        yield f"  what was printed: securebench logs {state.name} {_task_name(attempt)}"
    more = len(failed) - _MAX_LINES + found.launches.left_out
    if more > 0:
        yield f"and {more} more; name a task, or take -o json for all of them"


def _task_name(attempt: Mapping[str, object]) -> str:
    """Return what names the task in a shell."""
    return shlex.quote(text_at(attempt, "task_id") or f"#{attempt.get('task')}")


def _in_flight_lines(attempts: Sequence[AttemptInFlight]) -> Iterator[str]:
    for each in attempts[:_MAX_LINES]:
        yield f"{each.task} attempt {each.attempt}: {each.step} for {minutes(each.seconds)}"
    if len(attempts) > _MAX_LINES:
        yield f"and {len(attempts) - _MAX_LINES} more in flight"


def _has_ended(attempt: Mapping[str, object]) -> bool:
    return attempt.get("outcome") is not None or isinstance(attempt.get("passed"), bool)


def _data(found: _Explained) -> dict[str, object]:
    state = found.state
    return {
        "name": state.name,
        "state": state.reason,
        "message": state.message,
        "advice": advice(state.reason, state.name, state.message),
        "in_flight": [each._asdict() for each in found.in_flight],
        "attempts": [dict(each) for each in found.launches.attempts if _has_ended(each)],
        "left_out": found.launches.left_out,
        "unknown": found.unknown,
    }
