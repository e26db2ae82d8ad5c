"""Cached decisions about a run's attempts, so that a pass decides only about what has changed."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from securebench.run.decide.attempt.batches import BatchableLaunch
from securebench.run.decide.attempt.machine import Begin, Capture, Step, Wait
from securebench.run.decide.attempt.pod_index import PodIndex
from securebench.run.observe.pods import PodView
from securebench.run.plan.keys import AttemptKey, LaunchKey, Role
from securebench.run.state.attempts import Finish, Lost

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
