"""The way out: one look-up per connection, every answer checked, a checked address dialled."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from securebench.egress.addresses import is_public
from securebench.egress.causes import Cause, RefusedError, UnreachableError
from securebench.egress.gateway.streams import CHUNK_BYTES, SocketStream, Stream

Resolve = Callable[[str], Awaitable[Sequence[str]]]
"""Returns all addresses of a canonical name; OSError when there is none."""
Connect = Callable[[str, int, ssl.SSLContext | None, str], Awaitable[Stream]]
"""Connects to (address, port), with TLS for the host name where there is a context."""

RESOLVER_THREADS = 64


class SystemResolver:
    """The resolver of the Pod, in threads of its own."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(RESOLVER_THREADS, thread_name_prefix="resolver")

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
        raise NotImplementedError
