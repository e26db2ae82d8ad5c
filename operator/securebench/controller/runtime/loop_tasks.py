"""The tasks of objects' loops: one for each object, begun again a while after it failed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from securebench.core.json_values import object_at

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 60.0
"""Before a loop that failed begins again."""

Loop = Callable[[], Coroutine[Any, Any, None]]
"""Returns what works on an object until it is cancelled or there is nothing more to do."""


def is_gone(kind: str | None, body: Mapping[str, object]) -> bool:
    """Whether an event says that an object is deleted, or that it is about to be.

    Args:
        kind: ADDED, MODIFIED, DELETED, or None for the first listing.
        body: The object.
    """
    return kind == "DELETED" or bool(object_at(body, "metadata").get("deletionTimestamp"))


@dataclass(slots=True)
class _Started:
    title: str
    loop: Loop
    task: asyncio.Task[None]


class LoopTasks:
    """Holds the loops of all objects of a kind, by uid.

    Args:
        kind: How an object is called in logs and names of tasks: ``run`` or ``suite``.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._started: dict[str, _Started] = {}

    @property
    def active(self) -> int:
        """How many objects have a loop now."""
        return sum(1 for each in self._started.values() if not each.task.done())

    @property
    def failed(self) -> int:
        """How many objects have a loop that failed and has not begun again yet."""
        return sum(1 for each in self._started.values() if _failure(each.task) is not None)

    def start(self, uid: str, name: str, loop: Loop) -> None:
        """Start the loop of an object, unless it runs.

        Args:
            uid: UID of the object.
            name: Name of the object, for logs.
            loop: Is called again after a failure.
        """
        known = self._started.get(uid)
        if known is None or known.task.done():
            self._begin(uid, f"{self._kind} {name}", loop)

    def stop(self, uid: str) -> None:
        """Cancel the loop of an object; nothing happens without one."""
        known = self._started.pop(uid, None)
        if known is not None:
            known.task.cancel()

    async def close(self) -> None:
        """Stop all loops and wait for their ends."""
        tasks = [each.task for each in self._started.values()]
        self._started.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, uid: str, title: str, loop: Loop) -> None:
        task = asyncio.create_task(loop(), name=title)
        task.add_done_callback(lambda ended: self._note_end(uid, ended))
        self._started[uid] = _Started(title, loop, task)

    def _note_end(self, uid: str, task: asyncio.Task[None]) -> None:
        """Have a loop begun again that ended with an error which it did not handle itself."""
        error = _failure(task)
        if error is None:
            return
        logger.error("%s: its loop failed and starts again later", task.get_name(), exc_info=error)
        later = asyncio.get_running_loop().call_later
        later(PAUSE_SECONDS, self._begin_again, uid, task)

    def _begin_again(self, uid: str, failed: asyncio.Task[None]) -> None:
        known = self._started.get(uid)
        if known is not None and known.task is failed:
            self._begin(uid, known.title, known.loop)


def _failure(task: asyncio.Task[None]) -> BaseException | None:
    """Return the error that ended a task, or None."""
    return task.exception() if task.done() and not task.cancelled() else None
