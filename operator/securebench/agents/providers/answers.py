"""Read a provider's response: its errors, its events, its tokens, and whether it is complete.

The agent gets the unmodified bytes; this code reads a copy.

Servers use few statuses and types for many errors: an account without credit is a 400 of type
``invalid_request_error``. So codes, types and known messages of the body come first, then a status
in the body, then the status of the answer. Messages are compared at their beginning, because what
follows may quote the request.

Source: providers 3.6, 7, 8.5 and 10.4; contract 11.4; the HTML standard, "Interpreting an event
stream".
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol

from securebench.json_values import object_at
from securebench.protocol.messages import decode_object
from securebench.reasons import PROVIDER_AUTH, PROVIDER_QUOTA, PROVIDER_UNAVAILABLE
from securebench.sizes import MIB


class Kind(StrEnum):
    """Kinds of errors."""

    CONTENT = "content"
    CONTEXT = "context"
    MODEL = "model"
    CREDIT = "credit"
    RATE = "rate"
    KEY = "key"
    ACCOUNT = "account"
    OVERLOAD = "overload"
    STATUS = "status"
    """Only its status says something."""
    REQUEST = "request"
    """It says that the request is wrong, or nothing that is known."""


class Trouble(NamedTuple):
    """What an error stands for.

    Attributes:
        failure: Whose it is: a failure_reason of the provider, or empty for the agent.
    """

    kind: Kind
    failure: str = ""


CAUSES: Final[Mapping[Kind, str]] = {
    Kind.ACCOUNT: "the account may not use it",
    Kind.CREDIT: "the account has no credit or quota left",
    Kind.KEY: "the key is not valid",
    Kind.MODEL: "the model is not there",
    Kind.OVERLOAD: "it is overloaded or broken",
    Kind.RATE: "there were too many requests",
}
"""What records say of the provider's kinds."""

FAILURES: Final[Mapping[Kind, str]] = {
    Kind.ACCOUNT: PROVIDER_AUTH,
    Kind.CREDIT: PROVIDER_QUOTA,
    Kind.KEY: PROVIDER_AUTH,
    Kind.MODEL: PROVIDER_UNAVAILABLE,
    Kind.OVERLOAD: PROVIDER_UNAVAILABLE,
    Kind.RATE: PROVIDER_QUOTA,
}
"""Kinds that are the provider's; all others are the agent's."""

_LISTED: Final = 16
"""Maximum errors of a list that are read."""
DEPTH: Final = 6
"""Maximum nesting of errors: a proxy wraps the error of a server, as text too."""


def trouble_of(error: object, status: int = 0) -> Trouble:
    """Return what an error stands for.

    Args:
        error: Its body or event, decoded; None if it is not known.
        status: HTTP status of the answer; 0 for an error in a stream.
    """
    words, messages = set(), []
    found = status
    for name, value in _told(error, DEPTH):
        if name == "message":
            messages.append(_shortened(value))
        elif _STATUS.fullmatch(value):
            found = int(value)
        else:
            words.add(_plain(value))
    kind = _kind_of(words, messages)
    if kind is not None:
        return Trouble(kind, FAILURES.get(kind, ""))
    if found >= HTTPStatus.BAD_REQUEST:
        return Trouble(Kind.STATUS, failure_of_status(found) or failure_of_status(status))
    if words & _BROKEN or not words:
        return Trouble(Kind.OVERLOAD, PROVIDER_UNAVAILABLE)
    return Trouble(Kind.REQUEST)


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


_ANSWERS: Final = frozenset({0, *range(200, 300), *range(400, 500)})
"""Statuses of a provider that works: it answered, or the request is wrong."""


def _kind_of(words: set[str], messages: list[str]) -> Kind | None:
    by_word = next((kind for kind, known in _WORDS.items() if words & known), None)
    if by_word is not None:
        return by_word
    found = (kind for kind, known in _MESSAGES.items() if any(map(known.match, messages)))
    return next(found, None)


def _told(error: object, depth: int) -> Iterator[tuple[str, str]]:
    """Yield the codes and messages of an error: fields of its objects, however they are nested."""
    if depth == 0:
        return
    if isinstance(error, list):
        for one in error[:_LISTED]:
            yield from _told(one, depth - 1)
    elif isinstance(error, str):
        yield "message", error
        yield from _told(_inner(error), depth - 1)
    elif isinstance(error, dict):
        for name, value in error.items():
            if name in _NESTED or (name in _TEXTS and not isinstance(value, str)):
                yield from _told(value, depth - 1)
            elif name in _TEXTS:
                yield "message", value
                yield from _told(_inner(value), depth - 1)
            elif name in _CODES and isinstance(value, int | str) and value not in _EMPTY:
                yield name, str(value)


def _inner(text: str) -> object:
    """Return the error that a proxy's message consists of, or None.

    One that follows other words may be a quotation of the request.
    """
    quoted = re.sub("^b?['\"]", "", _shortened(text))
    if not quoted.startswith(("{", "[")):
        return None
    try:
        return json.JSONDecoder().raw_decode(quoted)[0]
    except (ValueError, RecursionError):
        # As Python writes an object: no JSON, so its texts are read one by one.
        return [{name: text or other} for name, text, other in _PYTHON.findall(quoted)]


def _shortened(message: str) -> str:
    """Return a message without the names that proxies put in front of it."""
    return _WRAPPERS.sub("", message[:_QUOTED_CHARACTERS]).strip()


def _plain(word: str) -> str:
    """Return a word so that ``InternalServerError`` is ``internal_server_error``."""
    return re.sub("[^a-z0-9]", "", word.lower())


def _plain_words(words: str) -> frozenset[str]:
    return frozenset(map(_plain, words.split()))


def _beginnings(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(f"(?:{pattern})" for pattern in patterns), re.IGNORECASE)


_STATUS: Final = re.compile("[45][0-9]{2}")
_PYTHON: Final = re.compile(
    r"""'(code|error|message|reason|status|type)': (?:'([^']*)'|"([^"]*)")"""
)
_QUOTED_CHARACTERS: Final = 4096
"""Maximum characters of a message that are compared."""
_EMPTY: Final = ("", "None", "null", None, True, False)
_NESTED: Final = frozenset(
    {"error", "errors", "details", "innererror", "inner_error", "metadata", "response"}
)
_TEXTS: Final = frozenset({"detail", "message", "msg", "raw"})
_CODES: Final = frozenset(
    {"__type", "code", "error_code", "error_type", "reason", "status", "type"}
)
_WRAPPERS: Final = re.compile(
    r"^(?:\s*(?:litellm\.)?[A-Za-z_]*(?:Error|Exception)\s*[:-]\s*"
    r"|\s*Error code: [0-9]{3} - |\s*(?:Upstream|Provider) error: |\s*[45][0-9]{2}:? )+"
)
_ACCOUNT: Final = "(?:this|your|the)? ?(?:organi[sz]ation|account|team|project|workspace)"

_WORDS: Final[Mapping[Kind, frozenset[str]]] = {
    Kind.CONTENT: _plain_words(
        "content_filter content_policy_violation ContentPolicyViolationError cyber_policy"
        " data_inspection_failed invalid_prompt moderation_blocked prompt_blocked"
        " ResponsibleAIPolicyViolation safety_violation sensitive_content"
    ),
    Kind.CONTEXT: _plain_words(
        "context_length_exceeded context_window_exceeded ContextWindowExceededError"
        " exceed_context_size_error model_context_window_exceeded request_too_large"
        " string_above_max_length"
    ),
    Kind.CREDIT: _plain_words(
        "Arrearage billing_error billing_hard_limit_reached billing_not_active budget_exceeded"
        " credit_limit credits_exhausted exceeded_current_quota_error insufficient_balance"
        " insufficient_credits insufficient_quota payment_required quota_exceeded"
        " usage_limit_reached usage_not_included"
    ),
    Kind.KEY: _plain_words(
        "API_KEY_INVALID auth_error AuthenticationError authentication_error expired_api_key"
        " expired_key incorrect_api_key invalid_api_key invalid_authentication_error"
        " invalid_organization InvalidSubscriptionKey token_not_found_in_db unauthenticated"
        " wrong_api_key"
    ),
    Kind.ACCOUNT: _plain_words(
        "access_terminated_error account_blocked account_deactivated account_suspended"
        " blocked_api_access BILLING_DISABLED CONSUMER_SUSPENDED ip_not_authorized"
        " organization_deactivated organization_restricted project_archived SERVICE_DISABLED"
        " unsupported_country_region_territory"
    ),
    Kind.MODEL: _plain_words(
        "DeploymentNotFound key_model_access_denied model_decommissioned model_not_active"
        " model_not_available model_not_found model_terms_required model_unavailable"
        " no_available_providers team_model_access_denied unknown_model"
    ),
    Kind.RATE: _plain_words(
        "rate_limit rate_limit_error RateLimitError rate_limit_exceeded"
        " rate_limit_reached_error RateLimitReached RESOURCE_EXHAUSTED throttling_error"
        " ThrottlingException too_many_requests TooManyRequests"
    ),
    Kind.OVERLOAD: _plain_words(
        "capacity_exceeded engine_overloaded_error model_overloaded NoCapacity overloaded"
        " overloaded_error server_is_overloaded server_overloaded slow_down"
        " service_unavailable_error ServiceUnavailableError unavailable unavailable_error"
    ),
}
"""Codes and types that mean one thing, whatever the status; earlier kinds come first."""

_BROKEN: Final = _plain_words(
    "api_connection_error api_error internal internal_error InternalError internal_server_error"
    " server_error timeout timeout_error"
)
"""Types that mean a broken server where no status says another thing."""

_MESSAGES: Final[Mapping[Kind, re.Pattern[str]]] = {
    Kind.MODEL: _beginnings(
        r"(?:the |requested |provided )*model\b.{0,200}?\b(?:does not exist|doesn't exist|not found"
        r"|not exist|is not available|is not found|is not supported|is not loaded|not available"
        r"|is no longer|has been (?:deprecated|decommissioned|removed|retired|shut down)"
        r"|has reached its end of life)",
        r"model: ",
        r"models/\S{1,200} is not (?:found|supported)",
        r".{0,200} is not a valid model(?: id| name)?\b",
        r".{0,80}invalid model(?: name|:| id)",
        r"no (?:allowed providers|endpoints found|deployments available|healthy deployments)",
        r"there are no healthy deployments",
        r"the api deployment for this resource does not exist",
        r"unknown model",
        r"publisher model .{0,200} (?:not found|was not found)",
    ),
    Kind.CONTENT: _beginnings(
        r".{0,120}\b(?:content (?:filter|management policy|filtering policy|policy)|usage polic)",
        r".{0,120}\brequires moderation",
        r".{0,120}\bflagged (?:as|by|for)\b",
    ),
    Kind.CONTEXT: _beginnings(
        r"prompt is too long",
        r".{0,160}\b(?:maximum context|max(?:imum)? (?:model|context|sequence) len|context length"
        r"|context window|context limit|context size|maximum number of (?:input )?tokens"
        r"|max_model_len|longer than the model)",
        r"input is too long",
        r"input (?:length|token)",
    ),
    Kind.CREDIT: _beginnings(
        r"(?:your )?credit balance is too low",
        r"(?:your account has )?insufficient (?:account )?(?:balance|credit|fund|quota)",
        r"you (?:have )?(?:exceeded|reached) your (?:current |specified |monthly |daily )*"
        r"(?:api )?(?:quota|usage|spend|budget|credit)",
        r"(?:billing|budget|spending|usage|key|monthly|daily|credit|free tier)[\w ]{0,40}"
        r"\b(?:exceeded|reached|exhausted)",
        r"(?:exceededbudget|budget has been exceeded)",
        r"this request requires more credits",
        r"your newly created team doesn't have any credits",
        r"(?:you have |your account has )?(?:no|not enough|run out of|used up your)"
        r" (?:\w+ )?credit",
        rf"{_ACCOUNT}.{{0,120}}\b(?:insufficient balance|spending limit|spend (?:alert|limit)"
        r"|billing|unpaid|arrears|overdue|credit)",
        r"access denied, please make sure your account is in good standing",
        r"payment required",
        r"(?:this|your) (?:free )?trial\b.{0,60}\b(?:ended|expired|over)",
        r"(?:please )?add (?:funds|credits)",
        r".{0,60}please enable billing",
        r"quota exceeded",
    ),
    Kind.KEY: _beginnings(
        r"(?:the |your )?(?:api|access|subscription|secret) ?(?:key|token)\b.{0,80}?"
        r"\b(?:not valid|invalid|expired|not found|revoked|is missing|incorrect|leaked|disabled)",
        r"(?:incorrect|invalid|wrong|missing|unknown|no) (?:x-)?(?:api[- ]?key|auth|access token"
        r"|authentication|credentials|bearer|proxy server token)",
        r"you didn't provide an api key",
        r"authentication (?:error|failed|fails|failure|required)",
        r"access denied due to invalid subscription key",
        r"unauthori[sz]ed",
        r"(?:user|key) not found",
        r"oauth token has",
    ),
    Kind.ACCOUNT: _beginnings(
        rf"{_ACCOUNT}\b.{{0,160}}?\b(?:disabled|deactivated|suspended|restricted|blocked|banned"
        r"|terminated|not active|must be verified|locked)",
        r"consumer '.{0,80}' has been suspended",
        r"(?:country|user location|your location|your region).{0,60}not (?:supported|available)",
        r"access denied due to virtual network",
        r"(?:generative language|cloud|vertex ai)[\w ]{0,40} has not been used in project",
    ),
    Kind.RATE: _beginnings(
        r"rate limit", r"too many requests", r"resource (?:has been )?exhausted"
    ),
    Kind.OVERLOAD: _beginnings(
        r"overloaded",
        r"(?:the |this |requested )*(?:model|server|service|engine|system)\b.{0,120}?\b"
        r"(?:overloaded|is (?:currently )?(?:loading|busy|starting)|at capacity|experiencing high)",
        r"loading model",
        r"(?:the )?service (?:is )?(?:currently |temporarily )?unavailable",
        r"llama runner process",
        r"model runner has unexpectedly stopped",
        r"no healthy upstream",
        r"upstream (?:connect|request)",
        r"(?:failed to )?(?:load|loading) (?:the )?model",
    ),
}
"""Messages of servers that use one code for many things, compared at their beginning."""


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
    return max((_count_at(place, name) for place in places for name in names), default=0)


def _count_at(usage: Mapping[str, object], name: str) -> int:
    """Return a token count; 0 if it is missing or invalid."""
    value = usage.get(name)
    is_count = isinstance(value, int) and not isinstance(value, bool)
    return min(max(value, 0), _COUNT_MAX) if is_count and isinstance(value, int) else 0
