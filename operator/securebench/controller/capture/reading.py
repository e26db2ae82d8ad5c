"""Reads the output of attempts within a memory budget; each read is journalled first.

What was being read when the operator ended abnormally is read alone the next time: nothing else is
read by any run meanwhile. What ends the operator then too is the candidate's (decision 0031).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, Generic, NamedTuple, TypeVar

from securebench.clock import Clock
from securebench.controller.capacity import MEMORY_FACTOR, ReadingBudget
from securebench.controller.capture.captured_launch import Captured
from securebench.controller.run_ledger import RunLedger
from securebench.controller.volume_calls import on_volume
from securebench.run.decide.attempt import Capture
from securebench.run.plan.model import AttemptKey, LaunchKey, RunPlan
from securebench.run.state.attempts import CrashSuspicion, Finish
from securebench.run.state.entries import EvidenceByAttempt, ReadBegun

CAPTURE_BYTES: Final = 8 << 20
"""Memory for one capture without a patch: four times a text or a stream of 1 MiB, and the rest."""

RECORD_READ_BYTES: Final = 32 << 20
"""Memory for one record without a patch: four times four streams and a text of 1 MiB each."""

Job = TypeVar("Job", Capture, Finish)


class _Group(NamedTuple, Generic[Job]):
    """What is read under one hold of memory."""

    jobs: Sequence[Job]
    need_bytes: int
    is_alone: bool = False


class OutputProcessor:
    """Reads and journals the output of one run's launches.

    Args:
        budget: Budget of the whole operator.
        plan: The run.
        ledger: Its journal and records.
        clock: The wall clock.
    """

    def __init__(
        self, budget: ReadingBudget, plan: RunPlan, ledger: RunLedger, clock: Clock
    ) -> None:
        self._budget = budget
        self._plan = plan
        self._ledger = ledger
        self._clock = clock

    async def capture(self, jobs: Sequence[Capture], take: Callable[[Capture], Captured]) -> None:
        """Journal what ended launches left.

        Args:
            jobs: The launches.
            take: Reads one of them; blocks.
        """
        at_once = self._budget.total_bytes // CAPTURE_BYTES
        for group in self._groups(jobs, CAPTURE_BYTES, at_once, patches_at_once=1):
            await self._budget.run_within(group.need_bytes, partial(self._capture, group, take))

    async def finish(self, jobs: Sequence[Finish], evidence: EvidenceByAttempt) -> None:
        """Write the records of attempts, those of one group one after the other.

        Args:
            jobs: How the attempts end.
            evidence: Pods of the launches that this ends.
        """
        attempts = self._ledger.history.attempts
        texts = [job for job in jobs if attempts[job.key].has_texts]
        await self._ledger.finish([job for job in jobs if job not in texts], evidence)
        per_job = RECORD_READ_BYTES // max(len(texts), 1)
        for group in self._groups(texts, per_job, len(texts), patches_at_once=len(texts)):
            await self._budget.run_within(group.need_bytes, partial(self._finish, group, evidence))

    async def _capture(self, group: _Group[Capture], take: Callable[[Capture], Captured]) -> None:
        await self._begin(group)
        found = await asyncio.gather(*(on_volume(take, job) for job in group.jobs))
        await self._ledger.write(found)

    async def _finish(self, group: _Group[Finish], evidence: EvidenceByAttempt) -> None:
        await self._begin(group)
        await self._ledger.finish(group.jobs, evidence)

    async def _begin(self, group: _Group[Job]) -> None:
        """Write ahead what is read now."""
        now, alone = self._clock.now(), group.is_alone
        await self._ledger.write([ReadBegun(*_place(job), now, alone) for job in group.jobs])

    def _groups(
        self, jobs: Sequence[Job], bytes_each: int, at_once: int, *, patches_at_once: int
    ) -> Iterator[_Group[Job]]:
        """Yield what is read together: what is in doubt alone, patches one after the other."""
        judgement = max(
            self._budget.total_bytes // 2 + 1, MEMORY_FACTOR * self._plan.limits.patch_bytes
        )  # more than half: no two runs judge at once
        suspects, patches, others = self._sorted(jobs)
        for job in suspects:
            yield _Group([job], self._budget.total_bytes, is_alone=True)
        for some in _batches(patches, patches_at_once):
            yield _Group(some, judgement)
        for some in _batches(others, at_once):
            yield _Group(some, bytes_each * len(some))

    def _sorted(self, jobs: Sequence[Job]) -> tuple[list[Job], list[Job], list[Job]]:
        suspects: list[Job] = []
        patches: list[Job] = []
        others: list[Job] = []
        for job in jobs:
            key, _ = _place(job)
            check = self._plan.tasks[key.task].check
            if self._ledger.history.attempts[key].crash_suspicion is not CrashSuspicion.NONE:
                suspects.append(job)
            elif check is not None and check.patch is not None:
                patches.append(job)
            else:
                others.append(job)
        return suspects, patches, others


def _place(job: Capture | Finish) -> tuple[AttemptKey, LaunchKey | None]:
    if isinstance(job, Capture):
        return job.launch.attempt_key, job.launch
    return job.key, None


def _batches(jobs: list[Job], size: int) -> Iterator[list[Job]]:
    for at in range(0, len(jobs), max(size, 1)):
        yield jobs[at : at + size]
