"""What the candidate prints: kept until the next message, for the redirections of the tests."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable

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


class Stream(io.TextIOBase):
    """``sys.stdout`` or ``sys.stderr`` of the candidate."""

    def __init__(self, name: str, printed: Printed) -> None:
        super().__init__()
        self._name = name
        self._printed = printed
        self.buffer = _Bytes(self)

    encoding = "utf-8"
    errors = "replace"
    mode = "w"

    @property
    def name(self) -> str:
        """As the interpreter calls its own streams."""
        return f"<{self._name}>"

    def writable(self) -> bool:
        """Tell that it can be written."""
        return True

    def write(self, text: str) -> int:
        """Keep a text; long ones in pieces."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        for start in range(0, len(text), KEPT_CHARACTERS):
            self._printed.add(self._name, str(text[start : start + KEPT_CHARACTERS]))
        return len(text)

    def flush(self) -> None:
        """Do nothing: the next message takes everything."""


class _Bytes(io.RawIOBase):
    """``buffer`` of such a stream."""

    def __init__(self, stream: Stream) -> None:
        super().__init__()
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int | None:
        text = bytes(data)  # type: ignore[call-overload]
        self._stream.write(text.decode("utf-8", "replace"))
        return len(text)
