"""The provider's end of one request: a TLS connection of its own, never used again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NamedTuple

import h11

from securebench.agents.providers.provider import ProviderRules
from securebench.gateway.net.causes import Cause, RefusedError, UnreachableError
from securebench.gateway.net.http1 import OriginConnection
from securebench.gateway.net.streams import Stream
from securebench.gateway.server.context import RunGateway
from securebench.gateway.server.launch import ServedLaunch


class UpstreamRequest(NamedTuple):
    """What is sent.

    Attributes:
        provider: Whom it goes to.
        target: Path and query.
        headers: With the key.
        body: JSON.
        key: The key alone.
    """

    provider: ProviderRules
    target: str
    headers: list[tuple[bytes, bytes]]
    body: bytes
    key: bytes


class Upstream:
    """One request and its answer; whatever goes wrong there is an UnreachableError.

    Args:
        stream: To the provider, after the handshake.
        idle_seconds: Longest time without a byte.
    """

    def __init__(self, stream: Stream, idle_seconds: float) -> None:
        self._stream = stream
        self._idle = idle_seconds
        self._origin = OriginConnection(stream)
        self._body: AsyncIterator[bytes] | None = None

    @classmethod
    async def open(cls, gateway: RunGateway, launch: ServedLaunch, host: str) -> Upstream:
        """Connect to the provider; the allow-list has no say in it, the address rule has.

        Raises:
            UnreachableError: No public address, no connection or no valid certificate.
        """
        try:
            stream = await gateway.dial_provider(launch, host)
        except RefusedError as error:
            raise UnreachableError(error.reason, error.cause) from error
        except OSError as error:
            raise UnreachableError("The provider is not reachable.", Cause.UNREACHABLE) from error
        return cls(stream, gateway.config.limits.idle_seconds)

    async def ask(self, request: UpstreamRequest) -> None:
        """Send the request.

        Raises:
            UnreachableError: The provider does not take it.
        """
        async with self._guarded():
            await self._origin.start("POST", request.target, tuple(request.headers))
            await self._origin.send(request.body)
            await self._origin.finish()

    async def head(self) -> h11.Response:
        """Return the head of the final answer.

        Raises:
            UnreachableError: None came, or it is malformed.
        """
        while True:
            async with self._guarded():
                head = await self._origin.next_head()
            if isinstance(head, h11.Response):
                return head

    async def piece(self) -> bytes | None:
        """Return the next bytes of the answer's body as soon as they come, None at its end.

        Raises:
            UnreachableError: It ends too early, or nothing came for too long.
        """
        self._body = self._body or self._origin.body()
        async with self._guarded():
            return await anext(self._body, None)

    async def close(self) -> None:
        """Give the connection up; a request that is not answered yet is cancelled by it."""
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
