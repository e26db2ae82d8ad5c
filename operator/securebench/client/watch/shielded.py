"""Protect multi-step operations from interruption."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TypeVar

T = TypeVar("T")

CREATION_SECONDS = 10.0
"""How long an interrupted start waits for a creation in progress."""


async def shielded(step: Coroutine[object, object, T]) -> T:
    """Complete a step that creates objects, even if the program is interrupted.

    Otherwise an interrupt could leave a Secret without its run, or a run whose name the user never
    sees. A step that takes longer is cancelled; it must then delete what it created.
    """
    task = asyncio.create_task(step)
    try:
        return await asyncio.shield(task)
    finally:
        if not task.done():
            await asyncio.wait({task}, timeout=CREATION_SECONDS)
