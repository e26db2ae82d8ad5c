"""Messages on the socket between runner and worker: a length, then one JSON array in ASCII."""

from __future__ import annotations

import json
import socket
import struct

MESSAGE_BYTES = 16 * 1024 * 1024
"""Longest message. Small enough that no JSON of this length fills the runner's memory."""

HEADER = struct.Struct(">I")
RECEIVE_BYTES = 1024 * 1024

_ENCODER = json.JSONEncoder(check_circular=False, separators=(",", ":"))


class MalformedError(Exception):
    """The other side sent something that is no message."""


class BrokenError(BaseException):
    """The candidate ended, or sent what is no message. Tests do not catch it by accident."""


class CannotCrossError(Exception):
    """A value that has no form on the other side. The message is for the pack's author."""


class Channel:
    """One connected, blocking socket. OSError wherever the other side is gone."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def send(self, frame: list[object]) -> None:
        """Send one message, or nothing and raise CannotCrossError where it is too long."""
        data = _ENCODER.encode(frame).encode("ascii")
        if len(data) > MESSAGE_BYTES:
            raise CannotCrossError(f"{len(data)} bytes; at most {MESSAGE_BYTES} cross at once")
        self._socket.sendall(HEADER.pack(len(data)) + data)

    def receive(self) -> list[object]:
        """Return the next message, or raise MalformedError; blocks."""
        (length,) = HEADER.unpack(self._exactly(HEADER.size))
        if length > MESSAGE_BYTES:
            raise MalformedError(f"a message of {length} bytes")
        try:
            frame = json.loads(self._exactly(length).decode("ascii"))
        except (ValueError, RecursionError) as error:
            raise MalformedError(type(error).__name__) from None
        if not isinstance(frame, list):
            raise MalformedError("a message that is no array")
        return frame

    def _exactly(self, size: int) -> bytearray:
        data = bytearray()
        while len(data) < size:
            chunk = self._socket.recv(min(size - len(data), RECEIVE_BYTES))
            if not chunk:
                raise ConnectionError("the connection was closed")
            data += chunk
        return data
