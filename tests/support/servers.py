"""Servers that tests start on the loopback."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

START_SECONDS = 30


def free_port() -> int:
    """Return a port of the loopback that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def serving(words: Sequence[str], is_ready: Callable[[], bool]) -> Iterator[None]:
    """Run a server until the end of the block, which begins when it is ready."""
    server = subprocess.Popen(words)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not is_ready():
            assert server.poll() is None, f"{words[0]} has ended"
            assert time.monotonic() < deadline, f"{words[0]} is not ready"
            time.sleep(0.1)
        yield
    finally:
        server.terminate()
        server.wait(timeout=30)
