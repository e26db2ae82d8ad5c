"""Shares the operator's limits among its runs: Pods, and the rate of creates.

``SharedCapacity`` counts Pods, and wakes runs when capacity becomes free. It is only a cache: after
a restart each run reports its use again in its first pass. ``CreationRate`` gives the runs turns to
create one Pod each (``TurnQueue``).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from securebench.clock import Clock, TokenBucket
from securebench.controller.settings import Creation
from securebench.run.decide.capacity import Bound, CapacityUse, Headroom, Holding, grants


@dataclass(slots=True)
class _RunUse:
    """The use of one run.

    Attributes:
        nodes: Key of the nodes that its Pods may run on.
        wake: Called when it may be able to start Pods.
        served: The turn in which it last started Pods, or was registered.
        usage: Its latest report.
        held_since: Since when it is throttled, seconds since the epoch, or None.
    """

    nodes: str
    wake: Callable[[], None]
    served: int
    usage: CapacityUse = field(default_factory=CapacityUse)
    held_since: float | None = None


class SharedCapacity:
    """The limits of one operator that its runs share.

    Args:
        clock: For the time since when a run is throttled.
    """

    def __init__(self, creation: Creation, clock: Clock) -> None:
        self._max_pods = creation.max_pods
        self._max_starting = creation.max_starting
        self._max_starting_per_run = creation.max_starting_per_run
        self._first_pulls = creation.first_pulls
        self._clock = clock
        self._runs: dict[str, _RunUse] = {}
        self._started: dict[str, set[str]] = defaultdict(set)
        self._turn = 0

    @property
    def throttled_runs(self) -> int:
        """Number of runs that a limit keeps from starting Pods."""
        return sum(1 for run in self._runs.values() if run.usage.message)

    def register(self, uid: str, nodes: str, wake: Callable[[], None]) -> None:
        """Register a run, or replace how it is woken.

        Args:
            uid: The run.
            nodes: Key of the nodes that its Pods may run on.
            wake: Called when it may be able to start Pods.
        """
        known = self._runs.get(uid)
        if known is not None:
            known.nodes, known.wake = nodes, wake
        else:
            self._turn += 1
            self._runs[uid] = _RunUse(nodes, wake, self._turn)

    def headroom(self, uid: str) -> Headroom:
        """Return what the other runs leave to a registered run at the moment."""
        own = self._runs[uid]
        others = {each: run for each, run in self._runs.items() if each != uid}
        pods = {each: _pods(run) for each, run in others.items()}
        starting = {each: _starting(run) for each, run in others.items()}
        return Headroom(
            pods=_bound(self._max_pods, uid, pods, own),
            starting=_bound(self._max_starting, uid, starting, own),
            own_starting=self._max_starting_per_run,
            first_pulls=self._first_pulls,
            started=self._started[own.nodes],
            pulling=_pulling(others.values(), own.nodes),
            held_since=own.held_since,
        )

    def mark_started(self, uid: str, images: Iterable[str]) -> None:
        """Note images of a run's Pods that have started: nodes have pulled them."""
        nodes = self._runs[uid].nodes
        known = self._started[nodes]
        news = {*images} - known
        known |= news
        if news:
            self._wake(run for run in self._runs.values() if run.usage.is_pull_held)

    def report(self, uid: str, usage: CapacityUse) -> None:
        """Record the use of a run after a decision, and wake the runs that may start Pods now."""
        run = self._runs[uid]
        if usage.begun:
            self._turn += 1
            run.served = self._turn
        is_held = bool(usage.message)
        run.held_since = (run.held_since or self._clock.now()) if is_held else None
        before, run.usage = run.usage, usage._replace(begun=0)
        if before != run.usage:
            self._wake_others(uid, is_pull_news=before.pulling != usage.pulling)

    def clear_demand(self, uid: str) -> None:
        """Note that a run starts nothing for now; its Pods still count."""
        run = self._runs.get(uid)
        if run is not None:
            self.report(uid, run.usage._replace(wanted=0, message="", is_pull_held=False))

    def unregister(self, uid: str) -> None:
        """Remove a run that has nothing under way."""
        if self._runs.pop(uid, None) is not None:
            self._wake_others(uid, is_pull_news=True)

    def _wake_others(self, uid: str, *, is_pull_news: bool) -> None:
        """Wake the other runs that may start Pods now."""
        given = [
            grants(limit, {each: share(run) for each, run in self._runs.items()})
            for limit, share in ((self._max_pods, _pods), (self._max_starting, _starting))
            if limit is not None
        ]
        self._wake(
            run
            for each, run in self._runs.items()
            if each != uid
            and (
                (is_pull_news and run.usage.is_pull_held)
                or (run.usage.wanted and all(each in granted for granted in given))
            )
        )

    def _wake(self, runs: Iterable[_RunUse]) -> None:
        for run in runs:
            run.wake()


def _bound(
    limit: int | None, uid: str, others: Mapping[str, Holding], own: _RunUse
) -> Bound | None:
    return Bound(limit, uid, others, own.served) if limit is not None else None


def _pods(run: _RunUse) -> Holding:
    return Holding(run.usage.pods, run.usage.wanted, run.served)


def _starting(run: _RunUse) -> Holding:
    return Holding(run.usage.starting, run.usage.wanted, run.served)


def _pulling(runs: Iterable[_RunUse], nodes: str) -> Mapping[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for run in runs:
        if run.nodes == nodes:
            for image, count in run.usage.pulling:
                counts[image] += count
    return counts


MIN_WAIT_SECONDS = 0.001
"""Shortest delay of a timer, so that rounding cannot make it spin."""


class CreationRate:
    """Hands out one token per Pod, to one run after the other."""

    def __init__(self, bucket: TokenBucket) -> None:
        self._bucket = bucket
        self._waiting: TurnQueue[asyncio.Future[None]] = TurnQueue()
        self._next: asyncio.TimerHandle | None = None

    async def acquire(self, run_uid: str) -> None:
        """Return when a run may create one more Pod."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.put(run_uid, turn)
        self._grant_tokens()
        try:
            await turn
        finally:
            self._waiting.drop(run_uid, turn)

    def _grant_tokens(self) -> None:
        """Hand out the available tokens, and set a timer for the next one."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
        while self._waiting:
            seconds = self._bucket.take()
            if seconds > 0:
                delay = max(seconds, MIN_WAIT_SECONDS)
                self._next = asyncio.get_running_loop().call_later(delay, self._grant_tokens)
                return
            self._wake_next()

    def _wake_next(self) -> None:
        while self._waiting:
            turn = self._waiting.take()
            if not turn.done():
                turn.set_result(None)
                return


T = TypeVar("T")


class TurnQueue(Generic[T]):
    """Serves one item of each party after the other; those of one party in their order.

    A party that comes anew is served after all that are there, once each.
    """

    def __init__(self) -> None:
        self._items: dict[str, deque[T]] = {}

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._items)

    def put(self, party: str, item: T) -> None:
        """Take an item in, as the last one of its party."""
        self._items.setdefault(party, deque()).append(item)

    def take(self) -> T:
        """Take the next item out; the party is served again after all others.

        Raises:
            IndexError: Nothing waits.
        """
        if not self._items:
            raise IndexError("nothing waits")
        party = next(iter(self._items))
        items = self._items.pop(party)
        item = items.popleft()
        if items:
            self._items[party] = items
        return item

    def drop(self, party: str, item: T) -> None:
        """Take an item out that needs no turn any more; it may be gone already."""
        items = self._items.get(party, deque())
        if item in items:
            items.remove(item)
            if not items:
                del self._items[party]
