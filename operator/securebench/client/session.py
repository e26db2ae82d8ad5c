"""Execute a tester's run: upload the pack, create the BenchmarkRun, mirror records, fetch results.

All errors in the tester's files are found by ``prepare`` before the first request that changes
anything. Once created, the BenchmarkRun belongs to the cluster: this program may stop at any time
and join the run again later. ``run_tester_config`` is the Python facade (contract 2.3).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager, nullcontext
from itertools import product
from pathlib import Path
from typing import NamedTuple

from securebench.client.follow import Follower, NoteFilter, RunState
from securebench.client.live import AttemptInFlight, InFlightWatch, LiveOutput
from securebench.client.output import shown_path
from securebench.client.progress import Event, NullReporter, Reporter, record_events
from securebench.client.result_folder import RecordMirror, make_output_folder, refuse_other_run
from securebench.client.run_start import (
    NOT_WATCHING,
    RunStarter,
    SessionDependencies,
    Started,
    Watching,
)
from securebench.client.run_summary import (
    TesterRunSummary,
    cost_fields,
    localized_summary,
    parse_summary,
    write_summary,
)
from securebench.client.submit import PreparedSubmission, prepare, random_suffix
from securebench.client.tester_config import TesterConfig, with_tester_overrides
from securebench.client.volume import ClusterTarget, open_connection
from securebench.errors import ClusterError, SecureBenchError, StorageError
from securebench.protocol.volume import CANDIDATES, EGRESS, SUMMARY
from securebench.run.records.reading import Record, RecordKey, record_key


class RecordProgress:
    """Progress of one run.

    Args:
        path: Where the records are.
        total: Attempts that are known to belong to the run.

    Attributes:
        total: Attempts of the run, those that were kept included.
        kept: Records that were there before.
    """

    def __init__(self, reporter: Reporter, path: Path, total: int) -> None:
        self.total = total
        self.kept: frozenset[RecordKey] = frozenset()
        self._reporter = reporter
        self._path = path
        self._done = 0

    def expect(self, total: int) -> None:
        """Note how many attempts there are at least."""
        self.total = max(self.total, total)

    def resume(self, kept: frozenset[RecordKey]) -> None:
        """Report that so many records are there already."""
        self.kept = kept
        self._done = len(kept)
        self._reporter.report(
            Event.RESUME,
            completed=self._done,
            remaining=max(0, self.total - self._done),
            output_path=shown_path(self._path),
        )

    def add(self, record: Record) -> None:
        """Report a record, unless it was there before."""
        if record_key(record) in self.kept:
            return
        self._done += 1
        self.expect(self._done)
        for event, fields in record_events(record, index=self._done, total=self.total):
            self._reporter.report(event, **fields)


_FINAL_TRIES = 8
"""Tries to fetch the results; with back-off about two minutes, enough for a Pod to restart."""


class RunEnd(NamedTuple):
    """How a run ended.

    Args:
        state: The BenchmarkRun's last state.
        exit_code: Exit code of ``securebench run``.
        summary: None if the run has none.
    """

    state: RunState
    exit_code: int
    summary: TesterRunSummary | None

    def failure(self) -> str:
        """Return the error message for a run that did not finish its work."""
        return self.state.failure()


class RunSession:
    """Runs one configuration.

    Args:
        config: With the command line's overrides applied.
        prepared: Result of ``prepare`` for this configuration.
        parallelism: Concurrent attempts; None uses the API's default.
    """

    def __init__(
        self,
        config: TesterConfig,
        prepared: PreparedSubmission,
        deps: SessionDependencies,
        parallelism: int | None = None,
    ) -> None:
        self._config = config
        self._prepared = prepared
        self._deps = deps
        self._folder = config.run.output_dir
        self._follower = Follower(deps.cluster, deps.sleep, deps.note)
        self._start = RunStarter(config, prepared, deps, self._follower, parallelism)
        total = len(prepared.task_ids) * config.run.attempts
        self._progress = RecordProgress(deps.reporter, self._folder / CANDIDATES, total)
        self._on_record: Callable[[RecordKey], None] = lambda _: None

    @property
    def name(self) -> str | None:
        """Name of the BenchmarkRun once it exists."""
        return self._start.name

    async def execute(self) -> RunEnd:
        """Start or join the run and follow it to its end.

        Raises:
            InvalidInputError: The results cannot be resumed, or the API rejects the spec.
            SecureBenchError: The cluster or the volume failed.
            OSError: The output folder cannot be written.
        """
        spec = self._start.checked_spec()
        make_output_folder(self._folder)
        if not self._config.run.resume:
            refuse_other_run(self._folder, self._config.run.id)
        started = await self._start.start(spec)
        state, deps = started.state, self._deps
        mirror = await self._begin(started)
        live = LiveOutput(deps.link, state.uid, self._prepared.task_ids, deps.reporter)
        self._on_record = live.finish
        async with (
            live.watched(deps.sleep) if deps.watching.output else nullcontext(),
            self._in_flight(state.uid).watched(deps.sleep)
            if deps.watching.in_flight
            else nullcontext(),
        ):
            end, exit_code = await self._follow(state, mirror)
        await self._follower.with_retries(lambda: self._refresh(mirror), _FINAL_TRIES)
        return await self._finish(end, exit_code, started.left_out)

    async def _begin(self, started: Started) -> RecordMirror:
        """Prepare the output folder and report what is there before the run is followed."""
        state, is_joined, kept, _ = started
        path = self._folder / CANDIDATES
        if not is_joined and kept is None and path.exists():
            path.unlink()
            self._deps.note(f"{shown_path(path)} had the records of an earlier start, and goes")
        for name in (SUMMARY, EGRESS):
            (self._folder / name).unlink(missing_ok=True)
        if kept is not None:
            self._progress.expect(len(self._selected() | kept))
        report, folder = self._deps.reporter.report, shown_path(self._folder)
        report(Event.RUN_START, run_id=self._config.run.id, output_dir=folder)
        message = f"{'joined' if is_joined else 'started'} BenchmarkRun {state.name}"
        report(Event.NOTE, message=message, total=self._progress.total)
        mirror = RecordMirror(self._deps.link, state.uid, path)
        if is_joined:
            records = await self._start.with_retries(mirror.refresh)
            kept = frozenset(map(record_key, records))
        if kept:
            self._progress.resume(kept)
        return mirror

    def _selected(self) -> frozenset[RecordKey]:
        attempts = range(1, self._config.run.attempts + 1)
        return frozenset(RecordKey(*each) for each in product(self._prepared.task_ids, attempts))

    def _in_flight(self, uid: str) -> InFlightWatch:
        def report(attempts: tuple[AttemptInFlight, ...] | None) -> None:
            self._deps.reporter.report(Event.IN_FLIGHT, attempts=attempts)

        clock = asyncio.get_running_loop().time
        return InFlightWatch(self._deps.link, uid, report, clock, self._prepared.task_ids)

    async def submit(self) -> Started:
        """Start the run, or find the active one that it would join, and leave it.

        Raises:
            InvalidInputError: The results cannot be resumed, or the API rejects the spec.
            SecureBenchError: The cluster or the volume failed.
        """
        return await self._start.start(self._start.checked_spec())

    async def _follow(self, state: RunState, mirror: RecordMirror) -> tuple[RunState, int]:
        """Return the last state of the run and the exit code of its end."""
        notes, last_done = NoteFilter(asyncio.get_running_loop().time), 0
        async with aclosing(self._follower.states(state.name, state.uid)) as states:
            async for current in states:
                self._progress.expect(current.total)
                self._deps.reporter.report(Event.STATUS, state=current)
                if current.end is not None:
                    return current, current.end.exit_code
                if notes.is_new(current.note):
                    self._deps.note(current.note)
                if current.done != last_done:
                    last_done = current.done
                    await self._refresh_if_possible(mirror)
        raise AssertionError("unreachable: the iterator of states never ends")

    async def _finish(self, state: RunState, exit_code: int, left_out: Mapping[str, int]) -> RunEnd:
        part = await self._follower.with_retries(
            lambda: self._deps.link.get_run(state.uid, SUMMARY), _FINAL_TRIES
        )
        if part is None:
            if exit_code == 0:
                raise StorageError(f"the results volume has no {SUMMARY} of run {state.name}")
            return RunEnd(state, exit_code, None)
        raw = localized_summary(part.data, self._folder)
        raw |= left_out
        raw |= cost_fields(self._folder / CANDIDATES, self._config.prices)
        write_summary(raw, self._folder)
        log = RecordMirror(self._deps.link, state.uid, self._folder / EGRESS, EGRESS)
        await self._follower.with_retries(log.fetch, _FINAL_TRIES)
        return RunEnd(state, exit_code, parse_summary(raw))

    async def _refresh_if_possible(self, mirror: RecordMirror) -> None:
        try:
            await self._refresh(mirror)
        except (ClusterError, StorageError) as error:
            self._deps.note(f"records could not be fetched; the run continues ({error})")

    async def _refresh(self, mirror: RecordMirror) -> None:
        for record in await mirror.refresh():
            self._on_record(record_key(record))
            self._progress.add(record)


def run_tester_config(
    config: TesterConfig,
    *,
    limit: int | None = None,
    progress: Reporter | None = None,
    resume: bool = False,
) -> TesterRunSummary:
    """Run a configuration on the cluster of the kubeconfig and return the summary.

    Args:
        config: From ``load_tester_config`` or ``with_tester_overrides``.
        limit: Only the first rows; None uses the configuration's limit.
        progress: Receives the events of contract 16.1.
        resume: Keep finished records of the last run with this run id, even if the configuration
            does not ask for it.

    Raises:
        ConfigErrors: The configuration or the pack is invalid; nothing was created.
        SecureBenchError: The cluster failed, or the run ended without finishing its work.
    """
    chosen = with_tester_overrides(
        config,
        limit=config.run.limit if limit is None else limit,
        resume=resume or config.run.resume,
    )
    prepared = prepare(chosen)

    async def execute() -> RunEnd:
        reporter = NullReporter() if progress is None else progress
        async with open_session(chosen, prepared, reporter, ClusterTarget()) as session:
            return await session.execute()

    end = asyncio.run(execute())
    if end.exit_code != 0 or end.summary is None:
        raise SecureBenchError(end.failure())
    return end.summary


@asynccontextmanager
async def open_session(
    config: TesterConfig,
    prepared: PreparedSubmission,
    reporter: Reporter,
    target: ClusterTarget,
    parallelism: int | None = None,
    watching: Watching = NOT_WATCHING,
) -> AsyncIterator[RunSession]:
    """Connect to the operator and yield a session that is ready to execute.

    Args:
        config: With the command line's overrides applied.
        prepared: Result of ``prepare`` for this configuration.
        target: Namespace, context and operator Pod.
        parallelism: Concurrent attempts; None uses the API's default.
        watching: What to report while attempts are in flight.
    """
    async with open_connection(target) as connection:
        deps = SessionDependencies(
            cluster=connection.cluster,
            link=connection.link,
            environ=os.environ,
            reporter=reporter,
            sleep=asyncio.sleep,
            user_name=connection.cluster.user_name,
            suffix=random_suffix,
            watching=watching,
        )
        yield RunSession(config, prepared, deps, parallelism)
