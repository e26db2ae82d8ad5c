"""Ctrl-C for tests and their children, also where a shell started them in the background."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGINT interrupt this process and the children that it starts meanwhile.

    A shell without job control starts background commands with SIGINT ignored. Children inherit
    that, and Python then installs no handler; from a process with a handler they inherit none.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
