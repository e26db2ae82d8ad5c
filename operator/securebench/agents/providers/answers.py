"""Count the tokens of a provider's response, and detect whether it is complete.

The agent gets the unmodified bytes; this code reads a copy.

Source: providers 7, 8.5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, Protocol

from securebench.agents.providers.sse import EventReader
from securebench.core.reasons import PROVIDER_AUTH, PROVIDER_QUOTA, PROVIDER_UNAVAILABLE
from securebench.core.sizes import MIB
from securebench.protocol.messages import decode_object

DOCUMENT_BYTES: Final = MIB
"""Largest non-streamed response that is parsed; the agent CLIs ask for streams."""
CHARACTERS_PER_TOKEN: Final = 4
"""Rule of thumb to estimate the tokens of responses that the agent aborted."""
_COUNT_MAX: Final = 10**9


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens of one response; ``input_tokens`` includes cached ones."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0


@dataclass
class Meter(ABC):
    """State of a response as far as it was read.

    Attributes:
        usage: Tokens reported by the provider.
        is_complete: Whether the response is complete.
        is_finished: Whether the model's output is complete; its usage may follow.
        failure: Failure reported by the provider, as a failure_reason, or empty.
        characters: Characters of the model's output; of a non-streamed response, all of it.
        has_gap: Whether an object was too long or too deep to be parsed. An agent can cause that,
            because responses repeat parts of the request, so it is no evidence about the provider.
    """

    usage: TokenUsage = field(default_factory=TokenUsage)
    is_complete: bool = False
    is_finished: bool = False
    failure: str = ""
    characters: int = 0
    has_gap: bool = False

    @abstractmethod
    def event(self, event: Mapping[str, object]) -> None:
        """Process one event of a stream."""

    @abstractmethod
    def document(self, document: Mapping[str, object]) -> None:
        """Process a complete response."""

    def ended(self) -> None:
        """Take a stream whose output has ended as complete, also if no usage followed."""
        self.is_complete |= self.is_finished


class AnswerReader(Protocol):
    """Counts the tokens of one response incrementally."""

    def feed(self, piece: bytes) -> None:
        """Process the next bytes of the body."""
        ...

    def end(self) -> None:
        """Process the end of the body."""
        ...


class StreamReader:
    """Reads a stream of events into a meter."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._events = EventReader()

    def feed(self, piece: bytes) -> None:
        """Process the next bytes of the body; malformed events are ignored."""
        for data in self._events.feed(piece):
            try:
                event = decode_object(data)
            except ValueError:
                self._meter.has_gap |= _is_braced(data)
                continue
            self._meter.event(event)
        self._meter.has_gap |= self._events.has_skipped

    def end(self) -> None:
        """Process the end of the body; each event was counted when it ended."""
        self._meter.ended()


class DocumentReader:
    """Reads one JSON object into a meter."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._text = bytearray()

    def feed(self, piece: bytes) -> None:
        """Process the next bytes of the body; a body above the bound counts as a gap."""
        self._meter.characters += len(piece)
        self._text += piece
        if len(self._text) > DOCUMENT_BYTES:
            self._meter.has_gap = True
        if self._meter.has_gap:
            self._text.clear()

    def end(self) -> None:
        """Parse the complete body."""
        if self._meter.has_gap:
            return
        try:
            document = decode_object(bytes(self._text))
        except ValueError:
            self._meter.has_gap = _is_braced(self._text)
            return
        self._meter.document(document)


def failure_of_status(status: int) -> str:
    """Return the provider failure that an HTTP status stands for, as a failure_reason, or empty.

    Rejections of the request itself (400, 404, 413, 422 and the like) are the agent's fault.
    """
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}:
        return PROVIDER_AUTH
    if status in {HTTPStatus.PAYMENT_REQUIRED, HTTPStatus.TOO_MANY_REQUESTS}:
        return PROVIDER_QUOTA
    if status == HTTPStatus.REQUEST_TIMEOUT or status not in _ANSWERS:
        return PROVIDER_UNAVAILABLE
    return ""


_ANSWERS: Final = frozenset({*range(200, 300), *range(400, 500)})
"""Statuses of a provider that works: it answered, or the request is wrong."""


def _is_braced(text: bytes | bytearray) -> bool:
    """Return whether text that was not parsed looks like a JSON object."""
    return text.lstrip().startswith(b"{") and text.rstrip().endswith(b"}")


def count_at(usage: Mapping[str, object], name: str) -> int:
    """Return a token count; 0 if it is missing or invalid."""
    value = usage.get(name)
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return min(max(value, 0), _COUNT_MAX) if is_count and isinstance(value, int) else 0
