"""What a run leaves for others to read: candidates.jsonl, the summary, what viewers may fetch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from securebench.controller.runtime.context import Context
from securebench.controller.runtime.prepared_run import PreparedRun
from securebench.controller.runtime.run_ledger import RunLedger
from securebench.controller.runtime.signing import signing_key
from securebench.controller.settings.settings import Settings
from securebench.controller.volume.published import publish
from securebench.controller.volume.statement import write_statement
from securebench.controller.volume.store import RunStore
from securebench.protocol.volume import CANDIDATES, SUMMARY
from securebench.run.records.record import record_outcome, verdict_fields
from securebench.run.records.summary import (
    RecordFacts,
    record_facts,
    regrade_summary,
    run_summary,
)
from securebench.run.state.attempts import Finish, Usage
from securebench.run.state.history import CandidateKept
from securebench.run.state.tally import total_usage, verdict_of
from securebench.stats.intervals import Estimates

logger = logging.getLogger(__name__)

EXPORT_SHARE: Final = 10.0
"""Writing candidates.jsonl takes at most one part in so many of the time."""

MEMORY_FACTOR: Final = 4
"""Memory for publishing the line of a record, in sizes of it."""


class Totals(NamedTuple):
    """What a summary says of all launches of a run.

    Attributes:
        usage: Of the model provider; None for a run without one.
        losses: Number of launches that were lost, by reason.
        regrade: What it says of the run that was graded again; None for a run that is no regrade.
    """

    usage: Usage | None
    losses: Mapping[str, int]
    regrade: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class Exported:
    """What lies in candidates.jsonl.

    Attributes:
        records: Lines.
        sha256: Hex digest of the file.
        is_sealed: Whether nothing will change any more.
        published_sha256: Hex digest of what viewers may fetch; empty while there is nothing.
        unsigned: Why the statement is not signed although it should be; empty for nothing.
        estimates: What the summary says of the verdicts; None before it is written.
    """

    records: int = 0
    sha256: str = ""
    is_sealed: bool = False
    published_sha256: str = ""
    unsigned: str = ""
    estimates: Estimates | None = None


class ResultsExport:
    """Keeps candidates.jsonl behind the journal, and seals the results in the end.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        prepared: The run.
        ledger: Its journal and records.
    """

    def __init__(self, context: Context, prepared: PreparedRun, ledger: RunLedger) -> None:
        self._settings = context.settings
        self._budget = context.reading
        self._clock = context.clock
        self._interval = context.settings.status_interval_seconds
        self._prepared = prepared
        self._ledger = ledger
        self._next_at: float | None = None
        self.exported = Exported()

    def due_at(self) -> float | None:
        """Return when held back records have to be exported, monotonic seconds, or None."""
        return self._next_at if self._is_behind() else None

    async def export(self, *, at_once: bool = False) -> None:
        """Write candidates.jsonl anew when records were added; a long file less often.

        Raises:
            OSError: The volume did not do what was asked.
        """
        is_due = at_once or self._next_at is None or self._clock.monotonic() >= self._next_at
        if is_due and self._is_behind():
            await self._export()

    async def seal(self, reason: str, message: str) -> None:
        """End the run: results and summary, the last entry of the journal, then the statement.

        What is published of its records is read from them, one at a time.

        Raises:
            OSError: The volume did not do what was asked.
        """
        need_bytes = MEMORY_FACTOR * self._prepared.plan.limits.record_bytes
        await self._budget.run_within(need_bytes, partial(self._seal, reason, message))

    def _is_behind(self) -> bool:
        done = self._ledger.history.attempts.done
        return self._next_at is None or self.exported.records != done

    async def _export(self) -> None:
        began, finished = self._clock.monotonic(), self._ledger.finished()
        records, sha256 = await asyncio.to_thread(self._prepared.store.export, finished)
        self.exported = Exported(records, sha256)
        ended = self._clock.monotonic()
        self._next_at = ended + max(self._interval, EXPORT_SHARE * (ended - began))

    async def _seal(self, reason: str, message: str) -> None:
        store, plan = self._prepared.store, self._prepared.plan
        await self._export()
        attempts, sha256 = self._ledger.history.attempts.values(), self.exported.sha256
        ends = [each.finish for each in attempts if each.finish is not None]
        totals = Totals(self._usage(), self._ledger.history.losses, self._regrade())
        run_id = plan.identity.run_id
        estimates = await asyncio.to_thread(write_summary, store, run_id, ends, sha256, totals)
        self.exported = replace(self.exported, is_sealed=True, estimates=estimates)
        if not plan.audit:
            published = await asyncio.to_thread(publish, store, self._prepared.index, reason)
            self.exported = replace(self.exported, published_sha256=published)
        await self._ledger.end(reason, message)
        unsigned = await asyncio.to_thread(seal_statement, store, self._settings)
        self.exported = replace(self.exported, unsigned=unsigned)

    def _usage(self) -> Usage | None:
        if not self._prepared.plan.asks_provider:
            return None
        return total_usage(self._ledger.history.attempts.values())

    def _regrade(self) -> Mapping[str, object] | None:
        earlier, kept = self._prepared.plan.regrade, self._prepared.kept
        if earlier is None:
            return None
        graded_again = sum(isinstance(entry, CandidateKept) for entry in kept)
        return regrade_summary(earlier, graded_again, len(kept) - graded_again)


def seal_statement(store: RunStore, settings: Settings) -> str:
    """Write the statement on a run that has ended. Blocks.

    Returns:
        Why it is not signed although the settings name a key; empty for nothing.

    Raises:
        OSError: The volume did not do what was asked.
    """
    key = signing_key(settings)
    write_statement(store, key.signer)
    if key.problem:
        logger.warning("the statement on run %s is not signed: %s", store.folder.name, key.problem)
    return key.problem


def write_summary(
    store: RunStore, run_id: str, ends: Iterable[Finish], sha256: str, totals: Totals
) -> Estimates:
    """Write ``summary.json`` of the records that have been exported. Blocks.

    Args:
        store: The run's folder.
        run_id: Of the summary.
        ends: How each of the attempts ended.
        sha256: Hex digest of candidates.jsonl.
        totals: Of the run's launches.

    Returns:
        What it says of the verdicts.

    Raises:
        OSError: The volume did not do what was asked.
    """
    summary = run_summary(run_id, map(_record_facts, ends), totals.usage, totals.losses)
    body = summary.to_json(str(store.folder), str(store.folder / CANDIDATES))
    body |= {} if totals.regrade is None else {"regrade": dict(totals.regrade)}
    store.write_json(SUMMARY, body | {"sha256": sha256})
    return Estimates(summary.pass_rate, summary.pass_at_k)


def _record_facts(finish: Finish) -> RecordFacts:
    outcome, fields = record_outcome(finish.outcome), verdict_fields(verdict_of(finish))
    return record_facts({"task_id": finish.key.task, "outcome": outcome, **fields})
