"""One request to the provider: its rules, its way there, and its response with the usage.

Headers are rebuilt from allow-lists in both directions. The agent's body is read within the
gateway's limits; a request that is not forwarded gets a reason. Each request has its own TLS
connection, which is never reused. The provider's key is masked in the response, which is streamed
back, so that the agent never sees it; the usage is added to the launch's totals.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Final, NamedTuple

import h11

from securebench.agents.providers.answers import (
    CAUSES,
    CHARACTERS_PER_TOKEN,
    AnswerReader,
    DocumentReader,
    Kind,
    StreamReader,
    TokenUsage,
    Trouble,
    trouble_of,
)
from securebench.agents.providers.provider import ProviderRules, RequestRefusal
from securebench.errors import SecureBenchError
from securebench.gateway import account
from securebench.gateway.decisions import Cause, CutError, RefusedError, UnreachableError
from securebench.gateway.http1 import Exchange, OriginConnection
from securebench.gateway.launches import ServedLaunch
from securebench.gateway.run_gateway import RequestTokens, RunGateway
from securebench.gateway.streams import Stream
from securebench.gateway.targets import HTTP_PORT, HTTPS_PORT
from securebench.protocol.gateway import MAX_CAUSE_CHARACTERS, ProviderConfig
from securebench.reasons import PROVIDER_AUTH, PROVIDER_UNAVAILABLE, PROVIDER_USAGE
from securebench.text import MINIMUM_BYTES, any_of, base64_forms, filled

Headers = Iterable[tuple[bytes, bytes]]
"""Pairs of lower-case name and value, in the order of the message."""

_USER_AGENT: Final = b"securebench"
"""Replaces the agent's own: providers reject or throttle some user agents."""

_FORWARDED: Final = frozenset({b"accept"})
_FORWARDED_PREFIXES: Final = (b"x-stainless-",)
"""Sent by the SDKs of most providers."""
_CHECKED: Final = frozenset({b"content-type", b"content-encoding"})
"""Not relayed, but must be unambiguous."""

_RETURNED: Final = frozenset(
    {
        b"cache-control",
        b"content-type",
        b"date",
        b"request-id",
        b"retry-after",
        b"retry-after-ms",
        b"x-reasoning-included",
        b"x-request-id",
        b"x-should-retry",
    }
)
_RETURNED_PREFIXES: Final = (b"anthropic-ratelimit-", b"x-ratelimit-", b"openai-")


class RefusedHeadersError(SecureBenchError):
    """The request's headers are ambiguous, or its body is encoded and cannot be inspected."""


def upstream_headers(
    provider: ProviderRules, host: bytes, received: Headers, key: bytes, size_bytes: int
) -> list[tuple[bytes, bytes]]:
    """Return the headers of the request to the provider.

    Args:
        provider: Defines the allow-list and the key header.
        host: Value of the host field.
        received: Headers of the agent.
        key: The real key, or empty; the agent's dummy key is dropped.
        size_bytes: Size of the body that is sent.

    Raises:
        RefusedHeadersError: A relayed header occurs twice, or the body is compressed.
    """
    pairs = [(name, value) for name, value in received if _is_forwarded(name, provider)]
    counts = Counter(name for name, _ in pairs)
    twice = sorted(name.decode("latin-1") for name, count in counts.items() if count > 1)
    if twice:
        raise RefusedHeadersError(
            f"the header {twice[0]} occurs twice in the request; send it once"
        )
    encoding = dict(pairs).get(b"content-encoding", b"identity").strip().lower()
    if encoding != b"identity":
        raise RefusedHeadersError("compressed request bodies are not relayed; send plain JSON")
    return [
        (b"host", host),
        *([(provider.key_header, provider.key_prefix + key)] if key else []),
        (b"content-type", b"application/json"),
        (b"content-length", str(size_bytes).encode()),
        (b"accept-encoding", b"identity"),
        (b"user-agent", _USER_AGENT),
        (b"connection", b"close"),
        *((name, value) for name, value in pairs if name not in _CHECKED),
    ]


def host_of(place: ProviderConfig) -> bytes:
    """Return the host field of requests to a provider."""
    is_usual = place.port == (HTTP_PORT if place.is_plain else HTTPS_PORT)
    return (place.host if is_usual else f"{place.host}:{place.port}").encode()


def agent_headers(received: Headers) -> list[tuple[bytes, bytes]]:
    """Return the response headers for the agent, without framing."""
    return [
        (name, value)
        for name, value in received
        if name in _RETURNED or name.startswith(_RETURNED_PREFIXES)
    ]


def _is_forwarded(name: bytes, provider: ProviderRules) -> bool:
    return (
        name in _FORWARDED
        or name in _CHECKED
        or name in provider.headers
        or name.startswith((*_FORWARDED_PREFIXES, *provider.header_prefixes))
    )


class KeyMask:
    """Replaces a key in a stream with filler of the same length.

    It matches the key itself and its base64 encodings at all three offsets, as far as they depend
    on the key alone. Chunks may end anywhere; only a possible beginning of the key is held back.
    """

    def __init__(self, key: bytes) -> None:
        forms = {key, *base64_forms(key)} if len(key) >= MINIMUM_BYTES else set()
        self._pattern = any_of(forms)
        self._beginnings = frozenset(form[:size] for form in forms for size in range(1, len(form)))
        self._longest = max(map(len, self._beginnings), default=0)
        self._held = b""
        self.found = 0
        """How often the key was replaced."""

    def feed(self, data: bytes) -> bytes:
        """Return the bytes that can be passed on now."""
        masked = self.whole(self._held + data)
        cut = len(masked) - self._held_size(masked)
        self._held = masked[cut:]
        return masked[:cut]

    def rest(self) -> bytes:
        """Return the bytes held back, at the end of the stream."""
        held, self._held = self._held, b""
        return held

    def whole(self, data: bytes) -> bytes:
        """Mask a complete piece of data, such as a header value."""
        masked, count = self._pattern.subn(filled, data)
        self.found += count
        return masked

    def _held_size(self, data: bytes) -> int:
        sizes = range(min(self._longest, len(data)), 0, -1)
        return next((size for size in sizes if data[-size:] in self._beginnings), 0)


_CAUSES = {
    RequestRefusal.NOT_RELAYED: Cause.PATH,
    RequestRefusal.BAD_REQUEST: Cause.BAD_REQUEST,
    RequestRefusal.TOO_LARGE: Cause.TOO_LARGE,
    RequestRefusal.BUDGET: Cause.BUDGET,
    RequestRefusal.RUN_BUDGET: Cause.RUN_BUDGET,
    RequestRefusal.NO_USAGE: Cause.BUDGET,
}
_OBSTACLES = {
    RequestRefusal.BUDGET: (
        "the budget of this task is used up; no further request is sent to the model"
    ),
    RequestRefusal.RUN_BUDGET: (
        "the token budget of the whole run is used up; no further request is sent to the model"
    ),
    RequestRefusal.NO_USAGE: (
        "the model provider reports no tokens, so the token budget of this run cannot be kept; tell"
        " the tester"
    ),
    RequestRefusal.KEY_REFUSED: "the model provider rejects the key of this run; tell the tester",
}


class RefusedCallError(SecureBenchError):
    """A request that is not forwarded.

    Args:
        refusal: Determines the response.
        reason: Message for the agent.
        kinds: Kinds of hosted tools that it asked for.
    """

    def __init__(self, refusal: RequestRefusal, reason: str, kinds: tuple[str, ...] = ()) -> None:
        super().__init__(reason)
        self.refusal = refusal
        self.kinds = kinds

    @property
    def cause(self) -> str:
        """Return the reason for the decision log."""
        if self.kinds:
            return Cause.HOSTED_TOOL.value
        cause = _CAUSES.get(self.refusal)
        return PROVIDER_AUTH if cause is None else cause.value


def obstacle_error(refusal: RequestRefusal) -> RefusedCallError:
    """Return the error for what no request of this launch gets past: a budget or the key."""
    return RefusedCallError(refusal, _OBSTACLES[refusal])


def check_obstacle(launch: ServedLaunch, config: ProviderConfig) -> None:
    """Refuse a request of a launch that may not send any.

    Raises:
        RefusedCallError: A budget is used up, or the provider rejects the key.
    """
    found = account.obstacle(launch.relay, config)
    if found is not None:
        raise obstacle_error(found)


BODY_SECONDS = 60.0
"""Time limit for the body of one request; it only comes from the sidecar."""


class RequestBody:
    """The body of one request.

    Args:
        exchange: The request.
        limit_bytes: Largest size.
    """

    def __init__(self, exchange: Exchange, limit_bytes: int) -> None:
        self._exchange = exchange
        self._limit_bytes = limit_bytes
        self._is_read = False

    @property
    def most_bytes(self) -> int:
        """Largest size that the head allows; a chunked request announces none."""
        announced = self._exchange.head.length
        return self._limit_bytes if announced is None else min(announced, self._limit_bytes)

    @property
    def is_pending(self) -> bool:
        """Whether there is a body of which something is not read."""
        return self._exchange.head.has_body and not self._is_read

    async def read(self) -> bytes:
        """Return it as a whole.

        Raises:
            RefusedCallError: It is malformed or too large.
            CutError: It did not arrive in time.
        """
        async with _limits():
            data = await self._exchange.whole_body(self._limit_bytes)
        self._is_read = True
        return data

    async def discard(self) -> None:
        """Read what is not needed, so that the connection stays usable; raises as ``read``."""
        async with _limits():
            async for _ in self._exchange.body():
                pass
        self._is_read = True


@asynccontextmanager
async def _limits() -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(BODY_SECONDS):
            yield
    except TimeoutError:
        raise CutError(
            f"The body did not arrive within {BODY_SECONDS:g} seconds.", Cause.IDLE
        ) from None
    except RefusedError as error:
        is_large = error.cause is Cause.TOO_LARGE
        kind = RequestRefusal.TOO_LARGE if is_large else RequestRefusal.BAD_REQUEST
        raise RefusedCallError(kind, error.reason) from error


class UpstreamRequest(NamedTuple):
    """A request to the provider.

    Attributes:
        provider: Its API.
        place: Where it is.
        target: Path and query.
        headers: Including the key.
        body: JSON.
        key: The key alone, to mask it in the response; may be empty.
        is_streamed: Whether the body asks for a stream of events.
        model: Its name in the body; may be empty.
    """

    provider: ProviderRules
    place: ProviderConfig
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    key: bytes
    is_streamed: bool
    model: str


class Upstream:
    """One request to the provider and its response; every failure is an UnreachableError.

    Args:
        stream: To the provider, after the TLS handshake.
        idle_seconds: Maximum time without data.
    """

    def __init__(self, stream: Stream, idle_seconds: float) -> None:
        self._stream = stream
        self._idle = idle_seconds
        self._origin = OriginConnection(stream)
        self._body: AsyncIterator[bytes] | None = None

    @classmethod
    async def open(
        cls, gateway: RunGateway, launch: ServedLaunch, place: ProviderConfig
    ) -> Upstream:
        """Connect to the provider; exempt from the allow-list but not from the address check.

        Raises:
            UnreachableError: No allowed address, no connection or no valid certificate.
        """
        try:
            stream = await gateway.dial_provider(launch, place)
        except RefusedError as error:
            raise UnreachableError(error.reason, error.cause) from error
        except OSError as error:
            raise UnreachableError("The provider is not reachable.", Cause.UNREACHABLE) from error
        return cls(stream, gateway.config.limits.idle_seconds)

    async def ask(self, request: UpstreamRequest) -> None:
        """Send the request.

        Raises:
            UnreachableError: The provider did not accept it.
        """
        async with self._guarded():
            await self._origin.start("POST", request.target, tuple(request.headers))
            await self._origin.send(request.body)
            await self._origin.finish()

    async def head(self) -> h11.Response:
        """Return the head of the final response.

        Raises:
            UnreachableError: There was none, or it is malformed.
        """
        while True:
            async with self._guarded():
                head = await self._origin.next_head()
            if isinstance(head, h11.Response):
                return head

    async def piece(self) -> bytes | None:
        """Return the next bytes of the response's body as they arrive, None at its end.

        Raises:
            UnreachableError: It is truncated, or nothing arrived for too long.
        """
        self._body = self._body or self._origin.body()
        async with self._guarded():
            return await anext(self._body, None)

    async def close(self) -> None:
        """Close the connection, which cancels a request that is not answered yet."""
        await self._stream.close()

    @asynccontextmanager
    async def _guarded(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._idle):
                yield
        except TimeoutError:
            raise UnreachableError(
                f"The provider was silent for {self._idle:g} seconds.", Cause.IDLE
            ) from None
        except OSError as error:
            raise UnreachableError("The provider ended the connection.", Cause.BROKEN) from error


WAIT_SECONDS: Final = 5.0
"""If the agent blocked the response for longer than this before it broke, the agent is to blame.

Providers drop clients that do not read; a program that reads its response never blocks this long.
"""
ANSWER_TOKENS: Final = 32_000
"""Tokens reserved for a response in progress: the most that Claude Code asks for."""
_MAX_ANSWER_TOKENS: Final = 128_000
"""Upper bound of a response in progress: the longest that models give."""
READ_ON_SECONDS: Final = 5.0
"""How long to read the rest of a response after the agent left: its end holds the usage."""
_ERROR_BYTES: Final = 64 * 1024
"""Bytes of an error's body that are read before it is passed on, to see whose trouble it is."""
_REDIRECTS: Final = range(300, 400)


class KeyRefusedError(Exception):
    """The provider rejects the key; the agent has no response yet."""


def request_tokens(body_bytes: int) -> RequestTokens:
    """Return what a request of a size may use; a token has at least one byte."""
    expected = body_bytes // CHARACTERS_PER_TOKEN + ANSWER_TOKENS
    return RequestTokens(expected, body_bytes + _MAX_ANSWER_TOKENS)


class ProviderCall:
    """One request to the provider; its usage is added to the launch's totals however it ends.

    Args:
        request: Already counted as sent.
        exchange: Receives the response.

    Attributes:
        failure: Provider failure as a failure_reason of records, or empty.
        usage: Tokens added to the launch's totals.
    """

    def __init__(
        self,
        request: UpstreamRequest,
        exchange: Exchange,
        launch: ServedLaunch,
        gateway: RunGateway,
    ) -> None:
        self.failure = ""
        self.usage = TokenUsage()
        self._request = request
        self._exchange = exchange
        self._launch = launch
        self._gateway = gateway
        self._meter = request.provider.meter()
        self._mask = KeyMask(request.key)
        self._is_error = False
        self._model = request.model
        self._trouble = Trouble(Kind.OVERLOAD, PROVIDER_UNAVAILABLE)
        self._refusal = (0, "")
        self._cause = ""
        self._has_answer = False
        self._reader: AnswerReader | None = None
        self._reading: asyncio.Future[bytes | None] | None = None
        self._is_over = False
        self._waited_seconds = 0.0
        self._is_streamed = request.is_streamed
        self._body_bytes = len(request.body)
        self._turn = gateway.bodies.turn(launch)
        self._reserve(1)

    @property
    def echoes(self) -> int:
        """How often the response contained the key."""
        return self._mask.found

    @property
    def used_tokens(self) -> int:
        """Input and output that were added to the launch's totals."""
        return self.usage.input_tokens + self.usage.output_tokens

    async def run(self, sent: Callable[[], None]) -> None:
        """Send the request and stream the response; cancellation abandons the request.

        Args:
            sent: Called once the body is no longer needed.

        Raises:
            KeyRefusedError: The provider rejects the key; the caller answers the agent.
            UnreachableError: The provider failed; the response may have begun.
            CutError: The agent did not read for too long, or reached its byte limit.
            OSError: The agent closed the connection.
        """
        try:
            await self._run(sent)
        except UnreachableError as error:
            self._broke(error.cause)
            self._cause = error.reason.removesuffix(".")[:MAX_CAUSE_CHARACTERS]
            raise
        finally:
            end = self._ended()
            self.failure, self.usage = end.failure, end.usage
            self._launch.update_relay(account.ended(self._launch.relay, end))
            self._reserve(-1)
            self._note_wait(end)

    def _note_wait(self, end: account.UsageEnd) -> None:
        """Note whether the agent now waits until it asks again."""
        if end.failure and end.failure != PROVIDER_USAGE:
            self._launch.back_off.call_failed(*self._refusal)
        elif not end.is_abandoned:
            self._launch.back_off.ended()

    def _reserve(self, sign: int) -> None:
        """Reserve the tokens that the request may use, or release them."""
        tokens = request_tokens(self._body_bytes).expected
        config = self._gateway.config.provider
        left = None if config is None else account.tokens_left(self._launch.relay, config)
        self._turn.reserve(sign * tokens, left)

    async def _run(self, sent: Callable[[], None]) -> None:
        upstream = await Upstream.open(self._gateway, self._launch, self._request.place)
        try:
            await self._ask(upstream)
            sent()
            await self._relay(upstream)
        finally:
            try:
                await self._read_on(upstream)
            finally:
                if self._reading is not None:
                    self._reading.cancel()
                await upstream.close()

    async def _ask(self, upstream: Upstream) -> None:
        await upstream.ask(self._request)
        self._request = self._request._replace(body=b"")

    async def _relay(self, upstream: Upstream) -> None:
        head = await upstream.head()
        self._check_head(head)
        begun = await self._error_body(upstream, head) if self._is_error else b""
        self._has_answer = True
        headers = agent_headers((name, self._mask.whole(value)) for name, value in head.headers)
        if _is_compressed(head):
            await self._relay_status(head.status_code, headers)
            return
        self._reader = None if self._is_error else self._reader_of(head)
        await self._exchange.start(head.status_code, tuple(headers))
        await self._send(self._mask.feed(begun))
        while (piece := await self._next(upstream)) is not None:
            await self._send(self._mask.feed(piece))
        if not self._meter.has_gap:
            self._broke(Cause.BROKEN)
        self._is_over = self._waited_seconds <= WAIT_SECONDS
        await self._send(self._mask.rest())
        await self._exchange.finish()

    async def _relay_status(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Pass on an error without its body, which is compressed: the mask cannot read it."""
        kind = RequestRefusal.UNAVAILABLE if self.failure else RequestRefusal.BAD_REQUEST
        told = f"the provider answered with status {status}; its message was compressed"
        body = self._request.provider.refusal(kind, f"securebench: {told}").body
        own = (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))
        kept = (pair for pair in headers if pair[0] != b"content-type")
        await self._exchange.start(status, (*own, *kept))
        await self._send(body)
        await self._exchange.finish()

    async def _next(self, upstream: Upstream) -> bytes | None:
        """Return the next bytes of the response, None at its end.

        Safe to cancel: the next call continues where this one stopped.
        """
        self._reading = self._reading or asyncio.ensure_future(upstream.piece())
        piece = await asyncio.shield(self._reading)
        self._reading = None
        if self._reader is not None and piece is not None:
            self._reader.feed(piece)
        elif self._reader is not None:
            self._reader.end()
            self._reader = None
        return piece

    async def _read_on(self, upstream: Upstream) -> None:
        """Read the rest of a response whose agent left, unless the launch is ending."""
        if self._launch.is_closing:
            return
        with suppress(UnreachableError, TimeoutError):
            async with asyncio.timeout(READ_ON_SECONDS):
                while self._reader is not None and not self._meter.is_complete:
                    await self._next(upstream)

    def _broke(self, cause: Cause) -> None:
        """Blame the provider for a truncated response, unless the agent caused it."""
        is_slow = self._waited_seconds > WAIT_SECONDS
        is_long = cause is Cause.IDLE and not self._is_streamed
        if not (self._is_error or self._meter.is_complete or is_slow or is_long):
            self.failure = PROVIDER_UNAVAILABLE
            self._cause = "its answer ended too early or is none of its API"

    def _check_head(self, head: h11.Response) -> None:
        """Note what the head of the response says.

        Raises:
            UnreachableError: The response cannot be passed on.
        """
        status = head.status_code
        if status in _REDIRECTS:
            raise UnreachableError(
                "The provider answered with a redirect, which is not followed.", Cause.BROKEN
            )
        if _is_compressed(head) and status < HTTPStatus.BAD_REQUEST:
            raise UnreachableError(
                "The provider's answer is compressed although it was asked not to be.",
                Cause.BROKEN,
            )
        self._is_error = status != HTTPStatus.OK
        if not self._is_error:
            self._launch.back_off.answer_began()
            self._launch.update_relay(account.answered(self._launch.relay, self._request.model))

    async def _error_body(self, upstream: Upstream, head: h11.Response) -> bytes:
        """Read the beginning of an error's body and classify the error.

        Raises:
            KeyRefusedError: The provider rejects the key.
            UnreachableError: The body broke.
        """
        status, begun = head.status_code, bytearray()
        try:
            while not _is_compressed(head) and len(begun) < _ERROR_BYTES:
                piece = await self._next(upstream)
                if piece is None:
                    break
                begun += piece
        finally:
            self._refuse(head, trouble_of(_decoded(begun), status))
        # Once the key was taken, only a 401 is final: the agent may ask again after a 403.
        is_final = status == HTTPStatus.UNAUTHORIZED or not self._launch.relay.is_key_taken
        if self.failure == PROVIDER_AUTH and is_final:
            raise KeyRefusedError
        return bytes(begun)

    def _refuse(self, head: h11.Response, trouble: Trouble) -> None:
        """Note an error of the provider, and whose trouble it is."""
        status = head.status_code
        retry_after = dict(head.headers).get(b"retry-after", b"")
        self._refusal = status, retry_after.decode("latin-1")
        self.failure = self._settled(trouble, status)
        told = CAUSES.get(trouble.kind)
        self._trouble = trouble
        self._cause = f"its answer had status {status}" + (f": {told}" if told else "")

    def _settled(self, trouble: Trouble, status: int = 0) -> str:
        """Return the provider's failure that an error is, or empty where it is the agent's.

        A model that is not there, or a 403, is about what the agent asked for once the provider
        answered another model: an agent could otherwise have any attempt repeated. An error that
        says nothing that is known is the provider's while no request of the run was answered.
        """
        answered = self._gateway.answered_models | {*self._launch.relay.answered_models}
        named = "" if self._gateway.config.provider is None else self._gateway.config.provider.model
        is_other = bool(answered) and self._model not in {*answered, named}
        is_about_model = trouble.kind is Kind.MODEL or (
            trouble.kind is Kind.STATUS and status == HTTPStatus.FORBIDDEN
        )
        return "" if is_about_model and is_other else trouble.failure

    def _reader_of(self, head: h11.Response) -> AnswerReader:
        kind = dict(head.headers).get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind == b"text/event-stream":
            return StreamReader(self._meter)
        return DocumentReader(self._meter)

    async def _send(self, piece: bytes) -> None:
        if not piece:
            return
        idle = self._gateway.config.limits.idle_seconds
        began = self._gateway.monotonic()
        try:
            async with asyncio.timeout(idle):
                await self._exchange.send(piece)
        except TimeoutError:
            raise CutError(f"The agent did not read for {idle:g} seconds.", Cause.IDLE) from None
        finally:
            self._waited_seconds += self._gateway.monotonic() - began

    def _ended(self) -> account.UsageEnd:
        meter = self._meter
        if meter.trouble is not None and not self.failure:
            self.failure = self._settled(meter.trouble)
            self._trouble = meter.trouble
            self._cause = CAUSES.get(meter.trouble.kind, "its answer was an error")
        has_usage = meter.usage != TokenUsage()
        is_read = meter.is_complete and has_usage and not meter.has_gap
        is_unbegun = bool(self.failure) and not meter.characters
        is_counted = is_unbegun or self._is_error or (is_read and not self.failure)
        is_good = not (self._is_error or self.failure or meter.trouble)
        is_unreported = is_good and meter.is_complete and not (has_usage or meter.has_gap)
        self._note_answer(is_answered=self._has_answer and is_good)
        if is_unreported and self._has_token_budget:
            self.failure = PROVIDER_USAGE
        return account.UsageEnd(
            meter.usage if is_counted else self._estimate(),
            self.failure,
            self._cause if self.failure else "",
            is_unreported,
            not (is_counted or self._is_over),
        )

    def _note_answer(self, *, is_answered: bool) -> None:
        """Note whether the provider has answered anything in this run, or else why not."""
        if is_answered:
            self._gateway.answered_models.add(self._model)
        if self._gateway.answered_models:
            self._launch.note_unanswered("")
        elif self._trouble.failure or self._trouble.kind in {Kind.STATUS, Kind.REQUEST}:
            self._launch.note_unanswered(self._cause or "the agent left before it answered")

    @property
    def _has_token_budget(self) -> bool:
        config = self._gateway.config.provider
        return config is not None and (config.max_tokens, config.run_tokens) != (None, None)

    def _estimate(self) -> TokenUsage:
        """Estimate the tokens of a response that is unfinished or says nothing of its usage.

        Otherwise aborting it, or a server that does not count, would save budget.
        """
        seen = self._meter.usage
        if not self._has_answer:
            return seen
        return seen._replace(
            input_tokens=seen.input_tokens or self._body_bytes // CHARACTERS_PER_TOKEN,
            output_tokens=max(seen.output_tokens, self._meter.characters // CHARACTERS_PER_TOKEN),
        )


def _decoded(body: bytes | bytearray) -> object:
    """Return the JSON of an error's body, or None."""
    try:
        value: object = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value


def _is_compressed(head: h11.Response) -> bool:
    """Return whether any header says that the body is encoded, although the request forbade it."""
    return any(
        name == b"content-encoding" and value.strip().lower() != b"identity"
        for name, value in head.headers
    )
