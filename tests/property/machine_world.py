"""What the machine model knows of its run: the journal, folded by the model itself."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from securebench.run.decide.controls import Controls
from securebench.run.decide.decision_cache import DecisionCache
from securebench.run.decide.reconcile import ObservedState, RunDecision, reconcile
from securebench.run.plan.model import AttemptKey, LaunchKey
from securebench.run.state.entries import (
    Entry,
    Finished,
    IsolationResult,
    LaunchBegun,
    Produced,
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
    is_declared: bool = True

    def take(self, batch: tuple[Entry, ...]) -> None:
        for entry in batch:
            assert not isinstance(entry, RunBound) or self.history.bound is None
            self._count(entry)
            self.history.apply(entry)
        if any(isinstance(entry, LaunchBegun) for entry in batch):
            assert len(self.live) <= self.parallelism

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
