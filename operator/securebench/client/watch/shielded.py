"""Steps that an interruption of the program may not cut in two."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")

CREATION_SECONDS = 10.0
"""How long an interrupted start waits for the answer to what it has begun to create."""


async def shielded(step: Coroutine[object, object, T]) -> T:
    """Let a step that creates things come to its end, also when the program is interrupted.

    Otherwise a Secret would be left without its run, and nobody would be told of the run. A step
    that takes longer is cancelled with the program; it has to take back what it made.
    """
    task = asyncio.create_task(step)
    try:
        return await asyncio.shield(task)
    finally:
        if not task.done():
            await asyncio.wait({task}, timeout=CREATION_SECONDS)
