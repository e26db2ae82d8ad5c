"""The election on a cluster in memory; a failed call of ours is a lost answer as often as not."""

from __future__ import annotations

import asyncio

import pytest

from securebench.clock import micro_time
from securebench.cluster.port import ObjectKind
from securebench.controller.leadership import (
    Elector,
    LeaseRecord,
    lease_manifest,
    lease_record,
    may_take,
)
from securebench.controller.settings import LeaseTimes
from securebench.errors import LeadershipLostError, LeaseOverdueError, TransientClusterError
from securebench.names import OPERATOR_LEASE
from support.build import FakeClock, VirtualLoop
from support.fake_cluster import FakeCluster

TIMES = LeaseTimes()
ANSWERLESS = TransientClusterError("no answer in time")


class Wrong:
    """A wall clock that is wrong."""

    def __init__(self, clock: FakeClock, skew: float) -> None:
        self._clock = clock
        self._skew = skew

    def now(self) -> float:
        return self._clock.now() + self._skew


class Line:
    """The cluster at the end of a line that may be cut."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster
        self.is_cut = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._cluster, name)

    async def replace(self, *given: object) -> object:
        if self.is_cut:
            raise ANSWERLESS
        return await self._cluster.replace(*given)


class Operator:
    """One operator process; it stops at once when it loses the Lease."""

    def __init__(
        self, election: Election, holder: str, *, skew: float = 0.0, hang: float = 0.0
    ) -> None:
        self.lost: list[str] = []
        clock = election.clock
        wall = Wrong(clock, skew)
        self.line = Line(election.cluster)
        self.elector = Elector(self.line, holder, TIMES, wall, clock.now, self.lost.append)
        self.epoch = 0
        self.hang_seconds = hang
        self.traces = election.traces
        self.task = election.start(self.work())

    async def work(self) -> None:
        self.epoch = await self.elector.acquire(self.highest)
        self.traces.append(self.epoch)
        await self.elector.hold()

    async def highest(self) -> int:
        await asyncio.sleep(self.hang_seconds)
        return max(self.traces, default=0)

    @property
    def leads(self) -> bool:
        return self.elector.is_leader


class Election:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.cluster = FakeCluster(clock=self.clock)
        self.runner = asyncio.Runner(loop_factory=lambda: VirtualLoop(self.clock))
        self.traces: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, work) -> asyncio.Task[None]:
        async def begin():
            return asyncio.create_task(work)

        self.tasks.append(self.runner.run(begin()))
        return self.tasks[-1]

    def wait(self, seconds: float) -> None:
        self.runner.run(asyncio.sleep(seconds))

    def kill(self, operator: Operator) -> None:
        operator.task.cancel()
        self.wait(0)

    def seconds_until(self, operator: Operator) -> float:
        began = self.clock.now()
        while not operator.leads:
            assert self.clock.now() < began + 120
            self.wait(0.1)
        return self.clock.now() - began

    @property
    def record(self) -> LeaseRecord:
        return lease_record(self.cluster.objects(ObjectKind.LEASE)[OPERATOR_LEASE])

    def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        self.runner.run(asyncio.sleep(0))
        for task in self.tasks:
            if not task.cancelled():
                task.exception()
        self.runner.close()


@pytest.fixture
def election():
    made = Election()
    yield made
    made.close()


def test_the_first_one_leads_and_the_second_stands_by(election):
    first, second = Operator(election, "a_1"), Operator(election, "b_2")
    election.wait(300)
    assert (first.leads, second.leads) == (True, False)
    assert (first.epoch, first.lost) == (1, [])
    assert (election.record.holder, election.record.epoch) == ("a_1", 1)
    assert election.record.acquired_at < election.record.renewed_at


@pytest.mark.parametrize("skew", [-86_400.0, 0.0, 86_400.0])
def test_another_takes_over_from_a_killed_one_whatever_their_clocks_say(election, skew):
    first, second = Operator(election, "a_1", skew=skew), Operator(election, "b_2")
    election.wait(60)
    election.kill(first)
    assert TIMES.lease_seconds - 2 < election.seconds_until(second) < TIMES.lease_seconds + 3
    assert second.epoch == 2


def test_who_starts_late_waits_for_the_whole_time_of_a_dead_one(election):
    first = Operator(election, "a_1")
    election.wait(10)
    election.kill(first)
    election.wait(3600)
    late = Operator(election, "b_2")
    assert election.seconds_until(late) >= TIMES.lease_seconds


def test_the_next_process_of_a_pod_leads_at_once_with_a_new_epoch(election):
    first = Operator(election, "a_1")
    election.wait(10)
    election.kill(first)
    again = Operator(election, "a_1")
    assert election.seconds_until(again) < 1
    assert again.epoch == 2


def test_a_released_lease_is_taken_at_the_next_look(election):
    first, second = Operator(election, "a_1"), Operator(election, "b_2")
    election.wait(30)
    election.kill(first)
    election.runner.run(first.elector.release())
    assert not first.leads
    assert election.seconds_until(second) <= TIMES.retry_seconds + 0.1
    assert second.epoch == 2


def test_a_release_of_one_that_leads_no_longer_changes_nothing(election):
    first, second = Operator(election, "a_1"), Operator(election, "b_2")
    election.wait(10)
    election.kill(first)
    election.seconds_until(second)
    election.runner.run(first.elector.release())
    assert election.record.holder == "b_2"


def cut_off(election: Election) -> None:
    for _ in range(100):
        election.cluster.fail_next("replace", ANSWERLESS)


def test_without_an_answer_the_leader_stops_before_another_may_begin(election):
    first, second = Operator(election, "a_1"), Operator(election, "b_2")
    election.wait(30)
    cut_off(election)
    began = election.clock.now()
    while first.leads:
        election.wait(0.1)
    stopped = election.clock.now()
    assert stopped - began <= TIMES.renew_seconds + 0.2
    assert (second.leads, first.lost) == (False, [])
    with pytest.raises(LeaseOverdueError):
        first.elector.require()


def test_who_comes_back_while_another_leads_ends(election):
    first, second = Operator(election, "a_1"), Operator(election, "b_2")
    election.wait(30)
    first.line.is_cut = True
    election.seconds_until(second)
    assert (first.leads, first.lost, second.epoch) == (False, [], 2)
    first.line.is_cut = False
    election.wait(TIMES.retry_seconds + 0.1)
    assert first.lost == ["b_2 has the Lease, epoch 2"]
    assert isinstance(first.task.exception(), LeadershipLostError)
    assert second.leads


def test_after_an_outage_in_which_nobody_took_it_the_leader_goes_on(election):
    first = Operator(election, "a_1")
    election.wait(30)
    cut_off(election)
    election.wait(120)
    assert (first.leads, first.lost) == (False, [])
    election.cluster.recover()
    assert election.seconds_until(first) <= TIMES.retry_seconds + 0.1
    first.elector.require()
    assert (election.record.holder, election.record.epoch) == ("a_1", 1)


def test_who_finds_its_lease_deleted_after_an_outage_ends(election):
    """Another may have had it meanwhile under the number that it would get again."""
    first = Operator(election, "a_1")
    election.wait(30)
    cut_off(election)
    election.wait(60)
    election.cluster.remove(ObjectKind.LEASE, OPERATOR_LEASE)
    election.cluster.recover()
    election.wait(TIMES.retry_seconds)
    assert "was deleted" in first.lost[0]
    assert election.cluster.objects(ObjectKind.LEASE) == {}


@pytest.mark.parametrize("before", [True, False], ids=["not-done", "answer-lost"])
def test_a_failed_renewal_is_repeated(election, before):
    first = Operator(election, "a_1")
    election.wait(30)
    for _ in range(2):
        election.cluster.fail_next("replace", ANSWERLESS, before=before)
    election.wait(30)
    assert first.leads
    assert election.record.epoch == 1


@pytest.mark.parametrize("verb", ["get", "create"])
def test_who_cannot_ask_tries_again(election, verb):
    election.cluster.fail_next(verb, ANSWERLESS)
    assert election.seconds_until(Operator(election, "a_1")) <= TIMES.retry_seconds + 0.1


def test_a_lost_answer_to_the_first_create_costs_an_epoch_and_nothing_else(election):
    election.cluster.fail_next("create", ANSWERLESS, before=False)
    first = Operator(election, "a_1")
    election.seconds_until(first)
    assert first.epoch == 2


def test_of_two_at_once_one_leads(election):
    operators = [Operator(election, f"{name}_1") for name in "abcde"]
    election.wait(60)
    assert sum(each.leads for each in operators) == 1


def test_a_leader_ends_when_it_sees_another(election):
    first = Operator(election, "a_1")
    election.wait(30)
    other = LeaseRecord("b_2", 2, 15)
    election.cluster.edit(ObjectKind.LEASE, OPERATOR_LEASE, {"spec": lease_manifest(other)["spec"]})
    election.wait(TIMES.retry_seconds)
    assert first.lost == ["b_2 has the Lease, epoch 2"]
    assert not first.leads


def test_a_second_process_under_the_same_name_ends_the_first(election):
    """Somebody starts the operator once more within its Pod."""
    first = Operator(election, "a_1")
    election.wait(30)
    second = Operator(election, "a_1")
    election.wait(5)
    assert (first.leads, second.leads) == (False, True)
    assert first.lost == ["a_1 has the Lease, epoch 2"]


def test_an_edit_that_leaves_the_holder_is_nothing(election):
    first = Operator(election, "a_1")
    election.wait(30)
    labels = {"metadata": {"labels": {"team": "x"}}}
    election.cluster.edit(ObjectKind.LEASE, OPERATOR_LEASE, labels)
    election.wait(30)
    assert first.leads


def test_a_deleted_lease_is_made_again_by_its_leader(election):
    first, _ = Operator(election, "a_1"), Operator(election, "b_2")
    election.wait(29)
    election.cluster.remove(ObjectKind.LEASE, OPERATOR_LEASE)
    election.wait(60)
    assert election.record.holder in {"a_1", "b_2"}
    leading = [each for each in (first, _) if each.leads]
    assert [each.elector.holder for each in leading] == [election.record.holder]


def test_after_a_deletion_the_epoch_grows_on_by_what_lies_on_the_volume(election):
    first = Operator(election, "a_1")
    election.wait(10)
    first.traces.append(41)
    election.kill(first)
    election.cluster.remove(ObjectKind.LEASE, OPERATOR_LEASE)
    second = Operator(election, "b_2")
    election.seconds_until(second)
    assert second.epoch == 42


def test_who_waits_long_for_the_volume_leads_as_soon_as_it_answers(election):
    hang = TIMES.renew_seconds + 5
    first = Operator(election, "a_1", hang=hang)
    assert hang <= election.seconds_until(first) <= hang + 0.1
    first.elector.require()
    assert election.record.acquired_at >= micro_time(election.clock.now() - 1)


def test_a_lease_that_is_renewed_while_another_waits_for_the_volume_stays(election):
    first, second = Operator(election, "a_1"), Operator(election, "b_2", hang=20)
    election.wait(30)
    first.line.is_cut = True
    election.wait(TIMES.lease_seconds + 5)
    first.line.is_cut = False
    election.wait(60)
    assert (first.leads, first.lost) == (True, [])
    assert second.epoch == 0


def test_who_slept_may_not_write_when_it_wakes(election):
    """The clock goes on while the process is stopped; nothing of its loop has run yet."""
    first = Operator(election, "a_1")
    election.wait(30)
    first.elector.require()
    election.clock.advance(TIMES.renew_seconds + 1)
    with pytest.raises(LeaseOverdueError):
        first.elector.require()


@pytest.mark.parametrize(
    ("record", "seconds", "want"),
    [
        (LeaseRecord("", 3, 1), 0.0, True),
        (LeaseRecord("me", 3, 15), 0.0, True),
        (LeaseRecord("you", 3, 15), 15.0, False),
        (LeaseRecord("you", 3, 15), 15.1, True),
        (LeaseRecord("you", 3, 60), 59.0, False),
    ],
)
def test_who_may_take_it(record, seconds, want):
    assert may_take(record, "me", seconds) is want


def test_a_lease_that_somebody_filled_with_nonsense_is_free():
    raw = {"spec": {"holderIdentity": 3, "leaseTransitions": True, "leaseDurationSeconds": "x"}}
    assert lease_record(raw) == LeaseRecord("", 0, 0)
    assert lease_record({}) == LeaseRecord("", 0, 0)
