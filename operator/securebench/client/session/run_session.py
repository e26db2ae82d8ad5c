"""Execute a tester's run: upload the pack, create the BenchmarkRun, mirror records, fetch results.

All errors in the tester's files are found by ``prepare`` before the first request that changes
anything. Once created, the BenchmarkRun belongs to the cluster: this program may stop at any time
and join the run again later.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple, TypeVar

from securebench.benchmark.files.bundle import files_receipt
from securebench.benchmark.scorers.verifier_version import VERIFIER_VERSION
from securebench.client.session.creation import NewRun, RunCreation
from securebench.client.session.earlier import KEPT_OUTCOMES, Binding, joinable_run, resumable_run
from securebench.client.session.local_records import Flaw, left_out_lines
from securebench.client.session.run_cost import cost_fields
from securebench.client.session.run_summary import (
    TesterRunSummary,
    localized_summary,
    parse_summary,
    write_summary,
)
from securebench.client.submit.prepare import PreparedSubmission
from securebench.client.submit.secrets import secret_names, secret_values
from securebench.client.submit.submit import (
    build_spec,
    pack_folder,
    run_manifest,
    run_name,
)
from securebench.client.submit.tester_config import TesterConfig
from securebench.client.terminal_text import shown_path
from securebench.client.volume.link import LOCAL_LIMITS, OperatorLink
from securebench.client.volume.output_folder import make_output_folder
from securebench.client.volume.record_mirror import RecordMirror
from securebench.client.watch.follow import Follower, NoteFilter, RunState, run_state
from securebench.client.watch.in_flight import AttemptInFlight, InFlightWatch
from securebench.client.watch.live import LiveOutput
from securebench.client.watch.progress import Event, Reporter, record_events
from securebench.client.watch.shielded import shielded
from securebench.cluster.port import AlreadyExists, Cluster, ObjectKind, Raw
from securebench.core.errors import ClusterError, StorageError, TransientClusterError
from securebench.protocol.volume import CANDIDATES, EGRESS, SUMMARY
from securebench.run.records.reading import Record, RecordKey, record_key

T = TypeVar("T")

_NAME_TRIES = 5
_TRANSIENT_TRIES = 4
_FINAL_TRIES = 8
"""Tries to fetch the results; with back-off about two minutes, enough for a Pod to restart."""


class Watching(NamedTuple):
    """What to report while attempts are in flight.

    Args:
        output: Agents' output while they work.
        in_flight: Where the attempts are.
    """

    output: bool = False
    in_flight: bool = False


NOT_WATCHING = Watching()


@dataclass(frozen=True, slots=True)
class SessionDependencies:
    """External dependencies of a session, replaced in tests.

    Attributes:
        cluster: API server, limited to the run's namespace.
        link: Exec protocol with the operator's Pod.
        environ: Environment variables, for ``harness.env``.
        reporter: Receives progress events.
        sleep: ``asyncio.sleep`` outside of tests.
        suffix: Returns six random lower-case letters and digits.
        watching: What to report while attempts are in flight.
    """

    cluster: Cluster
    link: OperatorLink
    environ: Mapping[str, str]
    reporter: Reporter
    sleep: Callable[[float], Awaitable[None]]
    suffix: Callable[[], str]
    watching: Watching = NOT_WATCHING


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


class Started(NamedTuple):
    """A run that exists.

    Args:
        state: Its state when it was created or found.
        is_joined: Whether it was active already.
        is_continued: Whether it is new and takes over records of an earlier run.
    """

    state: RunState
    is_joined: bool
    is_continued: bool


class RunSession:
    """Runs one configuration.

    Args:
        config: With the command line's overrides applied.
        prepared: Result of ``prepare`` for this configuration.
        deps: External dependencies.
        parallelism: Concurrent attempts; None uses the API's default.
    """

    def __init__(
        self,
        config: TesterConfig,
        prepared: PreparedSubmission,
        deps: SessionDependencies,
        parallelism: int | None = None,
    ) -> None:
        self.name: str | None = None
        """Name of the BenchmarkRun once it exists."""
        self._config = config
        self._prepared = prepared
        self._deps = deps
        self._parallelism = parallelism
        self._folder = config.run.output_dir
        self._follower = Follower(deps.cluster, deps.sleep, self._note)
        self._total = len(prepared.task_ids) * config.run.attempts
        self._done = 0
        self._kept: frozenset[RecordKey] = frozenset()
        self._left_out: Counter[str] = Counter()
        self._on_record: Callable[[RecordKey], None] = lambda _: None

    async def execute(self) -> RunEnd:
        """Start or join the run and follow it to its end.

        Raises:
            InvalidInputError: The results cannot be resumed, or the API rejects the spec.
            SecureBenchError: The cluster or the volume failed.
            OSError: The output folder cannot be written.
        """
        spec = self._checked_spec()
        make_output_folder(self._folder)
        state, joined, is_continued = await self._start(spec)
        if not joined and not is_continued:
            (self._folder / CANDIDATES).write_bytes(b"")
        for name in (SUMMARY, EGRESS):
            (self._folder / name).unlink(missing_ok=True)
        folder = shown_path(self._folder)
        self._report(Event.RUN_START, run_id=self._config.run.id, output_dir=folder)
        started = f"{'joined' if joined else 'started'} BenchmarkRun {state.name}"
        self._report(Event.NOTE, message=started, total=self._total)
        deps = self._deps
        mirror = RecordMirror(deps.link, state.uid, self._folder / CANDIDATES)
        if joined:
            await self._catch_up(mirror)
        elif self._kept:
            self._report_resume()
        live = LiveOutput(deps.link, state.uid, self._prepared.task_ids, deps.reporter)
        self._on_record = live.finish
        async with (
            live.watched(deps.sleep) if deps.watching.output else nullcontext(),
            self._in_flight(state.uid).watched(deps.sleep)
            if deps.watching.in_flight
            else nullcontext(),
        ):
            end = await self._follow(state, mirror)
        await self._follower.with_retries(lambda: self._refresh(mirror), _FINAL_TRIES)
        return await self._finish(end)

    def _in_flight(self, uid: str) -> InFlightWatch:
        def report(attempts: tuple[AttemptInFlight, ...] | None) -> None:
            self._report(Event.IN_FLIGHT, attempts=attempts)

        clock = asyncio.get_running_loop().time
        return InFlightWatch(self._deps.link, uid, report, clock, self._prepared.task_ids)

    async def submit(self) -> Started:
        """Start the run, or find the active one that it would join, and leave it.

        Raises:
            InvalidInputError: The results cannot be resumed, or the API rejects the spec.
            SecureBenchError: The cluster or the volume failed.
        """
        return await self._start(self._checked_spec())

    def _checked_spec(self) -> Raw:
        return self._spec(run_name(self._config.run.id, "check"), resume_from=None)

    async def _start(self, spec: Raw) -> Started:
        cluster, run_id = self._deps.cluster, self._config.run.id
        binding = Binding(
            run_id, self._prepared.pack.digest, self._prepared.harness_digest, VERIFIER_VERSION
        )
        runs = (await cluster.list(ObjectKind.BENCHMARK_RUN, "")).items
        found = joinable_run(runs, binding, spec)
        if found is not None:
            self.name = run_state(found).name
            return Started(run_state(found), is_joined=True, is_continued=False)
        self._secrets("")
        earlier = None
        if self._config.run.resume:
            entries = await self._with_retries(lambda: self._deps.link.find_run(run_id))
            earlier = resumable_run(entries, binding, self._folder / CANDIDATES)
        if earlier is not None:
            await self._inspect_earlier_run(earlier.uid, binding)
        await self._with_retries(self._push)
        run = await shielded(self._create(earlier.run if earlier else None))
        return Started(run_state(run), is_joined=False, is_continued=earlier is not None)

    async def _push(self) -> None:
        pack, link = self._prepared.pack, self._deps.link
        name = pack_folder(pack)
        receipt = files_receipt(pack.files, LOCAL_LIMITS)
        if await link.pack_digest(name) != receipt.digest:
            await link.put_pack(name, pack.files)

    async def _create(self, resume_from: str | None) -> Raw:
        deps = self._deps
        creation = RunCreation(deps.cluster, self._with_retries, self._warn, self._note_name)
        for _ in range(_NAME_TRIES):
            try:
                return await creation.create(self._new_run(resume_from))
            except AlreadyExists:
                continue
        raise ClusterError("found no unused name for the BenchmarkRun; try again")

    def _new_run(self, resume_from: str | None) -> NewRun:
        name = run_name(self._config.run.id, self._deps.suffix())
        spec = self._spec(name, resume_from)
        manifest = run_manifest(name, spec, self._prepared.harness_digest)
        provider = secret_names(name, self._config.harness).provider
        return NewRun(name, manifest, self._secrets(name), provider)

    def _note_name(self, name: str) -> None:
        self.name = name

    def _spec(self, name: str, resume_from: str | None) -> Raw:
        return build_spec(
            self._config,
            self._prepared.pack,
            name=name,
            parallelism=self._parallelism,
            resume_from=resume_from,
        )

    def _secrets(self, name: str) -> dict[str, dict[str, str]]:
        """Return the content of the run's Secrets by name."""
        return secret_values(name, self._config.harness, self._deps.environ)

    async def _follow(self, state: RunState, mirror: RecordMirror) -> RunState:
        notes, last_done = NoteFilter(asyncio.get_running_loop().time), 0
        async with aclosing(self._follower.states(state.name, state.uid)) as states:
            async for current in states:
                self._total = max(self._total, current.total)
                self._report(Event.STATUS, state=current)
                if current.end is not None:
                    return current
                if notes.is_new(current.note):
                    self._note(current.note)
                if current.done != last_done:
                    last_done = current.done
                    await self._refresh_if_possible(mirror)
        raise AssertionError("unreachable: the iterator of states never ends")

    async def _finish(self, state: RunState) -> RunEnd:
        end = state.end
        exit_code = 1 if end is None else end.exit_code
        part = await self._follower.with_retries(
            lambda: self._deps.link.get_run(state.uid, SUMMARY), _FINAL_TRIES
        )
        if part is None:
            if exit_code == 0:
                raise StorageError(f"the results volume has no {SUMMARY} of run {state.name}")
            return RunEnd(state, exit_code, None)
        raw = localized_summary(part.data, self._folder) | self._left_out
        raw |= cost_fields(self._folder / CANDIDATES, self._config.prices)
        write_summary(raw, self._folder)
        log = RecordMirror(self._deps.link, state.uid, self._folder / EGRESS, EGRESS)
        await self._follower.with_retries(log.fetch, _FINAL_TRIES)
        return RunEnd(state, exit_code, parse_summary(raw))

    async def _refresh_if_possible(self, mirror: RecordMirror) -> None:
        try:
            await self._refresh(mirror)
        except (ClusterError, StorageError) as error:
            self._note(f"records could not be fetched; the run continues ({error})")

    async def _refresh(self, mirror: RecordMirror) -> None:
        for record in await mirror.refresh():
            self._on_record(record_key(record))
            if record_key(record) not in self._kept:
                self._report_record(record)

    async def _catch_up(self, mirror: RecordMirror) -> None:
        records = await self._with_retries(mirror.refresh)
        self._kept = frozenset(record_key(record) for record in records)
        if records:
            self._report_resume()

    async def _inspect_earlier_run(self, uid: str, binding: Binding) -> None:
        """Determine which records a resume keeps, and warn about local lines that it ignores."""
        with TemporaryDirectory() as folder:
            mirror = RecordMirror(self._deps.link, uid, Path(folder, CANDIDATES))
            fetched = await self._with_retries(mirror.refresh)
        records = {record_key(item): item for item in fetched}
        self._kept = frozenset(
            key for key, item in records.items() if item.get("outcome") in KEPT_OUTCOMES
        )
        attempts = range(1, self._config.run.attempts + 1)
        selected = {
            RecordKey(task_id, attempt)
            for task_id in self._prepared.task_ids
            for attempt in attempts
        }
        self._total = len(selected | self._kept)
        path = self._folder / CANDIDATES
        self._left_out = Counter({flaw.value: 0 for flaw in Flaw})
        for left_out in left_out_lines(path, binding, records):
            self._left_out[left_out.flaw.value] += 1
            self._warn(
                f"{path}:{left_out.line}: {left_out.flaw} line is ignored: {left_out.reason}"
            )
        for key, item in records.items():
            if key not in self._kept:
                self._note(f"runs again: {key.task_id} ({item.get('outcome')})")

    async def _with_retries(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call when the connection to the operator's Pod breaks."""
        return await self._follower.with_retries(call, _TRANSIENT_TRIES, TransientClusterError)

    def _report_record(self, record: Record) -> None:
        self._done += 1
        self._total = max(self._total, self._done)
        for event, fields in record_events(record, index=self._done, total=self._total):
            self._report(event, **fields)

    def _report_resume(self) -> None:
        self._done = len(self._kept)
        remaining = max(0, self._total - self._done)
        path = shown_path(self._folder / CANDIDATES)
        self._report(Event.RESUME, completed=self._done, remaining=remaining, output_path=path)

    def _report(self, event: str, **fields: object) -> None:
        self._deps.reporter.report(event, **fields)

    def _note(self, message: str) -> None:
        self._report(Event.NOTE, message=message)

    def _warn(self, message: str) -> None:
        self._report(Event.WARNING, message=message)
