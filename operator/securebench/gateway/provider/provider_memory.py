"""Bounds for the requests of agents: bodies in memory at once, and tokens used at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from securebench.gateway.server.launch import ServedLaunch

BODIES_BYTES: Final = 64 * 1024**2
"""Of all launches together; a decoded body takes several times its size for a moment."""
SMALL_BYTES: Final = 256 * 1024
"""Judged at once, within a few milliseconds."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Turn:
    """Lets a launch begin its requests one after the other.

    Attributes:
        reading: Held while a body is read. So a launch that sends slowly holds room for one body,
            whatever it opens.
        is_free: Cleared while the requests in flight may use up the launch's budget.
    """

    def __init__(self) -> None:
        self.reading = asyncio.Lock()
        self.is_free = asyncio.Event()
        self.is_free.set()
        self._reserved = 0

    def reserve(self, tokens: int, left: int | None) -> None:
        """Note that requests in flight may use more tokens, or less.

        Args:
            tokens: The change; negative at the end of a request.
            left: Of the budget beside them, or None where there is none. With nothing left the
                next request is refused, not delayed.
        """
        self._reserved += tokens
        if left is not None and 0 < left <= self._reserved:
            self.is_free.clear()
        else:
            self.is_free.set()


class BodyMemory:
    """Lets requests be read while there is room; first come, first served.

    Args:
        size_bytes: Room for all.
    """

    def __init__(self, size_bytes: int = BODIES_BYTES) -> None:
        self._size = size_bytes
        self._used = 0
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()
        self._judging = asyncio.Lock()
        self._turns: WeakKeyDictionary[ServedLaunch, Turn] = WeakKeyDictionary()

    def turn(self, launch: ServedLaunch) -> Turn:
        """Return what orders the requests of a launch."""
        return self._turns.setdefault(launch, Turn())

    @asynccontextmanager
    async def reader(self, launch: ServedLaunch) -> AsyncIterator[None]:
        """Wait until a launch may send its next request, whose body is read inside."""
        turn = self.turn(launch)
        async with turn.reading:
            await turn.is_free.wait()
            yield

    async def judged(
        self,
        size_bytes: int,
        judge: Callable[Parameters, Result],
        *arguments: Parameters.args,
        **named: Parameters.kwargs,
    ) -> Result:
        """Return what a function makes of a body; large ones one after the other, beside the loop.

        Args:
            size_bytes: Of the body.
            judge: Pure.
            arguments: Of the function.
            named: Of the function.
        """
        if size_bytes <= SMALL_BYTES:
            return judge(*arguments, **named)
        async with self._judging:
            return await asyncio.to_thread(judge, *arguments, **named)

    async def reserve(self, size_bytes: int) -> Reservation:
        """Wait for room; what is larger than all of it has it alone."""
        size = min(size_bytes, self._size)
        async with self._turn:
            while self._used + size > self._size:
                self._freed.clear()
                await self._freed.wait()
            self._used += size
        return Reservation(self, size)

    def free(self, size_bytes: int) -> None:
        """Give reserved bytes back to the budget."""
        self._used -= size_bytes
        self._freed.set()


class Reservation:
    """Room for one body; ``release`` gives it back and may be called again."""

    def __init__(self, memory: BodyMemory, size_bytes: int) -> None:
        self._memory = memory
        self._size = size_bytes

    def release(self) -> None:
        """Give the room back."""
        size, self._size = self._size, 0
        if size:
            self._memory.free(size)
