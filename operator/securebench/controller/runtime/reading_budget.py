"""Memory budget of the operator for reading candidates' output."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

READING_BYTES: Final = 96 << 20
"""96 MiB: with about 80 MiB of an idle operator well below half of its default limit of 512 MiB."""

MEMORY_FACTOR: Final = 4
"""Memory for judging a patch or publishing the line of a record, in sizes of it."""

Result = TypeVar("Result")


class ReadingBudget:
    """Hands out memory in the order in which it is asked for.

    A run asks for one group at a time, so it waits for at most one of every other run.

    Args:
        total_bytes: All there is; who needs more gets all of it and is alone.
    """

    def __init__(self, total_bytes: int = READING_BYTES) -> None:
        self.total_bytes = total_bytes
        self._free = total_bytes
        self._turn = asyncio.Lock()
        self._freed = asyncio.Event()

    async def run_within(
        self, need_bytes: int, work: Callable[[], Coroutine[Any, Any, Result]]
    ) -> Result:
        """Wait for memory and work with it.

        The memory is held until the work has ended, also when the caller is cancelled before: a
        thread that reads cannot be stopped.

        Args:
            need_bytes: What the work may take.
            work: What to do.
        """
        size = min(need_bytes, self.total_bytes)
        async with self._turn:
            while self._free < size:
                self._freed.clear()
                await self._freed.wait()
            self._free -= size
        task = asyncio.create_task(work())
        task.add_done_callback(lambda ended: self._give_back(size, ended))
        return await asyncio.shield(task)

    def _give_back(self, size: int, ended: asyncio.Task[Any]) -> None:
        self._free += size
        self._freed.set()
        if not ended.cancelled():
            ended.exception()
