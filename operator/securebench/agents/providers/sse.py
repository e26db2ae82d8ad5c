"""Parse server-sent events from a copy of the stream; only the data of events is kept.

Source: the HTML standard, "Interpreting an event stream".
"""

from __future__ import annotations

from typing import Final

from securebench.sizes import MIB

EVENT_BYTES: Final = MIB
"""Largest event that is parsed; OpenAI's last one repeats the whole response, about 100 kB.

Each response in flight may buffer this much.
"""

_COMMENT: Final = b":"
"""Replaces the lines of a skipped event; an empty line would end the event."""


class EventReader:
    """Splits a stream into events; events above ``limit_bytes`` are skipped.

    Attributes:
        has_skipped: Whether an event was skipped.
    """

    def __init__(self, limit_bytes: int = EVENT_BYTES) -> None:
        self.has_skipped = False
        self._limit = limit_bytes
        self._line = bytearray()
        self._data: list[bytes] = []
        self._size = 0
        self._after_return = False

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that end in this chunk, in order."""
        if self._after_return and piece.startswith(b"\n"):
            piece = piece[1:]
            self._after_return = False
        if not piece:
            return []
        self._after_return = piece.endswith(b"\r")
        *ends, begun = piece.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        events = []
        for end in ends:
            self._take(end)
            line = bytes(self._line)
            self._line.clear()
            event = self._line_ended(line)
            if event:
                events.append(event)
        self._take(begun)
        return events

    def _take(self, part: bytes) -> None:
        """Buffer a part of a line while the event is within its bound."""
        self._size += len(part)
        self._line += part
        if self._size > self._limit:
            self.has_skipped = True
            self._data.clear()
            self._line = bytearray(_COMMENT if self._line else b"")

    def _line_ended(self, line: bytes) -> bytes:
        if line:
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
            return b""
        event = b"" if self._size > self._limit else b"\n".join(self._data)
        self._data.clear()
        self._size = 0
        return event
