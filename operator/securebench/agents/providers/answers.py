"""What an answer of the provider says of tokens, and whether it came to its end.

The bytes go to the agent as they are; this reads a copy.

Source: providers 7, 8.5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from securebench.agents.providers.sse import EventReader
from securebench.core.reasons import PROVIDER_AUTH, PROVIDER_QUOTA, PROVIDER_UNAVAILABLE
from securebench.protocol.messages import decode_object

DOCUMENT_BYTES: Final = 1024**2
"""Largest answer that is read and no stream; the agents of the runs ask for streams."""
CHARACTERS_PER_TOKEN: Final = 4
"""A rule of thumb, for answers that the agent did not wait for."""
_COUNT_MAX: Final = 10**9


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one answer; ``input_tokens`` has the cached ones in it."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


@dataclass
class Meter(ABC):
    """What was read so far.

    Attributes:
        failure: Reason that the provider gave for a failure, as a word of records, or empty.
        characters: Of the model's words, whether counted by the provider or not; of an answer that
            is no stream, all of it.
        has_gap: Whether an object in it was too long or too deep. Agents can bring that about, as
            answers repeat what was asked, so it says nothing of the provider.
    """

    usage: TokenUsage = field(default_factory=TokenUsage)
    is_complete: bool = False
    failure: str = ""
    characters: int = 0
    has_gap: bool = False

    @abstractmethod
    def event(self, event: Mapping[str, object]) -> None:
        """Take an event of a stream."""

    @abstractmethod
    def document(self, document: Mapping[str, object]) -> None:
        """Take a whole answer."""


class AnswerReader(Protocol):
    """Counts the tokens of one answer while its bytes pass by."""

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the body."""
        ...

    def end(self) -> None:
        """The body is over."""
        ...


class StreamReader:
    """Reads a stream of events into a meter."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._events = EventReader()

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the body; an event in another form says nothing."""
        for data in self._events.feed(piece):
            try:
                event = decode_object(data)
            except ValueError:
                self._meter.has_gap |= _is_braced(data)
                continue
            self._meter.event(event)
        self._meter.has_gap |= self._events.has_skipped

    def end(self) -> None:
        """Return; events count when they end."""


class DocumentReader:
    """Reads one JSON object into a meter."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._text = bytearray()

    def feed(self, piece: bytes) -> None:
        """Take the next bytes of the body; a longer one than the bound is a gap."""
        self._meter.characters += len(piece)
        self._text += piece
        if len(self._text) > DOCUMENT_BYTES:
            self._meter.has_gap = True
        if self._meter.has_gap:
            self._text.clear()

    def end(self) -> None:
        """Read the body that was kept, now that it is complete."""
        if self._meter.has_gap:
            return
        try:
            document = decode_object(bytes(self._text))
        except ValueError:
            self._meter.has_gap = _is_braced(self._text)
            return
        self._meter.document(document)


def failure_of_status(status: int) -> str:
    """Return what a status says of the provider: a word of records, or empty.

    Refusals of the request itself (400, 404, 413, 422 and their like) are the agent's.
    """
    if status in {UNAUTHORIZED, FORBIDDEN}:
        return PROVIDER_AUTH
    if status in {402, 429}:
        return PROVIDER_QUOTA
    if status == _TIMEOUT or not (_OK <= status < _REDIRECT or _CLIENT <= status < _SERVER):
        return PROVIDER_UNAVAILABLE
    return ""


_OK, _REDIRECT, _CLIENT, _TIMEOUT, _SERVER = 200, 300, 400, 408, 500
UNAUTHORIZED: Final = 401
FORBIDDEN: Final = 403


def _is_braced(text: bytes | bytearray) -> bool:
    """Tell whether something that was not decoded is an object all the same."""
    return text.lstrip().startswith(b"{") and text.rstrip().endswith(b"}")


def object_at(value: Mapping[str, object], name: str) -> Mapping[str, object]:
    """Return an object in another one; empty where there is none."""
    inner = value.get(name)
    return inner if isinstance(inner, dict) else {}


def count_at(usage: Mapping[str, object], name: str) -> int:
    """Return a number of tokens; 0 where it is none."""
    value = usage.get(name)
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return min(max(value, 0), _COUNT_MAX) if is_count and isinstance(value, int) else 0
