"""Waiting for something that another process brings about."""

from __future__ import annotations

import time
from collections.abc import Callable

STEP_SECONDS = 0.2
SECONDS = 480
"""Longest that anything may take on a busy machine, unless a test says otherwise."""
KUBECTL_TIMEOUT = f"--timeout={SECONDS}s"
"""The same for a command of kubectl or helm that waits."""
COMMAND_SECONDS = SECONDS + 20
"""Longest that a command runs: it ends before it is killed, and says what it waited for."""


def until(
    what: Callable[[], object],
    why: str,
    seconds: float = SECONDS,
    step_seconds: float = STEP_SECONDS,
) -> None:
    """Wait until something holds.

    Args:
        what: Asked again and again.
        why: What it means that it does not hold.
        seconds: How long at most.
        step_seconds: Pause before it is asked again.
    """
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, f"{why}: not within {seconds:g} s"
        time.sleep(step_seconds)
