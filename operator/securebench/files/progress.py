"""Lets long work on files tell how it gets on, to whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar

_TELL: ContextVar[Callable[[], None]] = ContextVar("progress", default=lambda: None)


def tell_progress_to(tell: Callable[[], None]) -> None:
    """Have what is done in this context from now on tell its progress.

    Args:
        tell: Called after each part, in the thread of the work.
    """
    _TELL.set(tell)


def note_progress() -> None:
    """Tell that a part of the work is done, if somebody wants to know."""
    _TELL.get()()
