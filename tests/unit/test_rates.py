"""The token bucket of new Pods and of connections; waits that double."""

import pytest

from securebench.clock import TokenBucket, backoff


class Clock:
    def __init__(self):
        self.time = 0.0

    def now(self):
        return self.time


def test_a_bucket_gives_its_burst_and_then_its_rate():
    clock = Clock()
    bucket = TokenBucket(4, 2, clock.now)

    assert [bucket.take(), bucket.take(), bucket.take()] == [0, 0, 0.25]
    clock.time += 0.25
    assert [bucket.take(), bucket.take()] == [0, 0.25]


def test_waiting_exactly_as_told_is_enough():
    clock = Clock()
    bucket = TokenBucket(3, 1, clock.now)
    bucket.take()

    for _ in range(1000):
        clock.time += bucket.take()
        assert bucket.take() == 0


def test_a_long_rest_gives_no_more_than_the_burst():
    clock = Clock()
    bucket = TokenBucket(10, 2, clock.now)
    clock.time += 3600

    assert [bucket.take() for _ in range(3)] == [0, 0, 0.1]


def test_a_clock_that_jumps_back_gives_and_takes_nothing():
    clock = Clock()
    bucket = TokenBucket(1, 1, clock.now)
    bucket.take()
    clock.time -= 500

    assert bucket.take() == 1
    clock.time += 1
    assert bucket.take() == 0


def test_what_is_reserved_is_taken_in_any_case():
    clock = Clock()
    bucket = TokenBucket(10.0, 3.0, clock.now)

    assert [bucket.reserve() for _ in range(5)] == pytest.approx([0, 0, 0, 0.1, 0.2])
    clock.time += 10
    assert [bucket.reserve() for _ in range(4)] == pytest.approx([0, 0, 0, 0.1])


@pytest.mark.parametrize(("failures", "want"), [(1, 5), (2, 10), (3, 20), (4, 30), (10**6, 30)])
def test_a_wait_doubles_up_to_its_limit(failures, want):
    assert backoff(5.0, 30.0, failures) == want
