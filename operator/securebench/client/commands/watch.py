"""The command ``securebench watch``: follow a run that somebody started.

It reads the BenchmarkRun alone, so that it works with every role; where the operator's Pod may be
used, a live view also shows the attempts in flight.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, nullcontext
from typing import NamedTuple

from securebench.client.inspection.fail_below import score_code
from securebench.client.inspection.find import require_run
from securebench.client.output import INTERRUPTED, print_error, print_line
from securebench.client.output_formats import OutputForm, print_objects
from securebench.client.session.run_summary import TesterRunSummary
from securebench.client.volume.connection import ClusterTarget, WatchedNamespace, open_watched
from securebench.client.watch.follow import Follower, NoteFilter, RunState, run_state
from securebench.client.watch.in_flight import AttemptInFlight, InFlightWatch
from securebench.client.watch.live_reporter import LiveReporter, can_draw
from securebench.client.watch.progress import (
    Event,
    LineReporter,
    Reporter,
    WarningReporter,
    stderr_console,
)
from securebench.client.watch.run_view import run_view
from securebench.json_values import object_at
from securebench.run.records.summary import NO_OUTCOME


class WatchOptions(NamedTuple):
    """How a run is followed.

    Args:
        form: Lines or a live view; as data, one object for each change.
        fail_below: Smallest score that is accepted; None accepts every score.
    """

    form: OutputForm
    fail_below: float | None


def watch(run: str, options: WatchOptions, target: ClusterTarget) -> int:
    """Follow a run to its end and return the exit code."""
    watcher = _Watcher(options)
    try:
        end = asyncio.run(watcher.follow(run, target))
    except KeyboardInterrupt:
        name = watcher.name
        sys.stderr.write(f"securebench: interrupted; BenchmarkRun {name or run} continues\n")
        return INTERRUPTED
    return _conclude(end, options)


class _Watcher:
    def __init__(self, options: WatchOptions) -> None:
        self.name = ""
        self._form = options.form
        self._is_drawn = False
        self._done = 0

    async def follow(self, text: str, target: ClusterTarget) -> RunState:
        async with open_watched(target) as place:
            state = run_state(await require_run(place.cluster, text))
            self.name = state.name
            with self._reporter() as reporter:
                return await self._follow(place, state, reporter)

    async def _follow(
        self, place: WatchedNamespace, state: RunState, reporter: Reporter
    ) -> RunState:
        def note(message: str) -> None:
            reporter.report(Event.NOTE, message=message)

        def in_flight(attempts: tuple[AttemptInFlight, ...] | None) -> None:
            reporter.report(Event.IN_FLIGHT, attempts=attempts)

        clock = asyncio.get_running_loop().time
        notes = NoteFilter(clock)
        follower = Follower(place.cluster, asyncio.sleep, note)
        polls = (
            InFlightWatch(place.link, state.uid, in_flight, clock).watched(asyncio.sleep)
            if place.link is not None and self._is_drawn
            else nullcontext()
        )
        async with polls, aclosing(follower.states(state.name, state.uid)) as states:
            async for current in states:
                reporter.report(Event.STATUS, state=current)
                self._tell(current, notes, reporter)
                if current.end is not None:
                    return current
        raise AssertionError("unreachable: the iterator of states never ends")

    def _tell(self, state: RunState, notes: NoteFilter, reporter: Reporter) -> None:
        """Say what has changed, in lines or as data."""
        if self._form.is_data:
            print_objects([run_view(state.run).to_json()], self._form)
        elif notes.is_new(state.note):
            reporter.report(Event.NOTE, message=state.note)
        if state.done != self._done and not self._is_drawn:
            passed = run_view(state.run).passed or 0
            message = f"{state.done} of {state.total or '?'} done, {passed} passed"
            reporter.report(Event.NOTE, message=message)
        self._done = state.done

    @contextmanager
    def _reporter(self) -> Iterator[Reporter]:
        console = stderr_console()
        self._is_drawn = can_draw(console) and not self._form.is_data
        if self._form.is_data:
            yield WarningReporter(console)
        elif self._is_drawn:
            with LiveReporter(console, time.monotonic) as live:
                yield live
        else:
            yield LineReporter(console, clock=time.monotonic)


def _conclude(state: RunState, options: WatchOptions) -> int:
    end, view = state.end, run_view(state.run)
    if end is None or end.exit_code != 0:
        print_error(state.failure())
        return 1 if end is None else end.exit_code
    summary = _summary(state)
    missing = summary.missing_result()
    if missing:
        print_error(missing)
    code = 1 if missing else score_code(summary.passed, summary.verified, options.fail_below)
    if not options.form.is_data:
        print_line(
            f"run={view.name} run_id={view.run_id} state={view.state} total={view.total}"
            f" verified={view.verified} passed={view.passed or 0}"
        )
    return code


def _summary(state: RunState) -> TesterRunSummary:
    """Return the counts of a status in the form of a summary, for the rule about results."""
    view = run_view(state.run)
    unverified = object_at(object_at(state.run, "status"), "tasks").get("unverified")
    return TesterRunSummary(
        run_id=view.run_id,
        output_dir="",
        output_path="",
        total=view.total,
        verified=view.verified,
        passed=view.passed or 0,
        score_sum=float(view.passed or 0),
        verification_status="",
        outcomes={NO_OUTCOME: unverified if isinstance(unverified, int) else 0},
    )
