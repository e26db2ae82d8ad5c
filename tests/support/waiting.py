"""Waiting for something that another process brings about."""

from __future__ import annotations

import time
from collections.abc import Callable

STEP_SECONDS = 0.2


def until(what: Callable[[], object], why: str, seconds: float = 300) -> None:
    """Wait until something holds.

    Args:
        what: Asked again and again.
        why: What it means that it does not hold.
        seconds: How long at most.
    """
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"{why}: not within {seconds:g} s"
        time.sleep(STEP_SECONDS)
