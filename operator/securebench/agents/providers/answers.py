"""Count the tokens of a provider's response, and detect whether it is complete.

The agent gets the unmodified bytes; this code reads a copy.

Source: providers 7, 8.5.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol

from securebench.agents.providers.error_codes import Trouble, trouble_of
from securebench.agents.providers.sse import EventReader
from securebench.json_values import object_at
from securebench.protocol.messages import decode_object
from securebench.sizes import MIB

DOCUMENT_BYTES: Final = MIB
"""Largest non-streamed response that is parsed; the agent CLIs ask for streams."""
CHARACTERS_PER_TOKEN: Final = 4
"""Rule of thumb to estimate the tokens of responses that the agent aborted."""
DONE: Final = b"[DONE]"
_COUNT_MAX: Final = 10**9


class TokenUsage(NamedTuple):
    """Tokens of one response as they are billed.

    ``input_tokens`` includes cached ones, ``output_tokens`` those of reasoning.
    """

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
        trouble: Error that the provider reported instead of an answer, or None.
        characters: Characters of the model's output; of a non-streamed response, all of it.
        has_gap: Whether an object was too long or too deep to be parsed. An agent can cause that,
            because responses repeat parts of the request, so it is no evidence about the provider.
    """

    usage: TokenUsage = field(default_factory=TokenUsage)
    is_complete: bool = False
    is_finished: bool = False
    trouble: Trouble | None = None
    characters: int = 0
    has_gap: bool = False

    @abstractmethod
    def event(self, event: Mapping[str, object]) -> None:
        """Process one event of a stream."""

    @abstractmethod
    def document(self, document: Mapping[str, object]) -> None:
        """Process a complete response."""

    def done(self) -> None:  # noqa: B027 - most APIs send none
        """Process the mark that some APIs send at the end of a stream."""

    def ended(self) -> None:
        """Take a stream whose output has ended as complete, also if no usage followed."""
        self.is_complete |= self.is_finished

    def failed(self, error: object) -> None:
        """Note an error that came in place of an answer, or in its middle."""
        self.trouble = trouble_of(error)
        self.is_complete = True

    def counted(self, usage: TokenUsage) -> None:
        """Note a usage; servers repeat it, each time with what it is so far."""
        self.usage = TokenUsage(*map(max, self.usage, usage))

    @property
    def failure(self) -> str:
        """Failure that the provider reported, as a failure_reason, or empty."""
        return "" if self.trouble is None else self.trouble.failure


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
            if data.strip() == DONE:
                self._meter.done()
                continue
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


def _is_braced(text: bytes | bytearray) -> bool:
    """Return whether text that was not parsed looks like a JSON object."""
    return text.lstrip().startswith(b"{") and text.rstrip().endswith(b"}")


def is_said(value: object) -> bool:
    """Return whether a reason to stop says something; some servers send one in each chunk."""
    return isinstance(value, str) and value.strip().lower() not in {"", "none", "null"}


def billed(usage: Mapping[str, object], *, is_cache_beside: bool = False) -> TokenUsage:
    """Return the tokens that a server bills, from the names that servers give them.

    Reasoning and cached tokens are part of output and input at some servers and beside them at
    others. Where both readings are possible, the total decides.

    Args:
        usage: As the server reports it.
        is_cache_beside: Whether the API counts cached tokens beside the input, as Anthropic's.
    """
    details = [object_at(usage, name) for name in _DETAILS]
    places = [usage, *details]
    asked, written = _most([usage], _INPUT), _most([usage], _OUTPUT)
    read, stored = _most(places, _READ), _most(places, _STORED)
    thought, total = _most(places, _REASONING), _most([usage], _TOTAL)
    asked = asked or _most([usage], _MISSED) + (0 if is_cache_beside else read)
    rest = total - asked - written
    if (
        is_cache_beside
        or read > asked
        or (rest > 0 and rest in {read + stored, read, read + stored + thought})
    ):
        asked += read + stored
        rest = total - asked - written
    if rest > 0:
        written += rest
    elif total == 0 and thought > written:
        written += thought
    return TokenUsage(asked, min(read, asked), written)


_INPUT: Final = ("prompt_tokens", "input_tokens", "promptTokenCount", "prompt_eval_count")
_OUTPUT: Final = ("completion_tokens", "output_tokens", "candidatesTokenCount", "eval_count")
_TOTAL: Final = ("total_tokens", "totalTokenCount")
_READ: Final = (
    *("cache_read_input_tokens", "cache_read_tokens", "cached_content_token_count"),
    *("cachedContentTokenCount", "cached_prompt_tokens", "cached_tokens", "num_cached_tokens"),
    "prompt_cache_hit_tokens",
)
_MISSED: Final = ("prompt_cache_miss_tokens",)
_STORED: Final = ("cache_creation_input_tokens", "cache_creation_tokens", "cache_write_tokens")
_REASONING: Final = ("reasoning_tokens", "thinking_tokens", "thoughtsTokenCount")
_DETAILS: Final = (
    *("completion_tokens_details", "input_tokens_details", "output_tokens_details"),
    "prompt_tokens_details",
)


def _most(places: Iterable[Mapping[str, object]], names: Iterable[str]) -> int:
    """Return the largest count that stands under one of several names; 0 without any."""
    return max((count_at(place, name) for place in places for name in names), default=0)


def count_at(usage: Mapping[str, object], name: str) -> int:
    """Return a token count; 0 if it is missing or invalid."""
    value = usage.get(name)
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return min(max(value, 0), _COUNT_MAX) if is_count and isinstance(value, int) else 0
