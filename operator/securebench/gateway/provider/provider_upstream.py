"""The connection to the provider: TLS, one per request, never reused."""

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
from securebench.protocol.gateway import ProviderConfig


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
