"""Judges the members of a batch one after the other, each in a process with bounds of its own.

What one member does to its process ends there: memory, time and state are gone before the next one
begins. The process inherits no other member's data and leaves nothing but one message.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from securebench.protocol.messages import MAX_MESSAGE_BYTES
from securebench.protocol.specs import encode_message

if TYPE_CHECKING:
    from collections.abc import Callable

MEMORY_BYTES = 128 << 20
"""What a member may map beyond what the verifier has mapped; both fit the container's limit."""


def judge_isolated(judge: Callable[[], bytes], seconds: float) -> bytes:
    """Return a member's termination message, or one that names the error.

    Args:
        judge: Judges one member and returns its message; runs in a process of its own.
        seconds: Time for it.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        _run(judge, writer)
    os.close(writer)
    try:
        message = _received(reader, time.monotonic() + seconds)
    finally:
        os.close(reader)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return message


def error_message(error: BaseException) -> bytes:
    """Return the message of a member without a verdict.

    It names the class alone: the text of an error may quote a hidden value.
    """
    return encode_message({"error": type(error).__name__})


def _run(judge: Callable[[], bytes], writer: int) -> None:
    """Judge in this process and end it."""
    try:
        os.write(writer, _judged(judge))
    finally:
        os._exit(0)


def _judged(judge: Callable[[], bytes]) -> bytes:
    try:
        mapped = _mapped_bytes() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (mapped, mapped))
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        return judge()
    except BaseException as error:  # noqa: BLE001 - the process ends here, whatever it was
        return error_message(error)


def _mapped_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[0]
    return int(pages) * resource.getpagesize()


def _received(reader: int, until: float) -> bytes:
    """Return what a process says before it ends; it writes at most once and never blocks."""
    wait = select.poll()
    wait.register(reader, select.POLLIN)
    if not wait.poll(max(0.0, until - time.monotonic()) * 1000):
        return error_message(TimeoutError())
    return os.read(reader, MAX_MESSAGE_BYTES) or error_message(ChildProcessError())
