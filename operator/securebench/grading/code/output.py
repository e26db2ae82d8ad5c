"""What the candidate prints: kept until the next message, for the redirections of the tests."""

from __future__ import annotations

import codecs
import io
import threading
from typing import Any

KEPT_CHARACTERS = 1024 * 1024
"""So much is kept for one message; the rest is dropped, as from what verifiers print."""

STREAMS = ("stdout", "stderr")

NOTE = "note"
"""Beside the streams: says where the tests get something else than they would in one process."""


class Printed:
    """Texts, each with its stream, in the order in which they were printed."""

    def __init__(self) -> None:
        self._texts: list[tuple[str, str]] = []
        self._left = KEPT_CHARACTERS
        self._lock = threading.Lock()

    def add(self, stream: str, text: str) -> None:
        """Keep a text, up to the bound."""
        with self._lock:
            if self._left > 0:
                self._texts.append((stream, text[: self._left]))
                self._left -= len(text)

    def take(self) -> list[tuple[str, str]]:
        """Return what was printed, and forget it."""
        with self._lock:
            texts, self._texts, self._left = self._texts, [], KEPT_CHARACTERS
        return texts

    def stream(self, name: str) -> io.TextIOWrapper:
        """Return ``sys.stdout`` or ``sys.stderr`` of the candidate."""
        raw: Any = _Bytes(name, self)
        return io.TextIOWrapper(raw, encoding="utf-8", errors="replace", write_through=True)


class _Bytes(io.RawIOBase):
    def __init__(self, name: str, printed: Printed) -> None:
        super().__init__()
        self.name, self._printed = f"<{name}>", printed
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        content = bytes(data)
        self._printed.add(self.name[1:-1], self._decode(content))
        return len(content)
