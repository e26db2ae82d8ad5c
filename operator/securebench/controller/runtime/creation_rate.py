"""Rate limit of one operator's Pod creations, with runs in turn."""

from __future__ import annotations

import asyncio

from securebench.core.rates import TokenBucket
from securebench.core.turns import TurnQueue

MIN_WAIT_SECONDS = 0.001
"""Shortest delay of a timer, so that rounding cannot make it spin."""


class CreationRate:
    """Hands out one token per Pod, to one run after the other.

    Args:
        bucket: The rate.
    """

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
