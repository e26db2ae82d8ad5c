"""What work on files tells of its progress."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context

from securebench.files import tell_progress_to


def told_progress(work: Callable[[], object]) -> int:
    """Return how often some work told of its progress."""
    told: list[None] = []

    def telling() -> None:
        tell_progress_to(lambda: told.append(None))
        work()

    copy_context().run(telling)
    return len(told)
