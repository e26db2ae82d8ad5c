"""Rules for requests to the model provider and for its responses.

Headers are rebuilt from allow-lists in both directions. The agent's body is read within the
gateway's limits; a request that is not forwarded gets a reason. The provider's key is masked in
responses, so that the agent never sees it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

from securebench.agents.providers.provider import ProviderRules, RequestRefusal
from securebench.errors import SecureBenchError
from securebench.gateway import account
from securebench.gateway.decisions import Cause, CutError, RefusedError
from securebench.gateway.targets import HTTP_PORT, HTTPS_PORT
from securebench.protocol.gateway import ProviderConfig
from securebench.reasons import PROVIDER_AUTH
from securebench.text import MINIMUM_BYTES, any_of, base64_forms, filled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from securebench.gateway.http1 import Exchange
    from securebench.gateway.launches import ServedLaunch

Headers = Iterable[tuple[bytes, bytes]]
"""Pairs of lower-case name and value, in the order of the message."""

USER_AGENT: Final = b"securebench"
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
        (b"user-agent", USER_AGENT),
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
