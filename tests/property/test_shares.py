"""Runs share a bound in turn: it is never exceeded, nobody starves, nothing waits needlessly."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from securebench.controller.capacity import TurnQueue
from securebench.run.decide.capacity import Bound, Holding, grants

COUNTS = st.integers(0, 12)
HOLDINGS = st.dictionaries(
    st.sampled_from("abcdef"), st.builds(Holding, COUNTS, COUNTS, COUNTS), min_size=1
)


@given(st.integers(0, 40), HOLDINGS)
def test_what_is_free_is_given_to_those_who_have_least(
    limit: int, holdings: dict[str, Holding]
) -> None:
    given_to = grants(limit, holdings)
    free = max(limit - sum(each.held for each in holdings.values()), 0)
    wanted = sum(each.wanted for each in holdings.values())
    assert sum(given_to.values()) == min(free, wanted)
    after = {uid: each.held + given_to.get(uid, 0) for uid, each in holdings.items()}
    for uid, each in holdings.items():
        assert 0 <= given_to.get(uid, 0) <= each.wanted
        if given_to.get(uid, 0) < each.wanted:
            assert all(after[other] <= after[uid] + 1 for other in given_to if other != uid), (
                "somebody was given more who has more"
            )


@given(st.integers(0, 40), HOLDINGS)
def test_each_run_finds_its_own_grant(limit: int, holdings: dict[str, Holding]) -> None:
    given_to = grants(limit, holdings)
    for uid, each in holdings.items():
        others = {name: other for name, other in holdings.items() if name != uid}
        bound = Bound(limit, uid, others, each.served)
        assert bound.grant(each.held, each.wanted) == given_to.get(uid, 0)


@dataclass
class Sharer:
    """A run of tasks, one Pod each."""

    queued: int
    held: int = 0
    served: int = 0
    ends_without: int = 0


class Shared:
    """Runs below one bound, whose Pods end when the test says so."""

    def __init__(self, limit: int, queues: dict[str, int]) -> None:
        self.limit = limit
        self.turn = 0
        self.runs = {uid: Sharer(count) for uid, count in queues.items()}

    def ask(self, uid: str) -> int:
        """Let one run begin what it may."""
        run = self.runs[uid]
        others = {
            name: Holding(each.held, each.queued, each.served)
            for name, each in self.runs.items()
            if name != uid
        }
        count = Bound(self.limit, uid, others, run.served).grant(run.held, run.queued)
        if count:
            self.turn += 1
            run.held, run.queued, run.served = run.held + count, run.queued - count, self.turn
            run.ends_without = 0
        assert sum(each.held for each in self.runs.values()) <= self.limit
        return count

    def settle(self, order: list[str]) -> None:
        """Let runs ask, in some order, until none of them may begin anything."""
        while sum(self.ask(uid) for uid in order):
            pass
        held = sum(each.held for each in self.runs.values())
        assert held == self.limit or not any(each.queued for each in self.runs.values())

    def end(self, number: int) -> None:
        """Let a Pod of some run end."""
        held = [uid for uid, each in sorted(self.runs.items()) for _ in range(each.held)]
        if held:
            self.runs[held[number % len(held)]].held -= 1
            for each in self.runs.values():
                each.ends_without += each.queued > 0 and each.held == 0


@given(
    st.integers(1, 5),
    st.dictionaries(st.sampled_from("abcd"), st.integers(1, 30), min_size=1),
    st.lists(st.integers(0, 30), max_size=80),
    st.randoms(use_true_random=False),
)
def test_no_run_starves(
    limit: int, queues: dict[str, int], ends: list[int], random: Random
) -> None:
    """A run without a Pod has one as soon as every other run was served at most once."""
    shared = Shared(limit, queues)
    order = sorted(queues)
    for number in ends:
        random.shuffle(order)
        shared.settle(order)
        shared.end(number)
    for uid, run in shared.runs.items():
        assert run.ends_without <= len(queues), f"{uid} waits behind the others"


def test_a_small_run_beside_a_huge_one_begins_with_the_next_places() -> None:
    shared = Shared(8, {"huge": 10_000})
    shared.settle(["huge"])
    shared.runs["small"] = Sharer(4)
    for _ in range(4):
        shared.end(0)
        shared.settle(["huge", "small"])
    assert (shared.runs["small"].held, shared.runs["huge"].held) == (4, 4)


@given(st.lists(st.sampled_from("abc")))
def test_turns_go_round(puts: list[str]) -> None:
    queue: TurnQueue[tuple[str, int]] = TurnQueue()
    for number, party in enumerate(puts):
        queue.put(party, (party, number))
    served: list[tuple[str, int]] = []
    while queue:
        left = {party for party in "abc" if puts.count(party) > [p for p, _ in served].count(party)}
        served.append(queue.take())
        if len(left) > 1 and len(served) > 1:
            assert served[-1][0] != served[-2][0], "one party was served twice while others waited"
    for party in "abc":
        mine = [number for name, number in served if name == party]
        assert mine == sorted(mine)
        assert len(mine) == puts.count(party)
