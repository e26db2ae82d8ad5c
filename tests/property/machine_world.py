"""What the machine model knows of its run: the journal, folded by the model itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from securebench.run.decide.controls import Controls
from securebench.run.decide.decision_cache import DecisionCache
from securebench.run.decide.reconcile import ObservedState, RunDecision, reconcile
from securebench.run.plan.model import AttemptKey, LaunchKey
from securebench.run.state.entries import (
    Closed,
    Entry,
    Finished,
    IsolationResult,
    LaunchBegun,
    LaunchLost,
    Opened,
    Produced,
    ReadBegun,
    RunBound,
    Verified,
)
from securebench.run.state.history import RunHistory

PROVIDER_RETRIES = 2


def reconcile_both_ways(
    observed: ObservedState, controls: Controls, cache: DecisionCache
) -> RunDecision:
    """Decide by what has changed, and check that a look at everything decides the same."""
    decision = reconcile(observed, controls, cache)
    assert decision == reconcile(replace(observed, changes=None), controls)
    return decision


@dataclass
class Ledger:
    """What reached the journal, folded by the model itself."""

    parallelism: int
    may_begin: bool = True
    begun: set[LaunchKey] = field(default_factory=set)
    history: RunHistory = field(default_factory=RunHistory)
    counts: Counter[tuple[str, AttemptKey]] = field(default_factory=Counter)
    records: dict[AttemptKey, bytes] = field(default_factory=dict)
    reading: dict[AttemptKey, bool] = field(default_factory=dict)
    is_declared: bool = True
    condemned: set[AttemptKey] = field(default_factory=set)
    process: str = ""

    def take(self, batch: tuple[Entry, ...]) -> None:
        for entry in batch:
            assert not isinstance(entry, RunBound) or self.history.bound is None
            self._count(entry)
            self._blame(entry)
            self.history.apply(entry)
        if any(isinstance(entry, LaunchBegun) for entry in batch):
            assert len(self.live) <= self.parallelism

    def _blame(self, entry: Entry) -> None:
        """Remember what was read, alone, by an operator that did not end in order."""
        match entry:
            case ReadBegun(key, _, _, is_alone):
                assert key not in self.condemned
                assert not is_alone or not self.reading
                self.reading[key] = is_alone
            case Closed():
                self.reading.clear()
            case Opened(_, _, process):
                alone = {key for key, is_alone in self.reading.items() if is_alone}
                self.condemned |= alone if process != self.process else set()
                self.process = process
                self.reading.clear()
            case LaunchLost(lost):
                self.reading.pop(lost.launch.attempt_key, None)
            case Produced(key) | Verified(key):
                self.reading.pop(key)
            case Finished(finish):
                self.reading.pop(finish.key, None)

    @property
    def is_proven(self) -> bool:
        found = self.history.isolation
        return found is not None and (found.verified or self.is_declared)

    @property
    def live(self) -> set[LaunchKey]:
        """The launches after which live Pods are named."""
        return {known.pod for known in self.history.attempts.values() if known.pod}

    def _count(self, entry: Entry) -> None:
        match entry:
            case IsolationResult():
                assert self.history.isolation is None
            case LaunchBegun(launch):
                assert self.may_begin
                assert self.is_proven
                assert launch not in self.begun
                self.begun.add(launch)
            case Produced(key):
                self.counts["Produced", key] += 1
                outages = self.history.attempts[key].provider_retries
                assert self.counts["Produced", key] == 1 + outages
                assert outages <= PROVIDER_RETRIES
            case Verified(key):
                self.counts["Verified", key] += 1
                assert self.counts["Verified", key] == 1
            case Finished(finish):
                self.counts["Finished", finish.key] += 1
                assert self.counts["Finished", finish.key] == 1
