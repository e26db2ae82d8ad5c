"""Egress: one look-up per connection, every answer checked, a checked address dialled."""

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
"""Returns all addresses of a canonical name; OSError when there is none."""
RESOLVER_THREADS = 64
PROVIDER_THREADS = 8
"""For one name that never changes; none of the agents' look-ups is in their way."""


class Endpoint(NamedTuple):
    """Where to connect to.

    Attributes:
        address: In numbers, checked.
        port: Of the target.
        host: Canonical name; TLS asks for it and requires its certificate.
        tls: None: no TLS.
    """

    address: str
    port: int
    host: str
    tls: ssl.SSLContext | None


Connect = Callable[[Endpoint], Awaitable[Stream]]
"""Connects; OSError where that fails."""


class SystemResolver:
    """The resolver of the Pod, in threads of its own.

    Args:
        threads: Look-ups at once; more wait.
    """

    def __init__(self, threads: int = RESOLVER_THREADS) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="resolver")

    async def __call__(self, host: str) -> list[str]:
        """Return the addresses of a name, without duplicates, in the resolver's order.

        The name is asked for as it is: the dot at its end keeps the cluster's search list away.

        Raises:
            OSError: It has none, or the resolver did not answer.
        """
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._threads, _addresses, f"{host}.")
        return list(dict.fromkeys(found))


class Dialer:
    """Connects to names on the public internet.

    Args:
        seconds: For looking up and connecting together.
        resolve: Looks a name up.
        connect: Connects to a numeric address.
    """

    def __init__(
        self, seconds: float, resolve: Resolve | None = None, connect: Connect | None = None
    ) -> None:
        self._seconds = seconds
        self._resolve = resolve or SystemResolver()
        self._connect = connect or connect_socket

    async def dial(
        self, lookups: asyncio.Semaphore, host: str, port: int, tls: ssl.SSLContext | None
    ) -> Stream:
        """Look a name up once, check all its addresses, connect to the first that takes it.

        Args:
            lookups: Bounds the look-ups of one launch.
            host: Canonical name.
            port: Of the target.
            tls: Speak TLS and require a certificate of the host.

        Raises:
            RefusedError: An address of the name is not public.
            UnreachableError: No address, no connection or no valid certificate in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._seconds
        addresses = await self._look_up(lookups, host, deadline)
        if not all(is_public(address) for address in addresses):
            raise RefusedError(
                f"{host} has an address that is not of the public internet.", Cause.NOT_PUBLIC
            )
        for position, address in enumerate(addresses):
            share = (deadline - loop.time()) / (len(addresses) - position)
            with suppress(OSError):
                async with asyncio.timeout(share):
                    return await self._connect(Endpoint(address, port, host, tls))
        raise UnreachableError(f"{host} takes no connection on port {port}.", Cause.UNREACHABLE)

    async def _look_up(
        self, lookups: asyncio.Semaphore, host: str, deadline: float
    ) -> Sequence[str]:
        try:
            async with asyncio.timeout_at(deadline):
                await lookups.acquire()
                # A thread of the resolver cannot be stopped: the launch is charged until it ends.
                task = asyncio.ensure_future(self._resolve(host))
                task.add_done_callback(partial(_looked_up, lookups))
                addresses = await asyncio.shield(task)
        except OSError:
            addresses = []
        if not addresses:
            raise UnreachableError(f"{host} has no address.", Cause.UNRESOLVED)
        return addresses


async def connect_socket(place: Endpoint) -> Stream:
    """Connect to a numeric address; no name is looked up.

    Raises:
        OSError: Nothing takes the connection, or the certificate is not the host's.
    """
    reader, writer = await asyncio.open_connection(
        place.address,
        place.port,
        limit=CHUNK_BYTES,
        ssl=place.tls,
        server_hostname=None if place.tls is None else place.host,
    )
    return SocketStream(reader, writer)


def _addresses(host: str) -> list[str]:
    answers = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return [str(address[0]) for *_, address in answers]


def _looked_up(lookups: asyncio.Semaphore, task: asyncio.Task[Sequence[str]]) -> None:
    lookups.release()
    if not task.cancelled():
        task.exception()  # after a time-out nobody else takes it
