"""Index of a run's Pods by what a pass has to know of them."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from securebench.run.api.field_types import PodRetention
from securebench.run.api.outcomes import Outcome
from securebench.run.decide.network.canary import PROBING
from securebench.run.observe.pods import PodView
from securebench.run.observe.waiting import has_begun, is_refused
from securebench.run.plan.keys import AttemptKey, LaunchKey
from securebench.run.state.attempts import AttemptHistory

RETAINED_OUTCOMES = frozenset({Outcome.INFRASTRUCTURE, Outcome.PROVIDER, Outcome.VERIFIER})
"""Outcomes whose Pods are kept with ``retention.pods: Failed``."""


class WaitingPods:
    """Pods whose main container has not started; finds the oldest without a scan."""

    def __init__(self) -> None:
        self._refused: dict[str, PodView] = {}
        self._starting: dict[str, PodView] = {}
        self._queue: list[tuple[float, str]] = []

    def upsert(self, view: PodView) -> None:
        """Add or replace a Pod."""
        if is_refused(view):
            self._starting.pop(view.name, None)
            self._refused[view.name] = view
            return
        self._refused.pop(view.name, None)
        if view.name not in self._starting:
            heapq.heappush(self._queue, (view.created_at, view.name))
        self._starting[view.name] = view

    def drop(self, name: str) -> None:
        """Remove a Pod that has started or is gone."""
        self._refused.pop(name, None)
        self._starting.pop(name, None)

    @property
    def refused(self) -> PodView | None:
        """The first, by name, of the Pods that the kubelet says cannot start; or None."""
        return self._refused[min(self._refused)] if self._refused else None

    @property
    def oldest(self) -> PodView | None:
        """Of the others the Pod that has waited longest, or None."""
        while self._queue and self._queue[0][1] not in self._starting:
            heapq.heappop(self._queue)
        return self._starting[self._queue[0][1]] if self._queue else None


@dataclass(slots=True)
class PodIndex:
    """The observed Pods of a run, classified.

    Attributes:
        unschedulable: Pods that no node accepts, by name.
        gated: Pods with scheduling gates, by name.
        probing: Canary and control Pods that are not being deleted, by name.
        working: Names of the Pods of live launches that have started or ended.
        waiting: The other Pods of live launches that have not started.
        to_delete: Pods whose launches have all ended and that no retention keeps, by name.
    """

    unschedulable: dict[str, PodView] = field(default_factory=dict)
    gated: dict[str, PodView] = field(default_factory=dict)
    probing: dict[str, PodView] = field(default_factory=dict)
    working: set[str] = field(default_factory=set)
    waiting: WaitingPods = field(default_factory=WaitingPods)
    to_delete: dict[str, PodView] = field(default_factory=dict)
    _launched: dict[str, PodView] = field(default_factory=dict)
    _by_attempt: dict[AttemptKey, set[str]] = field(default_factory=dict)

    def upsert(self, name: str, view: PodView | None) -> None:
        """Add or replace a Pod, or remove it if ``view`` is None; ``classify`` comes next."""
        self._remove(name)
        if view is None:
            self.waiting.drop(name)
            return
        if view.unschedulable:
            self.unschedulable[name] = view
        if view.gates:
            self.gated[name] = view
        if view.role in PROBING and view.deleting_since is None:
            self.probing[name] = view
        if view.launch is not None:
            self._launched[name] = view
            for launch in view.launches:
                self._by_attempt.setdefault(launch.attempt_key, set()).add(name)

    def names_of(self, key: AttemptKey) -> Collection[str]:
        """Return the names of the Pods of an attempt."""
        return self._by_attempt.get(key, ())

    def classify(
        self, name: str, attempts: Mapping[AttemptKey, AttemptHistory], keep: PodRetention
    ) -> None:
        """Determine whether a Pod works, waits or is to be deleted, by the journal's state."""
        self.working.discard(name)
        self.to_delete.pop(name, None)
        view = self._launched.get(name)
        if view is None:
            return
        known = [(attempts.get(launch.attempt_key), launch) for launch in view.launches]
        is_live = any(history is not None and history.pod == view.launch for history, _ in known)
        is_working = view.is_terminal or has_begun(view)
        if is_live and is_working:
            self.working.add(name)
        is_told = is_working or view.gates or view.unschedulable
        if is_live and not is_told and view.deleting_since is None:
            self.waiting.upsert(view)
        else:
            self.waiting.drop(name)
        if view.deleting_since is None and all(
            history is not None
            and history.live != launch
            and not _is_kept(keep, history, view, launch)
            for history, launch in known
        ):
            self.to_delete[name] = view

    def _remove(self, name: str) -> None:
        self.unschedulable.pop(name, None)
        self.gated.pop(name, None)
        self.working.discard(name)
        self.probing.pop(name, None)
        self.to_delete.pop(name, None)
        before = self._launched.pop(name, None)
        for launch in before.launches if before is not None else ():
            names = self._by_attempt[launch.attempt_key]
            names.discard(name)
            if not names:
                del self._by_attempt[launch.attempt_key]


def _is_kept(keep: PodRetention, history: AttemptHistory, view: PodView, launch: LaunchKey) -> bool:
    if not view.has_ended or keep is PodRetention.NONE:
        return False
    if keep is PodRetention.ALL:
        return True
    was_lost = history.last_lost is not None and history.last_lost.launch == launch
    return was_lost or (history.finish is not None and history.finish.outcome in RETAINED_OUTCOMES)
