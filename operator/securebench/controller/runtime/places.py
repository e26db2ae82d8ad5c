"""What the runs of one operator have of what it bounds, and who is told when there is room.

Only a cache: after a restart each run says again what it has when it is taken up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from securebench.controller.settings.parts import Creation
from securebench.core.clock import Clock
from securebench.run.decide.room import Headroom, PodUse
from securebench.run.decide.shares import Bound, Holding, grants


@dataclass(slots=True)
class _Party:
    """One run.

    Attributes:
        nodes: What decides to which nodes its Pods go.
        wake: Called when there may be room for it.
        served: The turn in which it was served last, or came.
        usage: What it has.
        held_since: Since when something of it is held back, seconds since the epoch, or None.
    """

    nodes: str
    wake: Callable[[], None]
    served: int
    usage: PodUse = field(default_factory=PodUse)
    held_since: float | None = None


class Places:
    """The bounds of one operator that its runs share.

    Args:
        creation: The bounds.
        clock: Says since when a run is held back.
    """

    def __init__(self, creation: Creation, clock: Clock) -> None:
        self._max_pods = creation.max_pods
        self._max_starting = creation.max_starting
        self._max_starting_per_run = creation.max_starting_per_run
        self._first_pulls = creation.first_pulls
        self._clock = clock
        self._parties: dict[str, _Party] = {}
        self._started: dict[str, set[str]] = defaultdict(set)
        self._turn = 0

    @property
    def held(self) -> int:
        """How many runs have Pods that are held back."""
        return sum(1 for party in self._parties.values() if party.usage.words)

    def enter(self, uid: str, nodes: str, wake: Callable[[], None]) -> None:
        """Take a run in, or take in how it is woken from now on.

        Args:
            uid: The run.
            nodes: What decides to which nodes its Pods go.
            wake: Called when there may be room for it.
        """
        known = self._parties.get(uid)
        if known is not None:
            known.nodes, known.wake = nodes, wake
        else:
            self._turn += 1
            self._parties[uid] = _Party(nodes, wake, self._turn)

    def room(self, uid: str) -> Headroom:
        """Return what the others leave to a run that was taken in, until one of them acts."""
        mine = self._parties[uid]
        others = {each: party for each, party in self._parties.items() if each != uid}
        pods = {each: _pods(party) for each, party in others.items()}
        starting = {each: _starting(party) for each, party in others.items()}
        return Headroom(
            pods=_bound(self._max_pods, uid, pods, mine),
            starting=_bound(self._max_starting, uid, starting, mine),
            own_starting=self._max_starting_per_run,
            first_pulls=self._first_pulls,
            started=self._started[mine.nodes],
            pulling=_pulling(others.values(), mine.nodes),
            held_since=mine.held_since,
        )

    def saw_started(self, uid: str, images: Iterable[str]) -> None:
        """Take in of which images Pods of a run have started."""
        nodes = self._parties[uid].nodes
        known = self._started[nodes]
        news = {*images} - known
        known |= news
        if news:
            self._wake(party for party in self._parties.values() if party.usage.is_pull_held)

    def report(self, uid: str, usage: PodUse) -> None:
        """Take in what a run has after a decision, and wake those for whom there is room now."""
        party = self._parties[uid]
        if usage.begun:
            self._turn += 1
            party.served = self._turn
        is_held = bool(usage.words)
        party.held_since = (party.held_since or self._clock.now()) if is_held else None
        before, party.usage = party.usage, usage._replace(begun=0)
        if before != party.usage:
            self._wake_others(uid, is_pull_news=before.pulling != usage.pulling)

    def pause(self, uid: str) -> None:
        """Take in that a run begins nothing for now; it keeps what it has."""
        party = self._parties.get(uid)
        if party is not None:
            self.report(uid, party.usage._replace(wanted=0, words="", is_pull_held=False))

    def leave(self, uid: str) -> None:
        """Forget a run of which nothing is under way."""
        if self._parties.pop(uid, None) is not None:
            self._wake_others(uid, is_pull_news=True)

    def _wake_others(self, uid: str, *, is_pull_news: bool) -> None:
        """Wake the other runs that may begin something now."""
        given = [
            grants(limit, {each: share(party) for each, party in self._parties.items()})
            for limit, share in ((self._max_pods, _pods), (self._max_starting, _starting))
            if limit is not None
        ]
        self._wake(
            party
            for each, party in self._parties.items()
            if each != uid
            and (
                (is_pull_news and party.usage.is_pull_held)
                or (party.usage.wanted and all(each in granted for granted in given))
            )
        )

    def _wake(self, parties: Iterable[_Party]) -> None:
        for party in parties:
            party.wake()


def _bound(
    limit: int | None, uid: str, others: Mapping[str, Holding], mine: _Party
) -> Bound | None:
    return Bound(limit, uid, others, mine.served) if limit is not None else None


def _pods(party: _Party) -> Holding:
    return Holding(party.usage.pods, party.usage.wanted, party.served)


def _starting(party: _Party) -> Holding:
    return Holding(party.usage.starting, party.usage.wanted, party.served)


def _pulling(parties: Iterable[_Party], nodes: str) -> Mapping[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for party in parties:
        if party.nodes == nodes:
            for image, count in party.usage.pulling:
                counts[image] += count
    return counts
