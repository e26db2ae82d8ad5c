"""What was decided about a run's attempts and still holds, so that a pass looks only at news."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from securebench.run.decide.batches import Sealed
from securebench.run.decide.machine import Begin, Capture, Step, Wait
from securebench.run.decide.pods_shown import PodsShown
from securebench.run.decide.wait_reason import LaunchesUnderWay
from securebench.run.plan.model import AttemptKey, LaunchKey, Role
from securebench.run.state.attempts import Finish, Lost

MOST_REFUSED = 200
"""Launches of one role that are passed over in a pass, because their image has not started."""


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
    """A create without a definite answer is repeated, for a whole batch if it shares its Pod."""

    launch: LaunchKey


class Begins:
    """Launches that may begin: verifiers before harnesses, each in pack order."""

    def __init__(self) -> None:
        self._wanted: dict[AttemptKey, LaunchKey] = {}
        self._queues: dict[Role, list[LaunchKey]] = {Role.VERIFIER: [], Role.HARNESS: []}
        self._counts: dict[Role, int] = dict.fromkeys(self._queues, 0)

    def put(self, launch: LaunchKey) -> None:
        """Take a launch in, in place of another one of its attempt."""
        if self._wanted.get(launch.attempt_key) != launch:
            self.drop(launch.attempt_key)
            self._wanted[launch.attempt_key] = launch
            self._counts[launch.role] += 1
            heapq.heappush(self._queues[launch.role], launch)

    def drop(self, key: AttemptKey) -> None:
        """Forget the launch of an attempt, if there is one."""
        known = self._wanted.pop(key, None)
        if known is not None:
            self._counts[known.role] -= 1

    def count(self, roles: Collection[Role]) -> int:
        """Return how many launches of some roles there are."""
        return sum(self._counts[role] for role in roles)

    def first(self, role: Role, count: int, allows: Callable[[LaunchKey], bool]) -> list[LaunchKey]:
        """Return the first so many launches of a role that may begin; they stay.

        Args:
            role: Their role.
            count: How many at most.
            allows: Asked of one launch after the other, whether it may begin too. Only so many of
                the first are asked as ``MOST_REFUSED`` allows, whatever a pack holds.
        """
        queue = self._queues[role]
        seen: dict[LaunchKey, bool] = {}
        begun = 0
        while queue and begun < count and len(seen) - begun < MOST_REFUSED:
            launch = heapq.heappop(queue)
            if self._wanted.get(launch.attempt_key) == launch and launch not in seen:
                seen[launch] = allows(launch)
                begun += seen[launch]
        for launch in seen:
            heapq.heappush(queue, launch)
        return [launch for launch, is_allowed in seen.items() if is_allowed]


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


class LivePods:
    """Pods of live launches, which hold the places of a run; the launches of a batch share one.

    Attributes:
        starting: Images of those that have not begun, by name.
    """

    def __init__(self) -> None:
        self._attempts: dict[str, set[AttemptKey]] = {}
        self._name: dict[AttemptKey, str] = {}
        self.starting: dict[str, str] = {}

    def __len__(self) -> int:
        """Return the number of Pods."""
        return len(self._attempts)

    def put(self, key: AttemptKey, name: str, image: str) -> None:
        """Take in which Pod the live launch of an attempt has, and of which image."""
        self._name[key] = name
        self._attempts.setdefault(name, set()).add(key)
        self.starting[name] = image

    def begun(self, name: str) -> None:
        """Take in that a Pod starts no longer."""
        self.starting.pop(name, None)

    def drop(self, key: AttemptKey) -> None:
        """Forget the Pod of an attempt, if it has one."""
        name = self._name.pop(key, None)
        if name is None:
            return
        attempts = self._attempts[name]
        attempts.discard(key)
        if not attempts:
            del self._attempts[name]
            self.starting.pop(name, None)

    def of(self, name: str) -> Collection[AttemptKey]:
        """Return the attempts whose live launches a Pod has."""
        return self._attempts.get(name, ())


@dataclass(slots=True)
class Standing:
    """The steps of a run's attempts that still hold.

    An attempt is looked at again when its history or the Pod of its live launch has changed, when a
    time that it waits for has come, and while its launch has no Pod. Forgetting everything costs a
    pass over the whole run and changes no decision.

    Attributes:
        basis: What every step rests on besides its attempt; None before the first pass.
        looked_at: When the last pass was, seconds since the epoch.
        live: Pods of live launches that go on, shown or not.
        unseen: Attempts with such a launch whose Pod is not shown.
        company: Attempts whose candidate may still join a batch.
        captures: Ended launches to read.
        lost: Launches to journal as lost.
        finishes: Attempts to end.
        repeats: Launches after which Pods are named whose create is repeated.
        sealed: Launches that may begin and share a Pod.
        begins: Launches that may begin, each with a Pod of its own.
        waits: When to look again.
        again: Attempts whose next launch waits for its time after a loss.
        pods: The Pods.
    """

    basis: object = None
    looked_at: float = 0.0
    live: LivePods = field(default_factory=LivePods)
    unseen: set[AttemptKey] = field(default_factory=set)
    company: set[AttemptKey] = field(default_factory=set)
    captures: dict[AttemptKey, Capture] = field(default_factory=dict)
    lost: dict[AttemptKey, Lost] = field(default_factory=dict)
    finishes: dict[AttemptKey, Finish] = field(default_factory=dict)
    repeats: dict[AttemptKey, LaunchKey] = field(default_factory=dict)
    sealed: dict[AttemptKey, Sealed] = field(default_factory=dict)
    begins: Begins = field(default_factory=Begins)
    waits: Waits = field(default_factory=Waits)
    again: set[AttemptKey] = field(default_factory=set)
    pods: PodsShown = field(default_factory=PodsShown)

    @property
    def launches(self) -> LaunchesUnderWay:
        """What is under way, for what the run says of itself."""
        waiting = self.pods.waiting
        is_working = bool(self.pods.working) and not self.pods.stuck
        return LaunchesUnderWay(is_working, waiting.refused, waiting.oldest, self.again)

    def reset(self, basis: object) -> None:
        """Forget everything; what is put from now on rests on this."""
        self.basis = basis
        self.live, self.unseen, self.company, self.again = LivePods(), set(), set(), set()
        self.captures, self.lost, self.finishes = {}, {}, {}
        self.repeats, self.sealed = {}, {}
        self.begins, self.waits, self.pods = Begins(), Waits(), PodsShown()

    def drop(self, key: AttemptKey) -> None:
        """Forget what was decided about an attempt."""
        self.live.drop(key)
        self.unseen.discard(key)
        self.company.discard(key)
        self.again.discard(key)
        for steps in (self.captures, self.lost, self.finishes, self.repeats, self.sealed):
            steps.pop(key, None)
        self.begins.drop(key)
        self.waits.drop(key)

    def put(self, key: AttemptKey, step: Step | Sealed | Repeat) -> None:
        """Take in what was decided about an attempt that was dropped before."""
        match step:
            case Sealed():
                self.sealed[key] = step
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
