"""Headers are rebuilt in both directions: what is not listed does not pass."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from securebench.agents.providers.provider import ProviderRules
from securebench.core.errors import SecureBenchError

Headers = Iterable[tuple[bytes, bytes]]
"""Pairs of lower-case name and value, in the order of the message."""

USER_AGENT: Final = b"securebench"
"""The agent has no say in it: providers refuse or slow down some."""

_ASKED: Final = frozenset({b"accept"})
_ASKED_PREFIXES: Final = (b"x-stainless-",)
"""Of the SDKs that most providers have."""
_CHECKED: Final = frozenset({b"content-type", b"content-encoding"})
"""Not relayed, but must be unambiguous."""

_ANSWERED: Final = frozenset(
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
_ANSWERED_PREFIXES: Final = (b"anthropic-ratelimit-", b"x-ratelimit-", b"openai-")


class RefusedHeadersError(SecureBenchError):
    """The head of a request is ambiguous, or the body has a form that cannot be looked into."""


def upstream_headers(
    provider: ProviderRules, received: Headers, key: bytes, size_bytes: int
) -> list[tuple[bytes, bytes]]:
    """Return the head of the request to the provider.

    Args:
        provider: Whom it goes to.
        received: What the agent sent.
        key: The real one; the agent's own is dropped.
        size_bytes: Of the body that is sent.

    Raises:
        RefusedHeadersError: A header that counts stands there twice, or the body is compressed.
    """
    pairs = [(name, value) for name, value in received if _is_asked(name, provider)]
    counts = Counter(name for name, _ in pairs)
    twice = sorted(name.decode("latin-1") for name, count in counts.items() if count > 1)
    if twice:
        raise RefusedHeadersError(f"the header {twice[0]} stands twice in the request; send one")
    encoding = dict(pairs).get(b"content-encoding", b"identity").strip().lower()
    if encoding != b"identity":
        raise RefusedHeadersError("compressed request bodies are not relayed; send plain JSON")
    return [
        (b"host", provider.host.encode()),
        (provider.key_header, provider.key_prefix + key),
        (b"content-type", b"application/json"),
        (b"content-length", str(size_bytes).encode()),
        (b"accept-encoding", b"identity"),
        (b"user-agent", USER_AGENT),
        (b"connection", b"close"),
        *((name, value) for name, value in pairs if name not in _CHECKED),
    ]


def agent_headers(received: Headers) -> list[tuple[bytes, bytes]]:
    """Return what the agent is told of the head of an answer, framing left out."""
    return [
        (name, value)
        for name, value in received
        if name in _ANSWERED or name.startswith(_ANSWERED_PREFIXES)
    ]


def _is_asked(name: bytes, provider: ProviderRules) -> bool:
    return (
        name in _ASKED
        or name in _CHECKED
        or name in provider.headers
        or name.startswith((*_ASKED_PREFIXES, *provider.header_prefixes))
    )
