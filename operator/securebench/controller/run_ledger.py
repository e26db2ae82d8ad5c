"""The journal with its fold, and every write of a run that must reach the disk in order."""

from __future__ import annotations

import logging
import platform
from collections.abc import Sequence
from dataclasses import replace

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
from securebench.errors import InvariantViolationError, LeaseOverdueError
from securebench.json_values import object_at, text_at
from securebench.run.plan.model import AttemptKey, RunPlan, pod_name
from securebench.run.records.record import RecordTexts, candidate_record, record_context
from securebench.run.records.record_line import record_line
from securebench.run.state.attempts import (
    AttemptHistory,
    CrashSuspicion,
    Finish,
    JudgedState,
    Usage,
)
from securebench.run.state.entries import (
    NO_EVIDENCE,
    Closed,
    Entry,
    EvidenceByAttempt,
    Finished,
    Opened,
    ReadBegun,
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
        self._is_beginning = False
        self._in_flight = LaunchesInFlight()

    @classmethod
    async def open(
        cls, plan: RunPlan, store: RunStore, clock: Clock, process: str = ""
    ) -> RunLedger:
        """Open the journal, bind it and take it over.

        Args:
            process: Names the operator's process.

        Raises:
            StorageError: A later leader has it, or it is corrupt.
            InvariantViolationError: It belongs to another plan.
        """
        journal = await open_on_volume(store.open_journal, Journal.close)
        try:
            ledger = cls(plan, store, journal, clock)
            await ledger.take_over(process)
        except BaseException:
            await surely_on_volume(journal.close)
            raise
        return ledger

    async def take_over(self, process: str) -> None:
        """Write who has the journal now; the first time also what it is bound to."""
        known = self.history.bound
        if known is not None and known.plan_digest != self.plan.digest:
            raise InvariantViolationError("the journal belongs to another plan")
        if self.history.ended is not None:
            return
        opened = Opened(self.history.epoch + 1, self._clock.now(), process)
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
        self._is_beginning = any(isinstance(entry, ReadBegun) for entry in entries)
        await on_volume(self._journal.append, entries)
        for entry in entries:
            self.history.apply(entry)
            count_entry(entry)
        self._in_flight.set(self.history.attempts.in_flight)
        self._is_beginning = False

    async def finish(
        self, finishes: Sequence[Finish], evidence: EvidenceByAttempt = NO_EVIDENCE
    ) -> None:
        """Write the records of attempts, then the entries that make them final.

        Args:
            finishes: How the attempts end.
            evidence: Pods of the launches that this ends.
        """
        if finishes:
            limit_seconds = ANSWER_SECONDS + WRITE_SECONDS * len(finishes)
            written = on_volume_within(limit_seconds, self._write_records, finishes, evidence)
            await self.write(await written)

    async def end(self, reason: str, message: str) -> None:
        """Write how the run ended, unless that is there."""
        if self.history.ended is None:
            await self.write([RunEnded(reason, message, self._clock.now())])

    async def close(self) -> None:
        """Give the journal back; what is being read meanwhile did not end the operator.

        It is given back also if the caller is cancelled meanwhile.
        """
        reading = (known.reading for known in self.history.attempts.under_way)
        self._in_flight.set(0)
        last = [Closed(self._clock.now())] if self._is_beginning or any(reading) else []
        await surely_on_volume(self._close_journal, last)

    def _close_journal(self, last: Sequence[Entry]) -> None:
        try:
            self._journal.close(last)
        except (OSError, LeaseOverdueError) as error:
            logger.warning("the journal could not be closed in order: %s", error)

    def _write_records(
        self, finishes: Sequence[Finish], evidence: EvidenceByAttempt
    ) -> list[Finished]:
        entries = []
        for finish in finishes:
            at = self._clock.now()
            usage = self._cut_usage(finish.key)
            sha256, grading = self._write_record(finish, at, usage)
            known = replace(finish, grading=grading)
            entries.append(Finished(known, sha256, at, usage, evidence.get(finish.key)))
        return entries

    def _cut_usage(self, key: AttemptKey) -> Usage:
        """Return what a launch asked that is ended while it runs: nothing captures it."""
        live = self.history.attempts[key].live
        if not self.plan.has_gateway or live is None:
            return Usage()
        return lost_usage(self.store, pod_name(self.plan.identity.uid, live))

    def _write_record(self, finish: Finish, at: float, usage: Usage) -> tuple[str, str]:
        """Write a record; return its digest and its ``labels.grading``."""
        plan, identity = self.plan, self.plan.identity
        known = self.history.attempts[finish.key]
        known = known._replace(usage=known.usage + usage)
        is_read = known.crash_suspicion is not CrashSuspicion.CONDEMNED
        if not is_read and isinstance(known.state, JudgedState):
            known = known._replace(state=known.state.produced)
        texts = read_texts(self.store, known) if is_read else RecordTexts()
        context = record_context(
            self.history.isolation,
            known.network,
            finished_at=at,
            run_ordinal=identity.run_ordinal,
            resume_generation=identity.resume_generation,
            platform=_platform_name(),
        )
        record = candidate_record(plan, plan.tasks[finish.key.task], known, finish, texts, context)
        record |= {} if is_read else {"record_truncated": True}
        sha256 = self.store.write_record(finish.key, record_line(record, plan.limits))
        return sha256, text_at(object_at(record, "labels"), "grading")


def _platform_name() -> str:
    """Return ``<os>-<arch>`` of this machine; the nodes of a cluster have one architecture."""
    machine = platform.machine()
    return f"linux-{ARCHITECTURES.get(machine, machine)}"
