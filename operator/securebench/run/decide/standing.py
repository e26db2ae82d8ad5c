"""What was decided about a run's attempts and still holds, so that a pass looks only at news."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from securebench.run.decide.canary import PROBING
from securebench.run.decide.machine import Begin, Capture, Step, Wait
from securebench.run.observe.pods import PodView
from securebench.run.plan.model import AttemptKey, LaunchKey, Role
from securebench.run.state.attempts import Finish, Lost


@dataclass(frozen=True, slots=True)
class Changed:
    """What happened since the last pass.

    Attributes:
        attempts: Attempts whose history was replaced.
        pods: Names of Pods that came, changed or went.
    """

    attempts: Collection[AttemptKey]
    pods: Collection[str]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A create without a definite answer is repeated."""

    launch: LaunchKey


class Begins:
    """Launches that may begin: verifiers before harnesses, each in pack order."""

    def __init__(self) -> None:
        self._wanted: dict[AttemptKey, LaunchKey] = {}
        self._queues: dict[Role, list[LaunchKey]] = {Role.VERIFIER: [], Role.HARNESS: []}

    def put(self, launch: LaunchKey) -> None:
        """Take a launch in, in place of another one of its attempt."""
        if self._wanted.get(launch.attempt_key) != launch:
            self._wanted[launch.attempt_key] = launch
            heapq.heappush(self._queues[launch.role], launch)

    def drop(self, key: AttemptKey) -> None:
        """Forget the launch of an attempt, if there is one."""
        self._wanted.pop(key, None)

    def first(self, count: int, roles: Collection[Role]) -> list[LaunchKey]:
        """Return the first so many launches of some roles; they stay."""
        found: list[LaunchKey] = []
        for role, queue in self._queues.items():
            chosen: dict[LaunchKey, None] = {}
            while queue and role in roles and len(found) + len(chosen) < count:
                launch = heapq.heappop(queue)
                if self._wanted.get(launch.attempt_key) == launch:
                    chosen[launch] = None
            for launch in chosen:
                heapq.heappush(queue, launch)
            found += chosen
        return found


class Waits:
    """Times at which attempts have to be looked at, seconds since the epoch."""

    def __init__(self) -> None:
        self._until: dict[AttemptKey, float] = {}
        self._queue: list[tuple[float, AttemptKey]] = []

    def put(self, key: AttemptKey, until: float) -> None:
        """Look at an attempt then and not before."""
        if self._until.get(key) != until:
            self._until[key] = until
            heapq.heappush(self._queue, (until, key))

    def drop(self, key: AttemptKey) -> None:
        """Forget what an attempt waits for."""
        self._until.pop(key, None)

    def due(self, now: float) -> Iterator[AttemptKey]:
        """Yield the attempts whose time has come; they wait no longer."""
        while self._queue and self._queue[0][0] <= now:
            until, key = heapq.heappop(self._queue)
            if self._until.get(key) == until:
                del self._until[key]
                yield key

    def next(self) -> float | None:
        """Return the first of the times, or None."""
        while self._queue and self._until.get(self._queue[0][1]) != self._queue[0][0]:
            heapq.heappop(self._queue)
        return self._queue[0][0] if self._queue else None


@dataclass(slots=True)
class PodsShown:
    """A run's Pods, sorted by what every pass asks of them.

    Attributes:
        stuck: Those that no node takes, by name.
        probing: Canary and control Pods that nobody deletes yet.
        working: Those of live launches that have begun or ended.
        doomed: Those of launches that are over and not kept.
    """

    stuck: dict[str, PodView] = field(default_factory=dict)
    probing: dict[str, PodView] = field(default_factory=dict)
    working: dict[str, PodView] = field(default_factory=dict)
    doomed: dict[str, PodView] = field(default_factory=dict)
    _by_attempt: dict[AttemptKey, dict[str, PodView]] = field(default_factory=dict)
    _attempt: dict[str, AttemptKey] = field(default_factory=dict)

    def take(self, name: str, view: PodView | None) -> AttemptKey | None:
        """Take in how a Pod is now, None when it is gone; return its attempt, or None."""
        for known in (self.stuck, self.probing, self.working, self.doomed):
            known.pop(name, None)
        key = self._attempt.pop(name, None)
        if key is not None:
            self._remove(key, name)
        if view is None:
            return key
        if view.unschedulable:
            self.stuck[name] = view
        if view.role in PROBING and view.deleting_since is None:
            self.probing[name] = view
        if view.launch is None:
            return key
        self._attempt[name] = view.launch.attempt_key
        self._by_attempt.setdefault(view.launch.attempt_key, {})[name] = view
        return view.launch.attempt_key

    def attempts(self) -> Iterable[AttemptKey]:
        """Return the attempts that have Pods."""
        return self._by_attempt.keys()

    def of(self, key: AttemptKey) -> Mapping[str, PodView]:
        """Return the Pods of an attempt by name."""
        return self._by_attempt.get(key, {})

    def _remove(self, key: AttemptKey, name: str) -> None:
        pods = self._by_attempt[key]
        del pods[name]
        if not pods:
            del self._by_attempt[key]


@dataclass(slots=True)
class Standing:
    """The steps of a run's attempts that still hold.

    An attempt is looked at again when its history or one of its Pods has changed, when a time that
    it waits for has come, and while its launch has no Pod. Forgetting everything costs a pass over
    the whole run and changes no decision.

    Attributes:
        basis: What every step rests on besides its attempt; None before the first pass.
        active: Attempts with a live launch that goes on.
        unseen: Those of them whose Pod is not shown.
        captures: Ended launches to read.
        lost: Launches to journal as lost.
        finishes: Attempts to end.
        repeats: Launches whose create is repeated.
        begins: Launches that may begin.
        waits: When to look again.
        pods: The Pods.
    """

    basis: object = None
    active: set[AttemptKey] = field(default_factory=set)
    unseen: set[AttemptKey] = field(default_factory=set)
    captures: dict[AttemptKey, Capture] = field(default_factory=dict)
    lost: dict[AttemptKey, Lost] = field(default_factory=dict)
    finishes: dict[AttemptKey, Finish] = field(default_factory=dict)
    repeats: dict[AttemptKey, LaunchKey] = field(default_factory=dict)
    begins: Begins = field(default_factory=Begins)
    waits: Waits = field(default_factory=Waits)
    pods: PodsShown = field(default_factory=PodsShown)

    def reset(self, basis: object) -> None:
        """Forget everything; what is put from now on rests on this."""
        self.basis = basis
        self.active, self.unseen = set(), set()
        self.captures, self.lost, self.finishes, self.repeats = {}, {}, {}, {}
        self.begins, self.waits, self.pods = Begins(), Waits(), PodsShown()

    def drop(self, key: AttemptKey) -> None:
        """Forget what was decided about an attempt."""
        self.active.discard(key)
        self.unseen.discard(key)
        for steps in (self.captures, self.lost, self.finishes, self.repeats):
            steps.pop(key, None)
        self.begins.drop(key)
        self.waits.drop(key)

    def put(self, key: AttemptKey, step: Step | Repeat) -> None:
        """Take in what was decided about an attempt that was dropped before."""
        match step:
            case Begin(launch):
                self.begins.put(launch)
            case Capture():
                self.captures[key] = step
            case Lost():
                self.lost[key] = step
            case Finish():
                self.finishes[key] = step
            case Repeat(launch):
                self.repeats[key] = launch
            case Wait(until) if until is not None:
                self.waits.put(key, until)
