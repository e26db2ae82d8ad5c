import pytest

from securebench.errors import PermanentClusterError, TransientClusterError
from securebench.kube.port import QuotaExceeded
from securebench.kube.retry import Backoff, TokenBucket, retry

HALF = Backoff(base_seconds=1, cap_seconds=5, attempts=5)


class Clock:
    def __init__(self):
        self.time = 1000.0

    def now(self):
        return self.time


def test_delays_double_up_to_the_cap():
    assert list(HALF.delays(lambda: 0.5)) == [0.5, 1.0, 2.0, 2.5]


def test_jitter_is_full():
    assert list(HALF.delays(lambda: 0.0)) == [0, 0, 0, 0]


async def attempt(outcomes, backoff=HALF):
    slept = []
    left = list(outcomes)

    async def call():
        outcome = left.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def sleep(seconds):
        slept.append(seconds)

    result = await retry(call, backoff=backoff, sleep=sleep, random=lambda: 0.5)
    return result, slept


async def test_passing_troubles_are_repeated():
    result, slept = await attempt([TransientClusterError("a"), TransientClusterError("b"), 7])

    assert (result, slept) == (7, [0.5, 1.0])


async def test_the_servers_wish_is_obeyed_up_to_the_cap():
    soon = TransientClusterError("a", retry_after_seconds=3)
    late = TransientClusterError("b", retry_after_seconds=600)

    assert (await attempt([soon, late, 7]))[1] == [3, 5]


async def test_the_last_failure_is_raised():
    failures = [TransientClusterError(str(n)) for n in range(5)]

    with pytest.raises(TransientClusterError, match="4"):
        await attempt(failures)


@pytest.mark.parametrize("error", [PermanentClusterError("no", status=422), QuotaExceeded("full")])
async def test_what_repeating_cannot_help_is_raised_at_once(error):
    with pytest.raises(type(error)):
        await attempt([error, 7])


def test_a_bucket_gives_its_burst_and_then_its_rate():
    clock = Clock()
    bucket = TokenBucket(rate_per_second=4, burst=2, clock=clock)

    assert [bucket.take(), bucket.take(), bucket.take()] == [0, 0, 0.25]
    clock.time += 0.25
    assert [bucket.take(), bucket.take()] == [0, 0.25]


def test_waiting_exactly_as_told_is_enough():
    clock = Clock()
    bucket = TokenBucket(rate_per_second=3, burst=1, clock=clock)
    bucket.take()

    for _ in range(1000):
        clock.time += bucket.take()
        assert bucket.take() == 0


def test_a_long_rest_gives_no_more_than_the_burst():
    clock = Clock()
    bucket = TokenBucket(rate_per_second=10, burst=2, clock=clock)
    clock.time += 3600

    assert [bucket.take() for _ in range(3)] == [0, 0, 0.1]


def test_a_clock_that_jumps_back_gives_and_takes_nothing():
    clock = Clock()
    bucket = TokenBucket(rate_per_second=1, burst=1, clock=clock)
    bucket.take()
    clock.time -= 500

    assert bucket.take() == 1
    clock.time += 1
    assert bucket.take() == 0
