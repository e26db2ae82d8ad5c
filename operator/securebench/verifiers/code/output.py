"""What the candidate prints: kept until the next message, for the redirections of the tests."""

from __future__ import annotations

import codecs
import io
import threading
from collections.abc import Callable
from typing import Any

KEPT_CHARACTERS = 64 * 1024
"""So much is kept before it is sent on its own."""

JOINED_CHARACTERS = 1024
"""Shorter texts are joined with the next one of the same stream."""

STREAMS = ("stdout", "stderr")


class Printed:
    """Texts in the order in which they were printed.

    Args:
        send: Sends what is there when it is much; returns whether it did.
    """

    def __init__(self, send: Callable[[], bool]) -> None:
        self._send = send
        self._texts: list[list[str]] = []
        self._size = 0
        self._lock = threading.Lock()

    def add(self, stream: str, text: str) -> None:
        """Keep a text; what nobody asks for is dropped."""
        with self._lock:
            if (
                self._texts
                and self._texts[-1][0] == stream
                and len(self._texts[-1][1]) < JOINED_CHARACTERS
            ):
                self._texts[-1][1] += text
            else:
                self._texts.append([stream, text])
            self._size += len(text)
        if self._size > KEPT_CHARACTERS and not self._send():
            self.take()

    def take(self) -> list[list[str]]:
        """Return the texts and forget them."""
        with self._lock:
            texts, self._texts, self._size = self._texts, [], 0
        return texts


def stream(name: str, printed: Printed) -> io.TextIOWrapper:
    """Return ``sys.stdout`` or ``sys.stderr`` of the candidate."""
    raw: Any = _Bytes(name, printed)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="replace", write_through=True)


class _Bytes(io.RawIOBase):
    def __init__(self, stream: str, printed: Printed) -> None:
        super().__init__()
        self.name = f"<{stream}>"
        self._stream = stream
        self._printed = printed
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        content = bytes(data)  # type: ignore[call-overload]
        for start in range(0, len(content), KEPT_CHARACTERS):
            piece = content[start : start + KEPT_CHARACTERS]
            self._printed.add(self._stream, self._decode(piece))
        return len(content)
