"""Rebuild headers from allow-lists, in both directions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from securebench.agents.providers.provider import ProviderRules
from securebench.errors import SecureBenchError
from securebench.gateway.net.ports import HTTP_PORT, HTTPS_PORT
from securebench.protocol.gateway import ProviderConfig

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
