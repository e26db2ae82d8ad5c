"""Limit concurrent provider requests: bodies in memory, and tokens in flight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from securebench.gateway.server.launch import ServedLaunch
from securebench.sizes import KIB, MIB

BODIES_BYTES: Final = 64 * MIB
"""Total over all launches; while it is decoded, a body briefly takes several times its size."""
SMALL_BYTES: Final = 256 * KIB
"""Bodies up to this size are processed in the event loop, within a few milliseconds."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Turn:
    """Serialises the start of a launch's requests.

    Attributes:
        reading: Held while a body is read, so that a launch that sends slowly occupies memory for
            only one body, however many connections it opens.
        is_free: Cleared while the requests in flight might use up the launch's budget.
    """

    def __init__(self) -> None:
        self.reading = asyncio.Lock()
        self.is_free = asyncio.Event()
        self.is_free.set()
        self._reserved = 0

    def reserve(self, tokens: int, left: int | None) -> None:
        """Adjust the tokens that requests in flight may use.

        Args:
            tokens: The change; negative at the end of a request.
            left: Remaining budget without them; None without a budget. When nothing is left, the
                next request is refused, not delayed.
        """
        self._reserved += tokens
        if left is not None and 0 < left <= self._reserved:
            self.is_free.clear()
        else:
            self.is_free.set()


class BodyMemory:
    """A memory budget for request bodies, in first-come, first-served order.

    Args:
        size_bytes: Total budget.
    """

    def __init__(self, size_bytes: int = BODIES_BYTES) -> None:
        self._size = size_bytes
        self._used = 0
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()
        self._processing = asyncio.Lock()
        self._turns: WeakKeyDictionary[ServedLaunch, Turn] = WeakKeyDictionary()

    def turn(self, launch: ServedLaunch) -> Turn:
        """Return the turn that serialises the requests of a launch."""
        return self._turns.setdefault(launch, Turn())

    @asynccontextmanager
    async def reader(self, launch: ServedLaunch) -> AsyncIterator[None]:
        """Wait until a launch may send its next request; read the body inside this context."""
        turn = self.turn(launch)
        async with turn.reading:
            await turn.is_free.wait()
            yield

    async def process(
        self,
        size_bytes: int,
        function: Callable[Parameters, Result],
        *arguments: Parameters.args,
        **named: Parameters.kwargs,
    ) -> Result:
        """Apply a pure function to a body; large bodies go to a thread, one at a time."""
        if size_bytes <= SMALL_BYTES:
            return function(*arguments, **named)
        async with self._processing:
            return await asyncio.to_thread(function, *arguments, **named)

    async def reserve(self, size_bytes: int) -> Reservation:
        """Wait for memory; a body larger than the whole budget gets all of it."""
        size = min(size_bytes, self._size)
        async with self._turn:
            while self._used + size > self._size:
                self._freed.clear()
                await self._freed.wait()
            self._used += size
        return Reservation(self, size)

    def free(self, size_bytes: int) -> None:
        """Return reserved bytes to the budget."""
        self._used -= size_bytes
        self._freed.set()


class Reservation:
    """Memory reserved for one body; ``release`` is idempotent."""

    def __init__(self, memory: BodyMemory, size_bytes: int) -> None:
        self._memory = memory
        self._size = size_bytes

    def release(self) -> None:
        """Return the memory to the budget."""
        size, self._size = self._size, 0
        if size:
            self._memory.free(size)
