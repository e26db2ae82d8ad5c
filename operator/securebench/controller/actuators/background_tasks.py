"""Background requests of one run, at most one per object."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine


class BackgroundTasks:
    """Runs at most one task per name.

    Args:
        on_change: Called when a task has ended.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def has(self, name: str) -> bool:
        """Whether the task of that name runs or is not reaped yet."""
        return name in self._tasks

    def start(self, name: str, work: Coroutine[object, object, None]) -> None:
        """Start a task; there must be none of that name."""
        task = asyncio.create_task(work, name=name)
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._on_change())

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._tasks

    def reap(self) -> BaseException | None:
        """Remove ended tasks; return the first error that a task did not handle itself."""
        for name, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[name]
                if not task.cancelled() and (error := task.exception()) is not None:
                    return error
        return None

    async def close(self) -> None:
        """Cancel all tasks; a create without an answer is repeated after a restart."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
