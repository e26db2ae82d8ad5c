import pytest

from securebench.controller.loop_tasks import RetryQueue
from support.build import MONOTONIC, FakeClock

FIRST, LIMIT = 2.0, 30.0


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def queue(clock):
    return RetryQueue[str](clock.monotonic, FIRST, LIMIT)


def test_pauses_double_up_to_the_limit_and_begin_anew_after_success(queue):
    assert [queue.retry("a") for _ in range(6)] == [2, 4, 8, 16, 30, 30]
    queue.forget("a")
    assert queue.retry("a") == 2


def test_each_key_backs_off_by_itself(queue, clock):
    queue.retry("a")
    queue.retry("a")
    queue.retry("b")
    clock.advance(2)
    assert [queue.is_due(key) for key in "abc"] == [False, True, True]


@pytest.mark.parametrize(("asked", "want"), [(None, 2), (0.5, 2), (17.0, 17)])
def test_the_servers_own_wish_counts_where_it_is_longer(queue, asked, want):
    assert queue.retry("a", asked) == want


def test_a_wait_is_no_failure(queue, clock):
    queue.wait("a", 10)
    clock.advance(9)
    assert not queue.is_due("a")
    clock.advance(1)
    assert queue.is_due("a")
    assert queue.retry("a") == 2


def test_a_try_that_begins_does_not_wait_and_keeps_its_failures(queue):
    queue.retry("a")
    queue.begin("a")
    assert queue.is_due("a")
    assert queue.next_after(0.0) is None
    assert queue.retry("a") == 4


def test_naming_one_that_waits_does_not_hurry_it(queue):
    queue.retry("a")
    queue.add("a")
    queue.add("b")
    assert [queue.is_due(key) for key in "ab"] == [False, True]
    assert list(queue.keys) == ["a", "b"]


def test_when_to_look_again(queue, clock):
    queue.retry("a")
    queue.wait("b", 1)
    assert queue.next_after(clock.monotonic()) == MONOTONIC + 1
    assert queue.next_after(MONOTONIC + 1) == MONOTONIC + 2
    assert queue.next_after(MONOTONIC + 2) is None


def test_what_is_gone_leaves_nothing(queue):
    queue.retry("uid-1")
    queue.retry("uid-2")
    queue.keep({"uid-2"})
    assert list(queue.keys) == ["uid-2"]
    assert [queue.retry(uid) for uid in ("uid-1", "uid-2")] == [2, 4]
