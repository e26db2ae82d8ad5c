"""How often and how fast: back-off of repeated calls, rate of new Pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from securebench.errors import TransientClusterError
from securebench.kube.port import QuotaExceeded

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from securebench.clock import Clock

T = TypeVar("T")

_ROUNDING = 1e-9
"""Tokens; else a caller that waits exactly as told may find a token short of one by rounding."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential back-off with full jitter.

    Args:
        base_seconds: Bound of the first wait.
        cap_seconds: Bound of every wait.
        attempts: Calls in all, at least 1.
    """

    base_seconds: float = 0.25
    cap_seconds: float = 20.0
    attempts: int = 6

    def delays(self, random: Callable[[], float]) -> Iterator[float]:
        """Yield the waits between the attempts, each drawn from zero to a doubling bound.

        Args:
            random: Returns numbers from 0 up to but not including 1.
        """
        bound = self.base_seconds
        for _ in range(self.attempts - 1):
            yield random() * min(bound, self.cap_seconds)
            bound = min(bound * 2, self.cap_seconds)


async def retry(
    call: Callable[[], Awaitable[T]],
    *,
    backoff: Backoff,
    sleep: Callable[[float], Awaitable[None]],
    random: Callable[[], float],
) -> T:
    """Repeat an idempotent call while it fails for passing reasons.

    A lack of quota is passed on at once: whether to wait for room is the caller's decision.

    Args:
        call: Makes the attempt.
        backoff: How often and how long.
        sleep: Waits; ``asyncio.sleep`` outside of tests.
        random: Source of the jitter.

    Returns:
        The first result.

    Raises:
        TransientClusterError: The last attempt's, when all failed.
    """
    for delay in backoff.delays(random):
        try:
            return await call()
        except QuotaExceeded:
            raise
        except TransientClusterError as error:
            wish = min(error.retry_after_seconds or 0.0, backoff.cap_seconds)
            await sleep(max(delay, wish))
    return await call()


class TokenBucket:
    """Limits a rate and lets short bursts through.

    Args:
        rate_per_second: Tokens that come back per second, above 0.
        burst: Tokens at most, and at the start.
        clock: A clock that jumps back gives no tokens and takes none.
    """

    def __init__(self, rate_per_second: float, burst: int, clock: Clock) -> None:
        self._rate = rate_per_second
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._filled_at = clock.now()

    def take(self) -> float:
        """Take a token if there is one.

        Returns:
            0.0 when a token was taken, else the seconds until there will be one.
        """
        now = self._clock.now()
        gained = max(0.0, now - self._filled_at) * self._rate
        self._tokens = min(float(self._burst), self._tokens + gained)
        self._filled_at = now
        if self._tokens >= 1 - _ROUNDING:
            self._tokens = max(0.0, self._tokens - 1)
            return 0.0
        return (1 - self._tokens) / self._rate
