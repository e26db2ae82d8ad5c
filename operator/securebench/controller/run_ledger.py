"""The journal with its fold, and every write of a run that must reach the disk in order."""

from __future__ import annotations

import logging
import platform
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from securebench.clock import Clock
from securebench.controller.metrics import LaunchesInFlight, count_entry
from securebench.controller.volume.gateway_reports import lost_usage
from securebench.controller.volume.journal import Journal
from securebench.controller.volume.store import RunStore, read_texts
from securebench.controller.volume_calls import (
    ANSWER_SECONDS,
    on_volume,
    on_volume_within,
    open_on_volume,
    surely_on_volume,
)
from securebench.errors import InvariantViolationError
from securebench.json_values import object_at, text_at
from securebench.run.plan.model import AttemptKey, RunPlan, pod_name
from securebench.run.records.record import (
    RecordContext,
    RecordTexts,
    candidate_record,
    record_context,
)
from securebench.run.records.record_line import record_line
from securebench.run.state.attempts import (
    AttemptHistory,
    Finish,
    JudgedState,
    Usage,
)
from securebench.run.state.entries import (
    NO_EVIDENCE,
    Entry,
    EvidenceByAttempt,
    Finished,
    LaunchEvidence,
    Opened,
    RunBound,
    RunEnded,
)
from securebench.run.state.history import run_history

logger = logging.getLogger(__name__)


ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""As Kubernetes and image indexes name them."""

WRITE_SECONDS = 0.1
"""That a volume which answers may take for each of many records: it is a file of its own."""


class RunLedger:
    """What is known and kept of one run; every method that writes returns when the disk has it."""

    def __init__(self, plan: RunPlan, store: RunStore, journal: Journal, clock: Clock) -> None:
        self.plan = plan
        self.store = store
        self._journal = journal
        self._clock = clock
        self.history = run_history(plan, journal.take_entries())
        self._in_flight = LaunchesInFlight()

    @classmethod
    async def open(cls, plan: RunPlan, store: RunStore, clock: Clock) -> RunLedger:
        """Open the journal, bind it and take it over.

        Raises:
            StorageError: A later leader has it, or it is corrupt.
            InvariantViolationError: It belongs to another plan.
        """
        journal = await open_on_volume(store.open_journal, Journal.close)
        try:
            ledger = cls(plan, store, journal, clock)
            await ledger.take_over()
        except BaseException:
            await surely_on_volume(journal.close)
            raise
        return ledger

    async def take_over(self) -> None:
        """Write who has the journal now; the first time also what it is bound to."""
        known = self.history.bound
        if known is not None and known.plan_digest != self.plan.digest:
            raise InvariantViolationError("the journal belongs to another plan")
        if self.history.ended is not None:
            return
        opened = Opened(self.history.epoch + 1, self._clock.now())
        bound = [RunBound(self.plan.identity.uid, self.plan.digest)] if known is None else []
        taken_over = await on_volume(self.store.kept)
        kept = [item for item in taken_over if self._lacks(item.key)]
        await self.write([*bound, opened, *kept])

    def _lacks(self, key: AttemptKey) -> bool:
        """Whether nothing is known of an attempt: the first write may have been cut by a crash."""
        known = self.history.attempts.get(key)
        return known is not None and known == AttemptHistory(key)

    async def write(self, entries: Sequence[Entry]) -> None:
        """Append entries with one fsync, then take them in."""
        await on_volume(self._journal.append, entries)
        for entry in entries:
            self.history.apply(entry)
            count_entry(entry)
        self._in_flight.set(self.history.attempts.in_flight)

    async def finish(
        self,
        finishes: Sequence[Finish],
        evidence: EvidenceByAttempt = NO_EVIDENCE,
        *,
        is_readable: bool = True,
    ) -> None:
        """Write the records of attempts in this process, then the entries that make them final.

        Args:
            finishes: How the attempts end.
            evidence: Pods of the launches that this ends.
            is_readable: Whether records have what launches left.
        """
        if finishes:
            record = partial(self.record, evidence=evidence, is_readable=is_readable)
            works = [record(finish) for finish in finishes]
            limit_seconds = ANSWER_SECONDS + WRITE_SECONDS * len(works)
            await self.write(await on_volume_within(limit_seconds, _done, works))

    def record(
        self, finish: Finish, evidence: EvidenceByAttempt, *, is_readable: bool = True
    ) -> Callable[[], Finished]:
        """Return what writes the record of an attempt, and returns the entry that makes it final.

        Args:
            finish: How the attempt ends.
            evidence: Pods of the launches that this ends, by attempt.
            is_readable: Whether the record has what launches left.
        """
        plan, known = self.plan, self.history.attempts[finish.key]
        context = record_context(
            self.history.isolation,
            known.network,
            finished_at=self._clock.now(),
            run_ordinal=plan.identity.run_ordinal,
            resume_generation=plan.identity.resume_generation,
            platform=_platform_name(),
        )
        task = plan.tasks[finish.key.task]
        attempt = _Ending(
            store=self.store,
            plan=replace(plan, tasks={finish.key.task: task}, answers={}),
            known=known,
            finish=finish,
            context=context,
            evidence=evidence.get(finish.key),
        )
        return partial(attempt.record, is_readable=is_readable)

    async def end(self, reason: str, message: str) -> None:
        """Write how the run ended, unless that is there."""
        if self.history.ended is None:
            await self.write([RunEnded(reason, message, self._clock.now())])

    async def close(self) -> None:
        """Give the journal back, also if the caller is cancelled meanwhile."""
        self._in_flight.set(0)
        await surely_on_volume(self._close_journal)

    def _close_journal(self) -> None:
        try:
            self._journal.close()
        except OSError as error:
            logger.warning("the journal could not be closed in order: %s", error)


def _done(works: Sequence[Callable[[], Finished]]) -> list[Finished]:
    return [work() for work in works]


@dataclass(frozen=True, slots=True)
class _Ending:
    """An attempt that ends: everything that its record is made of; another process may write it.

    Attributes:
        plan: The run, with the attempt's task alone and no answers.
        known: The attempt as the journal has it.
    """

    store: RunStore
    plan: RunPlan
    known: AttemptHistory
    finish: Finish
    context: RecordContext
    evidence: LaunchEvidence | None

    def record(self, *, is_readable: bool) -> Finished:
        """Write the record. Blocks."""
        usage = self._cut_usage()
        known = self.known._replace(usage=self.known.usage + usage)
        if not is_readable and isinstance(known.state, JudgedState):
            known = known._replace(state=known.state.produced)
        texts = read_texts(self.store, known) if is_readable else RecordTexts()
        task = self.plan.tasks[self.finish.key.task]
        record = candidate_record(self.plan, task, known, self.finish, texts, self.context)
        record |= {} if is_readable else {"record_truncated": True}
        line = record_line(record, self.plan.limits)
        sha256 = self.store.write_record(self.finish.key, line)
        grading = text_at(object_at(record, "labels"), "grading")
        finish = replace(self.finish, grading=grading)
        return Finished(finish, sha256, self.context.finished_at, usage, self.evidence)

    def _cut_usage(self) -> Usage:
        """Return what a launch asked that is ended while it runs: nothing captures it."""
        live = self.known.live
        if not self.plan.has_gateway or live is None:
            return Usage()
        return lost_usage(self.store, pod_name(self.plan.identity.uid, live))


def _platform_name() -> str:
    """Return ``<os>-<arch>`` of this machine; the nodes of a cluster have one architecture."""
    machine = platform.machine()
    return f"linux-{ARCHITECTURES.get(machine, machine)}"
