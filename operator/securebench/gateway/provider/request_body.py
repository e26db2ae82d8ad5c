"""The body of an agent's request to the model provider, read within the gateway's limits."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from securebench.agents.providers.provider import RequestRefusal
from securebench.gateway.net.causes import Cause, CutError, RefusedError
from securebench.gateway.provider.refused_call import RefusedCallError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from securebench.gateway.net.http1 import Exchange

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
