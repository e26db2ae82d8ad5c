"""candidates.jsonl, which follows the journal of a run, and is sealed in the end."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from securebench.controller.ledger.prepared_run import PreparedRun
from securebench.controller.ledger.run_ledger import RunLedger
from securebench.controller.ledger.sealing import EndedRun, Exported, Totals, export, seal_run
from securebench.controller.runtime.context import Context
from securebench.run.records.summary import regrade_summary
from securebench.run.state.attempts import Usage
from securebench.run.state.entries import CandidateKept
from securebench.run.state.tally import total_usage

EXPORT_SHARE: Final = 10.0
"""Writing candidates.jsonl takes at most one part in so many of the time."""


class ResultsExport:
    """Exports finished records to candidates.jsonl as the journal grows, and seals the results.

    Args:
        context: Shared parts of the operator: client, settings, clock.
        prepared: The run.
        ledger: Its journal and records.
    """

    def __init__(self, context: Context, prepared: PreparedRun, ledger: RunLedger) -> None:
        self._context = context
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

        Args:
            reason: Reason of ``Succeeded``.
            message: One plain sentence.

        Raises:
            OSError: The volume did not do what was asked.
        """
        context, store = self._context, self._prepared.store
        journal_end = partial(self._ledger.end, reason, message)
        self.exported = await seal_run(context, store, self._ended_run(), reason, journal_end)

    def _is_behind(self) -> bool:
        done = self._ledger.history.attempts.done
        return self._next_at is None or self.exported.records != done

    async def _export(self) -> None:
        began, finished = self._clock.monotonic(), self._ledger.finished()
        records, sha256 = await export(self._prepared.store, finished)
        self.exported = Exported(records, sha256)
        ended = self._clock.monotonic()
        self._next_at = ended + max(self._interval, EXPORT_SHARE * (ended - began))

    def _ended_run(self) -> EndedRun:
        plan, history = self._prepared.plan, self._ledger.history
        finishes = [each.finish for each in history.attempts.values() if each.finish is not None]
        return EndedRun(
            index=self._prepared.index,
            records=self._ledger.finished(),
            finishes=finishes,
            totals=Totals(
                self._usage(),
                history.losses,
                history.noise,
                self._regrade(),
                self._prepared.index.tries,
            ),
            is_audit=plan.audit,
            record_bytes=plan.limits.record_bytes,
        )

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
