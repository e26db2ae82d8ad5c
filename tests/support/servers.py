"""Servers that tests start on the loopback."""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO

START_SECONDS = 30


def free_port() -> int:
    """Return a port of the loopback that nothing listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def answers(host: str, path: str) -> bool:
    """Whether a server answers a request by HTTP with success."""
    try:
        with urllib.request.urlopen(f"http://{host}{path}", timeout=5):
            return True
    except OSError:
        return False


@contextmanager
def serving(
    words: Sequence[str],
    is_ready: Callable[[], bool],
    environment: Mapping[str, str] | None = None,
    log: IO[str] | None = None,
    seconds: float = START_SECONDS,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the end of the block, which begins when it is ready.

    Args:
        words: Its command.
        is_ready: Asked until it says so.
        environment: Of the server; None for that of this process.
        log: Gets what the server writes; None for the outputs of this process.
        seconds: Until it has to be ready.
    """
    server = subprocess.Popen(words, env=environment, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + seconds
        while not is_ready():
            assert server.poll() is None, f"{words[0]} has ended"
            assert time.monotonic() < deadline, f"{words[0]} is not ready"
            time.sleep(0.1)
        yield server
    finally:
        server.terminate()
        try:
            server.wait(timeout=30)
        except subprocess.TimeoutExpired:
            server.kill()
            raise
