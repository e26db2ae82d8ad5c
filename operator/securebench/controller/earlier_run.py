"""The earlier run that a new one names: may it be resumed or graded again, and what it hands on.

Names and run ids can be used again by anybody. So one that several runs on the volume have names
none of them; the spec then has the uid. A run is bound to the uid that it found when it began.

A resumed run takes over the records of attempts with a result. A regrade takes over the candidates
that were sealed, and the other records; its agent must have seen the same (decision 0071). What is
taken over goes into the new run's own folder. Functions that copy or read the volume block.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from securebench.agents.harness import HarnessConfig
from securebench.benchmark.files.load import load_tasks
from securebench.benchmark.files.materialize import public_digest
from securebench.benchmark.scorers.dangerous_commands import VerificationPolicy
from securebench.cluster.port import ObjectKind
from securebench.controller.capture import CandidateFolder
from securebench.controller.context import Context, FrozenPack
from securebench.controller.packs import frozen
from securebench.controller.reading import ReadingEndedError, Run
from securebench.controller.volume.journal import read_journal
from securebench.controller.volume.registers import IndexEntry, RunIndex
from securebench.controller.volume.store import RunStore
from securebench.controller.volume_calls import on_volume
from securebench.errors import ConfigErrors, DigestMismatchError, InvariantViolationError, SpecError
from securebench.files import pieces
from securebench.json_values import object_at, object_in, text_at
from securebench.protocol.candidate import STREAMS, TEXT_FILE
from securebench.run.api.field_types import Outcome
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.artifacts import Part
from securebench.run.layout import launch_part
from securebench.run.plan.build import task_plan
from securebench.run.plan.model import AttemptKey, EarlierRun, LaunchKey, Role, RunPlan, TaskPlan
from securebench.run.plan.score_fields import spec_harness
from securebench.run.records.record import regrade_field
from securebench.run.state.attempts import (
    AttemptHistory,
    FinishedState,
    ProducedState,
    ProducerNetwork,
    SealedCandidate,
)
from securebench.run.state.entries import CandidateKept, Kept
from securebench.run.state.history import KEPT_ON_RESUME, RunHistory, whole_history
from securebench.text import listed


async def resumed_run(context: Context, spec: BenchmarkRunSpec, uid: str) -> IndexEntry | None:
    """Return the run that a new one resumes, or None where it resumes none.

    Args:
        uid: UID of the new run, which may be in the index already.

    Raises:
        SpecError: There is no such run, or more than one, its results are gone, it has not
            ended, or it is a regrade.
        ClusterError: The API server did not answer.
    """
    if spec.resume_from is None:
        return None
    name = spec.resume_from.run
    named = await on_volume(RunIndex(context.settings.data_root).named, name)
    others = [entry for entry in named if entry.uid != uid]
    entry = _only(others, "resumeFrom", name, spec.resume_from.uid)
    found = await _ended(context, entry, "resumeFrom")
    if found.regrade_of:
        raise SpecError(
            f"spec.resumeFrom.run: run {name!r} only graded another run again; resume that one"
        )
    return found


async def regraded_run(context: Context, spec: BenchmarkRunSpec, uid: str) -> IndexEntry | None:
    """Return the run that a new one grades again, or None where it grades none.

    Args:
        uid: UID of the new run, which may be in the index already.

    Raises:
        SpecError: There is no such run, or more than one, its results are gone, or it has not
            ended.
        ClusterError: The API server did not answer.
    """
    if spec.regrade is None:
        return None
    name = spec.regrade.run
    entries = await on_volume(RunIndex(context.settings.data_root).entries)
    others = [each for each in entries if each.uid != uid and name in (each.run, each.run_id)]
    return await _ended(context, _only(others, "regrade", name, spec.regrade.uid), "regrade")


def _only(entries: Collection[IndexEntry], field: str, name: str, uid: str | None) -> IndexEntry:
    """Return the one run that a name means, or the one that has the uid of the spec."""
    found = [entry for entry in entries if uid in (None, entry.uid)]
    if not found:
        which = f" with uid {uid}" if uid is not None else ""
        raise SpecError(f"spec.{field}.run: there is no run {name!r}{which} on this volume")
    if len(found) > 1:
        which = listed([f"{each.run} of {each.started_at}, uid {each.uid}" for each in found])
        raise SpecError(
            f"spec.{field}.run: {name!r} may be any of {len(found)} runs on this volume: {which}; "
            f"set spec.{field}.uid to the one that is meant"
        )
    return found[0]


async def _ended(context: Context, entry: IndexEntry, field: str) -> IndexEntry:
    name = entry.run
    if entry.removed_at:
        raise SpecError(
            f"spec.{field}.run: the results of run {name!r} were removed at {entry.removed_at}; "
            f"start a run without {field}"
        )
    store = RunStore(context.settings.data_root, entry.uid)
    if not await on_volume(store.exists):
        raise SpecError(
            f"spec.{field}.run: the results of run {name!r} are not on this volume any more; "
            f"start a run without {field}"
        )
    there = text_at(object_at(await on_volume(store.binding), "index"), "uid")
    if there != entry.uid:
        raise SpecError(
            f"spec.{field}.run: the folder of run {name!r}, uid {entry.uid}, holds results of uid"
            f" {there}: restore the results volume from a copy"
        )
    if not entry.outcome and await _is_there(context, entry):
        raise SpecError(f"spec.{field}.run: run {name!r} has not ended; cancel it or wait")
    return entry


async def _is_there(context: Context, entry: IndexEntry) -> bool:
    """Whether the BenchmarkRun of an entry still exists; a deleted one will never end."""
    found = await context.cluster.get(ObjectKind.BENCHMARK_RUN, entry.run)
    return text_at(object_at(object_in(found), "metadata"), "uid") == entry.uid


def check_binding(earlier: IndexEntry, plan: RunPlan) -> None:
    """Refuse a run that is not of the same kind as the one that it resumes.

    Raises:
        ConfigErrors: Run id, pack, harness or verifiers differ.
    """
    pairs = (
        ("run_id", earlier.run_id, plan.identity.run_id),
        ("pack_digest", earlier.pack_digest, plan.pack_digest),
        ("harness_digest", earlier.harness_digest, plan.harness.digest),
        ("verifier_version", earlier.verifier_version, plan.verifier_version),
    )
    problems = [
        f"spec.resumeFrom: {name} differs: run {earlier.run!r} had {old}, this run has {new}"
        for name, old, new in pairs
        if old != new
    ]
    if problems:
        raise ConfigErrors([SpecError(problem) for problem in problems])


def check_regrade(
    root: Path,
    earlier: IndexEntry,
    binding: Mapping[str, object],
    plan: RunPlan,
    pack: FrozenPack,
) -> None:
    """Refuse a regrade whose candidates were made under other conditions. Blocks.

    Args:
        binding: What that is bound to.

    Raises:
        SpecError: Harness or attempts differ, a task is another one or shows its agent other data,
            or this version does not read the earlier run's pack.
        PackError: The earlier run's copy of its pack is gone.
    """
    spec = BenchmarkRunSpec.parse(object_at(binding, "spec"))
    pairs = (
        ("harness", earlier.harness_digest, plan.harness.digest),
        ("attempts", spec.attempts, plan.policy.attempts),
    )
    for name, old, new in pairs:
        if old != new:
            raise SpecError(
                f"spec.regrade: {name} differs: run {earlier.run!r} had {old}, this run has {new}"
            )
    if earlier.pack_digest != plan.pack_digest:
        before = frozen(root, earlier.pack_digest)
        _check_tasks(earlier.run, _ShownTasks(before, spec), plan, pack)


class _ShownTasks:
    """What an earlier run showed its agent of its tasks."""

    def __init__(self, pack: FrozenPack, spec: BenchmarkRunSpec) -> None:
        self.harness: HarnessConfig = spec_harness(spec)
        self._pack = pack

    def tasks(self, wanted: Iterable[int]) -> dict[int, TaskPlan]:
        """Return the tasks at these places of the pack that it has."""
        places = set(wanted)
        try:
            loaded = load_tasks(
                self._pack.manifest,
                self._pack.tasks,
                limit=max(places) + 1,
                task_file=self.harness.task_file,
            )
        except ConfigErrors as errors:
            message = f"this version does not read the earlier run's pack: {errors.errors[0]}"
            raise SpecError(f"spec.regrade: {message}") from None
        policy = VerificationPolicy()
        return {
            index: task_plan(index, task, self.harness, policy)
            for index, task in enumerate(loaded.tasks)
            if index in places
        }

    def aspects(self, task: TaskPlan, pack: FrozenPack | None = None) -> dict[str, object]:
        """Return what an agent saw of a task, by what a message calls it."""
        root = (pack or self._pack).manifest.parent
        environment = task.environment
        return {
            "family": task.task.task_type,
            "image": environment.image,
            "workspace": (environment.workspace, environment.workdir, environment.starts_filled),
            "time limit": environment.timeout_seconds,
            "container": (environment.user, environment.env, environment.limits),
            "services": environment.services,
            "form of the answer": (task.extraction, task.command),
            "public data": public_digest(task.task, root, self.harness.task_file),
        }


def _check_tasks(run: str, shown: _ShownTasks, plan: RunPlan, pack: FrozenPack) -> None:
    before = shown.tasks(plan.tasks)
    others = [
        repr(task.task.id)
        for index, task in plan.tasks.items()
        if index not in before or before[index].task.id != task.task.id
    ]
    if others:
        raise SpecError(
            f"spec.regrade: {listed(others)} stood elsewhere or not at all in the pack of run "
            f"{run!r}; keep its rows and their order, or choose tasks with taskSelector"
        )
    changed = list(_changed(shown, before, plan, pack))
    if changed:
        raise SpecError(
            f"spec.regrade: the agent of run {run!r} saw something else of {listed(changed)}; "
            "only hidden data and tests may change, start a new run for the rest"
        )


def _changed(
    shown: _ShownTasks, before: Mapping[int, TaskPlan], plan: RunPlan, pack: FrozenPack
) -> Iterator[str]:
    for index, task in plan.tasks.items():
        old, new = shown.aspects(before[index]), shown.aspects(task, pack)
        names = [name for name in old if old[name] != new[name]]
        if names:
            yield f"{task.task.id!r} ({', '.join(names)})"


class EarlierAttempt(NamedTuple):
    """An attempt of an earlier run.

    Attributes:
        run_uid: The run whose folder has its candidate.
        attempt: Its history; how it ended is that of the run which is graded again.
        network: Network of the run that produced its candidate.
    """

    run_uid: str
    attempt: AttemptHistory
    network: ProducerNetwork

    @property
    def candidate(self) -> SealedCandidate | None:
        """What was sealed and can be verified; None where that is no file.

        What an outage of the model provider left counts for nothing (contract 15.1).
        """
        finish, production = self.attempt.finish, self.attempt.production
        is_outage = finish is not None and finish.outcome is Outcome.PROVIDER
        candidate = production.candidate if production is not None else None
        is_file = candidate is not None and candidate.file is not None
        return candidate if is_file and not is_outage else None


def earlier_attempts(root: Path, uid: str) -> Mapping[AttemptKey, EarlierAttempt]:
    """Return the attempts of a run of which its journal knows something, in pack order.

    A record that it took over from a run before it comes with that run's candidate, while that is
    on the volume. Blocks.

    Raises:
        JournalCorruptError: A journal is damaged.
        OSError: The volume did not do what was asked.
    """
    history = whole_history(read_journal(RunStore(root, uid).folder, uid).entries)
    kept_of = {state.kept_of for state in history.finished} - {""}
    before = {each: _attempts_before(root, each) for each in kept_of}
    return {
        key: _earlier_attempt(uid, history, attempt, before)
        for key, attempt in history.attempts.items()
    }


def _attempts_before(root: Path, uid: str) -> Mapping[AttemptKey, EarlierAttempt]:
    with suppress(FileNotFoundError):
        return earlier_attempts(root, uid)
    return {}


def _earlier_attempt(
    uid: str,
    history: RunHistory,
    attempt: AttemptHistory,
    before: Mapping[str, Mapping[AttemptKey, EarlierAttempt]],
) -> EarlierAttempt:
    state = attempt.state
    known = None
    if isinstance(state, FinishedState) and state.kept_of:
        known = before[state.kept_of].get(attempt.key)
    if isinstance(state, FinishedState) and known is not None:
        ended = replace(state, produced=known.attempt.produced)
        return known._replace(attempt=known.attempt._replace(state=ended))
    launches = history.launches.get(attempt.key, ())
    network = attempt.network or (launches[0].network if launches else ProducerNetwork())
    return EarlierAttempt(uid, attempt, network)


def kept_entries(root: Path, uid: str) -> tuple[Kept, ...]:
    """Return what a resumed run takes over: attempts with a result, in pack order.

    Args:
        uid: The earlier run.

    Raises:
        OSError: The volume did not do what was asked.
    """
    history = whole_history(read_journal(RunStore(root, uid).folder, uid).entries)
    return tuple(
        Kept(state.finish, state.record_sha256, uid)
        for state in history.finished
        if state.finish.outcome in KEPT_ON_RESUME
    )


def copy_records(root: Path, uid: str, kept: Collection[Kept]) -> None:
    """Copy the records that a resumed run takes over into its folder.

    Args:
        uid: The new run.
        kept: What it takes over.

    Raises:
        OSError: The volume did not do what was asked.
    """
    for entry in kept:
        key = entry.finish.key
        RunStore(root, uid).write_record(key, RunStore(root, entry.run_uid).record_pieces(key))


def take_over(
    store: RunStore, earlier: IndexEntry, plan: RunPlan, pack: FrozenPack, read: Run
) -> tuple[CandidateKept | Kept, ...]:
    """Copy candidates and records into the folder of a regrade; may be repeated.

    Args:
        store: Store of the regrade, which is not bound yet.
        earlier: The run that it grades again.
        read: Reads one candidate.

    Returns:
        The first entries of its journal, in pack order. An attempt that left neither candidate nor
        record has none.

    Raises:
        SpecError: The candidates were made under other conditions, or a candidate or a record is
            not what the earlier run sealed.
        PackError: The earlier run's copy of its pack is gone.
        OSError: The volume did not do what was asked.
    """
    check_regrade(store.root, earlier, RunStore(store.root, earlier.uid).binding(), plan, pack)
    return tuple(_Source(store, plan, read).entries(earlier_attempts(store.root, earlier.uid)))


class _Source:
    """Copies from the folder of an earlier run into that of a regrade."""

    def __init__(self, store: RunStore, plan: RunPlan, read: Run) -> None:
        if plan.regrade is None:
            raise InvariantViolationError("only a regrade takes candidates over")
        self._store = store
        self._plan = plan
        self._read = read
        self._earlier: EarlierRun = plan.regrade

    def entries(
        self, attempts: Mapping[AttemptKey, EarlierAttempt]
    ) -> Iterator[CandidateKept | Kept]:
        for key, known in attempts.items():
            task = self._plan.tasks.get(key.task)
            if task is None:
                continue
            try:
                produced, state = known.attempt.produced, known.attempt.state
                if produced is not None and known.candidate is not None:
                    yield self._candidate(known, task, produced, known.candidate)
                elif isinstance(state, FinishedState):
                    yield self._record(key, state)
            except ReadingEndedError:
                raise SpecError(
                    f"{self._place(task, key)} cannot be judged again: reading it ended the "
                    "process that read it, twice; leave the task out with taskSelector.exclude"
                ) from None
            except (DigestMismatchError, FileNotFoundError) as error:
                found = "a file is missing" if isinstance(error, OSError) else error
                raise SpecError(
                    f"{self._place(task, key)} is not as it was sealed: {found}; restore the "
                    "results volume from a copy, or leave the task out with taskSelector.exclude"
                ) from None

    def _place(self, task: TaskPlan, key: AttemptKey) -> str:
        attempt = f"attempt {key.attempt} of task {task.task.id!r}"
        return f"spec.regrade.run: {attempt} of run {self._earlier.name!r}"

    def _candidate(
        self,
        known: EarlierAttempt,
        task: TaskPlan,
        produced: ProducedState,
        candidate: SealedCandidate,
    ) -> CandidateKept:
        key, usage = known.attempt.key, known.attempt.usage
        launch = LaunchKey(*key, Role.HARNESS, candidate.launch)
        self._store.make_launch_folders(launch)
        for name in STREAMS:
            with suppress(FileNotFoundError, DigestMismatchError):
                self._copy(known.run_uid, launch, Part.PRODUCER, name)
        artifact, file = self._store.part(launch, Part.CANDIDATE), str(candidate.file)
        self._copy(known.run_uid, launch, Part.CANDIDATE, file)
        self._store.check_file(artifact, file, candidate.digest)
        sealed = replace(candidate, patch=None)
        if candidate.file == TEXT_FILE and task.verification is not None:
            folder = CandidateFolder(self._store.artifacts, artifact)
            sealed = self._read(partial(task.verification.sealed, sealed, folder))
        production = replace(produced.production, candidate=sealed)
        taken_from = self._earlier.uid
        return CandidateKept(key, production, produced.at, usage, known.network, taken_from)

    def _record(self, key: AttemptKey, known: FinishedState) -> Kept:
        """Copy the record of an attempt that cannot be graded again, and let it say so."""
        data = b"".join(RunStore(self._store.root, self._earlier.uid).record_pieces(key))
        if hashlib.sha256(data).hexdigest() != known.record_sha256:
            raise DigestMismatchError("its record was changed")
        told = {
            "run_id": self._plan.identity.run_id,
            "regrade": regrade_field(self._earlier, graded_again=False),
        }
        line = json.dumps({**object_in(json.loads(data)), **told}, sort_keys=True)
        return Kept(known.finish, self._store.write_record(key, [line.encode()]), self._earlier.uid)

    def _copy(self, run_uid: str, launch: LaunchKey, part: Part, name: str) -> None:
        source, artifacts = launch_part(run_uid, launch, part), self._store.artifacts
        with artifacts.opened(source, name) as file:
            artifacts.put(self._store.part(launch, part), name, pieces(file))
