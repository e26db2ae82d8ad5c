"""Outbound connections: one DNS look-up, all answers checked, then a checked address dialled.

Dialling the checked address, not the name, rules out DNS rebinding.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from securebench.gateway.net.addresses import is_public
from securebench.gateway.net.causes import Cause, RefusedError, UnreachableError
from securebench.gateway.net.streams import CHUNK_BYTES, SocketStream, Stream

Resolve = Callable[[str], Coroutine[None, None, Sequence[str]]]
"""Returns all addresses of a canonical name; raises OSError if there are none."""
RESOLVER_THREADS = 64
PROVIDER_THREADS = 8
"""Reserved for the provider's name, so that agents' look-ups cannot delay it."""


class Endpoint(NamedTuple):
    """Where to connect to.

    Attributes:
        address: Numeric, already checked.
        host: Canonical name; used for SNI and certificate validation.
        tls: None for a plain connection.
    """

    address: str
    port: int
    host: str
    tls: ssl.SSLContext | None


Connect = Callable[[Endpoint], Awaitable[Stream]]
"""Opens a connection; raises OSError on failure."""


class SystemResolver:
    """The Pod's resolver, run in a private thread pool.

    Args:
        threads: Maximum number of concurrent look-ups.
    """

    def __init__(self, threads: int = RESOLVER_THREADS) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="resolver")

    async def __call__(self, host: str) -> list[str]:
        """Return the addresses of a name, without duplicates, in the resolver's order.

        The trailing dot makes the name absolute, so that the cluster's search list does not apply.

        Raises:
            OSError: There are none, or the resolver did not answer.
        """
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _addresses, f"{host}.")
        return list(dict.fromkeys(found))


class Dialer:
    """Connects to names on the public internet.

    Args:
        seconds: Time limit for resolving and connecting together.
        resolve: Resolves a name.
        connect: Connects to a numeric address.
    """

    def __init__(
        self, seconds: float, resolve: Resolve | None = None, connect: Connect | None = None
    ) -> None:
        self._seconds = seconds
        self._resolve = resolve or SystemResolver()
        self._connect = connect or connect_socket

    async def dial(
        self,
        lookups: asyncio.Semaphore,
        host: str,
        port: int,
        tls: ssl.SSLContext | None,
        is_allowed: Callable[[str], bool] = is_public,
    ) -> Stream:
        """Resolve a name once, check all its addresses, connect to the first that accepts.

        Args:
            lookups: Limits the concurrent look-ups of one launch.
            host: Canonical name.
            port: Port of the target.
            tls: Use TLS and require a valid certificate for the host.
            is_allowed: Whether an address may be connected to.

        Raises:
            RefusedError: An address of the name is not allowed.
            UnreachableError: No address, no connection or no valid certificate in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._seconds
        addresses = await self._look_up(lookups, host, deadline)
        if not all(is_allowed(address) for address in addresses):
            raise RefusedError(f"{host} has an address that is not public.", Cause.NOT_PUBLIC)
        for position, address in enumerate(addresses):
            share = (deadline - loop.time()) / (len(addresses) - position)
            with suppress(OSError):
                async with asyncio.timeout(share):
                    return await self._connect(Endpoint(address, port, host, tls))
        raise UnreachableError(f"{host} is not reachable on port {port}.", Cause.UNREACHABLE)

    async def _look_up(
        self, lookups: asyncio.Semaphore, host: str, deadline: float
    ) -> Sequence[str]:
        try:
            async with asyncio.timeout_at(deadline):
                await lookups.acquire()
                # A resolver thread cannot be cancelled, so its slot stays taken until it ends.
                task = asyncio.ensure_future(self._resolve(host))
                task.add_done_callback(partial(_looked_up, lookups))
                addresses = await asyncio.shield(task)
        except OSError:
            addresses = []
        if not addresses:
            raise UnreachableError(f"{host} has no address.", Cause.UNRESOLVED)
        return addresses


async def connect_socket(endpoint: Endpoint) -> Stream:
    """Connect to a numeric address, without name resolution.

    Raises:
        OSError: The connection fails, or the certificate is not valid for the host.
    """
    reader, writer = await asyncio.open_connection(
        endpoint.address,
        endpoint.port,
        limit=CHUNK_BYTES,
        ssl=endpoint.tls,
        server_hostname=None if endpoint.tls is None else endpoint.host,
    )
    return SocketStream(reader, writer)


def _addresses(host: str) -> list[str]:
    answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in answers]


def _looked_up(lookups: asyncio.Semaphore, task: asyncio.Task[Sequence[str]]) -> None:
    lookups.release()
    if not task.cancelled():
        task.exception()  # after a timeout nothing else retrieves it
