"""Applies the decisions about the attempts of a run: launches, captures, records, lanes.

A task's lanes are written once and found again after a restart.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from pydantic import TypeAdapter

from securebench.benchmark.files.materialize import write_answer, write_lanes
from securebench.benchmark.pack.lane_plan import LaneSet
from securebench.benchmark.pack.oracle import ReferenceAnswer
from securebench.cluster.port import Raw
from securebench.controller.capture import Captured, ExposedValues, OutputProcessor, capture
from securebench.controller.context import Context
from securebench.controller.informers import PodInformer
from securebench.controller.network_keeper import NetworkKeeper
from securebench.controller.object_writers import ObjectWriters
from securebench.controller.packs import content_folder
from securebench.controller.run_ledger import RunLedger
from securebench.controller.volume.gateway_reports import with_usage
from securebench.controller.volume.store import RunStore
from securebench.controller.volume_calls import bulk_on_volume, on_volume
from securebench.errors import TransientClusterError
from securebench.files import make_folder, replace_file
from securebench.run.artifacts import Lanes
from securebench.run.decide.attempt import Capture
from securebench.run.decide.reconcile import RunDecision
from securebench.run.observe.termination import launch_evidence
from securebench.run.plan.model import AttemptKey, LaunchKey, Role, RunPlan, TaskPlan, pod_name
from securebench.run.pods.harness import harness_pod
from securebench.run.state.attempts import Finish, Lost
from securebench.run.state.entries import EvidenceByAttempt, LaunchEvidence, LaunchLost
from securebench.run.verification.base import Member, verifier_pod

_ADAPTER = TypeAdapter(LaneSet)


class LaneKeeper:
    """Writes lanes before the first launch of a task and removes them after the last.

    Attempts of one task share its lanes, so they are never rewritten below a running Pod.

    Args:
        pack_root: Folder of the frozen pack's manifest.
        task_file: Workspace path of the public payload.
        answers: Reference answers by task id; empty for every harness but an oracle.
    """

    def __init__(
        self,
        store: RunStore,
        pack_root: Path,
        task_file: str,
        answers: Mapping[str, ReferenceAnswer],
    ) -> None:
        self._store = store
        self._answers = answers
        self._pack_root = pack_root
        self._task_file = task_file
        self._known: dict[int, LaneSet] = {}
        self._locks: dict[int, asyncio.Lock] = {}

    async def lanes(self, task: TaskPlan) -> LaneSet:
        """Return a task's lanes, written if need be."""
        async with self._locks.setdefault(task.index, asyncio.Lock()):
            if task.index not in self._known:
                self._known[task.index] = await on_volume(self._find_or_write, task)
            return self._known[task.index]

    async def remove(self, task: int) -> None:
        """Remove a task's lanes."""
        self._known.pop(task, None)
        self._locks.pop(task, None)
        await bulk_on_volume(self._remove, task)

    def _find_or_write(self, task: TaskPlan) -> LaneSet:
        note = self._store.lane_note(task.index)
        with contextlib.suppress(FileNotFoundError):
            return _ADAPTER.validate_json(note.read_bytes())
        answer = self._answers.get(task.task.id)
        with self._store.artifacts.filling(Lanes(self._store.uid, task.index)) as folder:
            lanes = write_lanes(task.task, self._pack_root, folder, task_file=self._task_file)
            if answer is not None:
                digest = write_answer(answer, task.task, self._pack_root, folder)
                lanes = replace(lanes, oracle_digest=digest)
        make_folder(note.parent)
        replace_file(note, _ADAPTER.dump_json(lanes))
        return lanes

    def _remove(self, task: int) -> None:
        self._store.lane_note(task).unlink(missing_ok=True)
        self._store.artifacts.remove(Lanes(self._store.uid, task))


FINISH_BATCH = 100
"""Records written in one pass; a cancelled run of thousands keeps publishing meanwhile."""


class AttemptKeeper:
    """Creates and deletes launches, reads their results and writes records, for one run.

    Args:
        ledger: The run, with its journal and records.
        writers: Create and delete Pods in the background.
        network: Completes the plan with what only the cluster knows, as the gateway's address.
    """

    def __init__(
        self,
        context: Context,
        ledger: RunLedger,
        writers: ObjectWriters,
        informer: PodInformer,
        network: NetworkKeeper,
    ) -> None:
        self._cluster = context.cluster
        self._clock = context.clock
        self._store = ledger.store
        self._plan: RunPlan = ledger.plan
        self._ledger = ledger
        self._writers = writers
        self._informer = informer
        self._network = network
        self._lanes = LaneKeeper(
            ledger.store,
            content_folder(context.settings.data_root, self._plan.pack_digest),
            self._plan.harness.task_file,
            self._plan.answers,
        )
        self._reader = OutputProcessor(context.reading, ledger)
        self._exposed = ExposedValues(self._cluster, self._plan.harness)

    async def resume(self) -> None:
        """Restore what a new process needs: creates that may have been sent, secret values."""
        if not self._ledger.history.attempts.open:
            return
        for history in self._ledger.history.attempts.under_way:
            if history.pod is not None:
                self._writers.creator.mark_pending(history.pod)
        await self._exposed.refresh()

    async def lost_entries(self, lost: Sequence[Lost]) -> Sequence[LaunchLost]:
        """Return the journal entries of lost launches, with usage and evidence of their Pods."""
        attempts, uid = self._ledger.history.attempts, self._plan.identity.uid
        if lost and self._plan.has_gateway:
            lost = await on_volume(with_usage, self._store, uid, attempts, lost)
        evidence = self._evidence(item.launch.attempt_key for item in lost)
        return [LaunchLost(item, evidence.get(item.launch.attempt_key)) for item in lost]

    def _evidence(self, keys: Iterable[AttemptKey]) -> EvidenceByAttempt:
        """Return the evidence of the live launches of attempts, by attempt.

        A launch is missing if no Pod of its name was seen; a batch has the name of its first one.
        """
        found: dict[AttemptKey, LaunchEvidence] = {}
        for key in keys:
            live = self._ledger.history.attempts[key].live
            name = pod_name(self._plan.identity.uid, live) if live is not None else ""
            view = self._informer.last_seen(name)
            if view is not None:
                found[key] = launch_evidence(view)
        return found

    async def apply(self, decision: RunDecision) -> None:
        """Read ended launches, write records of ended attempts, create and delete Pods.

        Args:
            decision: Its new and lost launches are in the journal.

        Raises:
            ClusterError: The Secret of exposed values could not be read.
            OSError: The volume failed.
        """
        # Taken before captures and records end launches; only deletions need it.
        live = self._live() if decision.deletions else set()
        await self._capture(decision.captures)
        await self._finish(decision.finishes)
        shared = (pod[0] for pod in decision.batches)
        for launch in (*decision.begin, *shared, *decision.repeat):
            self._writers.creator.create_launch(
                launch, partial(self._manifest, launch), self._informer.note_created
            )
        is_urgent = bool(self._writers.retries.quota)
        self._writers.deleter.delete_all(decision.deletions, live, is_urgent=is_urgent)

    async def sweep(self) -> None:
        """Delete Pods and lanes that a crash or a lost answer may have left behind."""
        await self._informer.list()
        await self._writers.deleter.sweep(self._informer.pods.values())
        if not self._plan.policy.keep_lanes:
            for task in self._plan.tasks:
                await self._lanes.remove(task)

    def _live(self) -> set[str]:
        """Return the names of the Pods of launches that have not ended."""
        uid, attempts = self._plan.identity.uid, self._ledger.history.attempts.under_way
        return {pod_name(uid, each.pod) for each in attempts if each.pod is not None}

    async def _capture(self, captures: Sequence[Capture]) -> None:
        store, now = self._store, self._clock.now()
        since = self._network.gateway_since
        if captures:
            await self._exposed.refresh()
        take = partial(capture, gateway_since=since, exposed=self._exposed.matcher)

        def read(job: Capture) -> Callable[[], Captured]:
            return partial(take, store, self._plan.tasks[job.launch.task], job, now)

        unreadable = await self._reader.capture(captures, read)
        evidence = self._evidence(finish.key for finish in unreadable)
        await self._reader.finish_unreadable(unreadable, evidence)
        await self._remove_unused_lanes(unreadable)

    async def _finish(self, finishes: Sequence[Finish]) -> None:
        batch = finishes[:FINISH_BATCH]
        await self._reader.finish(batch, self._evidence(finish.key for finish in batch))
        await self._remove_unused_lanes(batch)

    async def _remove_unused_lanes(self, ended: Sequence[Finish]) -> None:
        for task in {finish.key.task for finish in ended}:
            keys = (AttemptKey(task, number + 1) for number in range(self._plan.policy.attempts))
            is_open = any(self._ledger.history.attempts[key].finish is None for key in keys)
            if not is_open and not self._plan.policy.keep_lanes:
                await self._lanes.remove(task)

    async def _manifest(self, launch: LaunchKey) -> Raw:
        """Prepare the volume for a launch and return its Pod, which may be that of a batch."""
        plan, task = self._plan, self._plan.tasks[launch.task]
        facts = self._network.cluster_facts(self._ledger.history.isolation)
        await on_volume(self._store.make_launch_folders, launch)
        if launch.role is Role.HARNESS:
            with suppress(TransientClusterError):  # it is read again before anything is kept
                await self._exposed.refresh()
            return harness_pod(plan, task, launch, await self._lanes.lanes(task), facts)
        members = [await self._member(each) for each in self._batch(launch) or [launch]]
        return verifier_pod(plan, members, facts)

    def _batch(self, first: LaunchKey) -> list[LaunchKey]:
        """Return the live launches of a batch."""
        known = (each.launched for each in self._ledger.history.attempts.under_way)
        return sorted(each.launch for each in known if each is not None and each.batch == first)

    async def _member(self, launch: LaunchKey) -> Member:
        task = self._plan.tasks[launch.task]
        production = self._ledger.history.attempts[launch.attempt_key].production
        if production is None or production.candidate is None:
            raise ValueError(f"launch {launch} has no candidate to verify")
        return Member(task, launch, await self._lanes.lanes(task), production.candidate)
