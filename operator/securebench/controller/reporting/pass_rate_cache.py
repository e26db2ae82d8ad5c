"""The share of passed attempts of a run under way, counted and estimated off the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from securebench.run.state.tally import task_verdicts
from securebench.stats.intervals import Interval, pass_rate

if TYPE_CHECKING:
    from collections.abc import Collection

    from securebench.run.state.attempts import AttemptHistory
    from securebench.stats.verdicts import VerdictCounts


class PassRateCache:
    """Estimates the share of verdicts of one run that passed, once for the same verdicts."""

    def __init__(self) -> None:
        self._verdicts: VerdictCounts = Counter()
        self._rate: Interval | None = None

    async def rate(self, attempts: Collection[AttemptHistory]) -> Interval | None:
        """Return the share of attempts with a verdict that passed; None without a verdict."""
        return await asyncio.to_thread(self._estimated, tuple(attempts))

    def _estimated(self, attempts: Collection[AttemptHistory]) -> Interval | None:
        verdicts = task_verdicts(attempts)
        if verdicts != self._verdicts:
            self._verdicts, self._rate = verdicts, pass_rate(verdicts)
        return self._rate
