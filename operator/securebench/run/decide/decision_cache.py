"""Cached decisions about a run's attempts, so that a pass decides only about what has changed.

The cache holds the latest decision of each attempt, the launches that are ready to start, the times
at which an attempt is decided again, and an index of the run's Pods.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field

from securebench.run.api.field_types import Outcome, PodRetention
from securebench.run.decide.attempt import BatchableLaunch, Begin, Capture, Step, Wait
from securebench.run.decide.canary import PROBING
from securebench.run.observe.pods import PodView
from securebench.run.observe.waiting import has_begun, is_refused
from securebench.run.plan.model import AttemptKey, LaunchKey, Role
from securebench.run.state.attempts import AttemptHistory, Finish, Lost

MAX_REFUSED_LAUNCHES = 200
"""Launches of one role that a pass skips at most, because of the limit on first pulls."""


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """What has changed since the last pass.

    Attributes:
        attempts: Attempts with a new journal entry.
        pods: Names of Pods that were added, modified or deleted.
    """

    attempts: Collection[AttemptKey]
    pods: Collection[str]


@dataclass(frozen=True, slots=True)
class RepeatCreate:
    """The create of a Pod has no definite answer and is repeated; a batch has one Pod."""

    launch: LaunchKey


@dataclass(frozen=True, slots=True)
class LaunchesUnderWay:
    """The launches of a run that are under way.

    Attributes:
        is_working: Whether one of them works.
        unschedulable: All Pods of the run that no node accepts.
        gated: All Pods of the run with scheduling gates.
        refused: A Pod that cannot begin, by what the kubelet says of it; or None.
        waiting: Of the other Pods the one that has not begun for longest, or None.
        again: Attempts whose next launch waits for its time after a loss.
    """

    is_working: bool = False
    unschedulable: Collection[PodView] = ()
    gated: Collection[PodView] = ()
    refused: PodView | None = None
    waiting: PodView | None = None
    again: Collection[AttemptKey] = ()


class LaunchQueue:
    """Launches that are ready to start, by role and in pack order.

    Attributes:
        holds_new: Whether harnesses of attempts that have had no launch stay queued.
    """

    def __init__(self) -> None:
        self.holds_new = False
        self._queued: dict[AttemptKey, LaunchKey] = {}
        self._queues: dict[Role, list[LaunchKey]] = {Role.VERIFIER: [], Role.HARNESS: []}
        self._counts: dict[Role, int] = dict.fromkeys(self._queues, 0)

    def put(self, launch: LaunchKey) -> None:
        """Queue a launch; it replaces another one of its attempt."""
        if self._queued.get(launch.attempt_key) != launch:
            self.drop(launch.attempt_key)
            self._queued[launch.attempt_key] = launch
            self._counts[launch.role] += 1
            heapq.heappush(self._queues[launch.role], launch)

    def drop(self, key: AttemptKey) -> None:
        """Remove the launch of an attempt, if there is one."""
        known = self._queued.pop(key, None)
        if known is not None:
            self._counts[known.role] -= 1

    def count(self, roles: Collection[Role]) -> int:
        """Return the number of queued launches of some roles."""
        return sum(self._counts[role] for role in roles)

    def first(self, role: Role, count: int, allows: Callable[[LaunchKey], bool]) -> list[LaunchKey]:
        """Return the first launches of a role that ``allows`` admits; they stay queued.

        Args:
            role: Their role.
            count: Maximum number of launches to return.
            allows: Called once per launch, in order. After ``MAX_REFUSED_LAUNCHES`` refusals the
                search stops, so that its cost does not grow with the pack.
        """
        queue = self._queues[role]
        checked: dict[LaunchKey, bool] = {}
        allowed = held = 0
        while queue and allowed < count and len(checked) - allowed - held < MAX_REFUSED_LAUNCHES:
            launch = heapq.heappop(queue)
            if self._queued.get(launch.attempt_key) == launch and launch not in checked:
                is_held = self.holds_new and launch.role is Role.HARNESS and launch.launch == 1
                checked[launch] = not is_held and allows(launch)
                allowed += checked[launch]
                held += is_held
        for launch in checked:
            heapq.heappush(queue, launch)
        return [launch for launch, is_allowed in checked.items() if is_allowed]


class WakeTimes:
    """When attempts have to be decided again without an event, seconds since the epoch."""

    def __init__(self) -> None:
        self._until: dict[AttemptKey, float] = {}
        self._queue: list[tuple[float, AttemptKey]] = []

    def put(self, key: AttemptKey, until: float) -> None:
        """Set the time of an attempt; it replaces an earlier one."""
        if self._until.get(key) != until:
            self._until[key] = until
            heapq.heappush(self._queue, (until, key))

    def drop(self, key: AttemptKey) -> None:
        """Remove the time of an attempt."""
        self._until.pop(key, None)

    def due(self, now: float) -> Iterator[AttemptKey]:
        """Remove and yield the attempts whose time has come."""
        while self._queue and self._queue[0][0] <= now:
            until, key = heapq.heappop(self._queue)
            if self._until.get(key) == until:
                del self._until[key]
                yield key

    def next(self) -> float | None:
        """Return the earliest time, or None."""
        while self._queue and self._until.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None


class LaunchPods:
    """Pods of live launches, which count towards the run's parallelism; a batch shares one Pod.

    Attributes:
        starting: Images of the Pods whose main container has not started, by Pod name.
    """

    def __init__(self) -> None:
        self._attempts: dict[str, set[AttemptKey]] = {}
        self._name: dict[AttemptKey, str] = {}
        self.starting: dict[str, str] = {}

    def __len__(self) -> int:
        """Return the number of Pods."""
        return len(self._attempts)

    def put(self, key: AttemptKey, name: str, image: str) -> None:
        """Add the Pod of an attempt's live launch, with the image of its main container."""
        self._name[key] = name
        self._attempts.setdefault(name, set()).add(key)
        self.starting[name] = image

    def mark_started(self, name: str) -> None:
        """Note that the main container of a Pod has started."""
        self.starting.pop(name, None)

    def drop(self, key: AttemptKey) -> None:
        """Remove the Pod of an attempt, if it has one."""
        name = self._name.pop(key, None)
        if name is None:
            return
        attempts = self._attempts[name]
        attempts.discard(key)
        if not attempts:
            del self._attempts[name]
            self.starting.pop(name, None)

    @property
    def started(self) -> Iterator[str]:
        """Names of the Pods whose main container has started."""
        return (name for name in self._attempts if name not in self.starting)

    def attempts_of(self, name: str) -> Collection[AttemptKey]:
        """Return the attempts whose live launches run in a Pod."""
        return self._attempts.get(name, ())


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


@dataclass(slots=True)
class DecisionCache:
    """The latest decision about each attempt of a run, for as long as it is valid.

    A decision is invalid once the attempt's history or the Pod of its live launch changes, once its
    wake time has come, and in every pass while its launch has no Pod or waits for a list. Dropping
    the cache costs a pass over the whole run and changes no decision.

    Attributes:
        basis: What all decisions depend on besides their attempts; None before the first pass.
        decided_at: Time of the last pass, seconds since the epoch.
        live: Pods of live launches, observed or not.
        without_pod: Attempts with a live launch whose Pod is not observed.
        unconfirmed: Attempts whose launch is given up if a list shows its Pod as it was seen last.
        batch_candidates: Attempts whose launch may still join a batch.
        captures: Ended launches to read.
        lost: Launches to journal as lost.
        finishes: Attempts to end.
        repeats: Launches whose Pod's create is repeated; of a batch, its first.
        batchable: Launches that are ready to start and share a Pod.
        startable: Launches that are ready to start, each with a Pod of its own.
        wake_times: When attempts have to be decided again.
        backing_off: Attempts whose next launch waits after a loss.
        pods: The observed Pods.
    """

    basis: object = None
    decided_at: float = 0.0
    live: LaunchPods = field(default_factory=LaunchPods)
    without_pod: set[AttemptKey] = field(default_factory=set)
    unconfirmed: set[AttemptKey] = field(default_factory=set)
    batch_candidates: set[AttemptKey] = field(default_factory=set)
    captures: dict[AttemptKey, Capture] = field(default_factory=dict)
    lost: dict[AttemptKey, Lost] = field(default_factory=dict)
    finishes: dict[AttemptKey, Finish] = field(default_factory=dict)
    repeats: dict[AttemptKey, LaunchKey] = field(default_factory=dict)
    batchable: dict[AttemptKey, BatchableLaunch] = field(default_factory=dict)
    startable: LaunchQueue = field(default_factory=LaunchQueue)
    wake_times: WakeTimes = field(default_factory=WakeTimes)
    backing_off: set[AttemptKey] = field(default_factory=set)
    pods: PodIndex = field(default_factory=PodIndex)

    @property
    def launches(self) -> LaunchesUnderWay:
        """The launches that are under way, for the run's wait reason."""
        pods = self.pods
        return LaunchesUnderWay(
            is_working=bool(pods.working),
            unschedulable=pods.unschedulable.values(),
            gated=pods.gated.values(),
            refused=pods.waiting.refused,
            waiting=pods.waiting.oldest,
            again=self.backing_off,
        )

    def reset(self, basis: object) -> None:
        """Drop everything.

        Args:
            basis: What the decisions that are stored from now on depend on.
        """
        self.basis = basis
        self.live, self.pods = LaunchPods(), PodIndex()
        self.without_pod, self.unconfirmed = set(), set()
        self.batch_candidates, self.backing_off = set(), set()
        self.captures, self.lost, self.finishes = {}, {}, {}
        self.repeats, self.batchable = {}, {}
        self.startable, self.wake_times = LaunchQueue(), WakeTimes()

    def invalidate(self, key: AttemptKey) -> None:
        """Drop the decision about an attempt."""
        self.live.drop(key)
        self.without_pod.discard(key)
        self.unconfirmed.discard(key)
        self.batch_candidates.discard(key)
        self.backing_off.discard(key)
        for steps in (self.captures, self.lost, self.finishes, self.repeats, self.batchable):
            steps.pop(key, None)
        self.startable.drop(key)
        self.wake_times.drop(key)

    def store(self, key: AttemptKey, step: Step | BatchableLaunch | RepeatCreate) -> None:
        """Store the decision about an attempt that was invalidated before."""
        match step:
            case BatchableLaunch():
                self.batchable[key] = step
            case Begin(launch):
                self.startable.put(launch)
            case Capture():
                self.captures[key] = step
            case Lost():
                self.lost[key] = step
            case Finish():
                self.finishes[key] = step
            case RepeatCreate(launch):
                self.repeats[key] = launch
            case Wait(until) if until is not None:
                self.wake_times.put(key, until)
