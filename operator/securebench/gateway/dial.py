"""Outbound connections: one DNS look-up, all answers checked, then a checked address dialled.

The gateway connects only to public addresses (contract 11.3), and to addresses of the cluster for
a provider that the administrator allows there. Dialling the checked address, not the name, rules
out DNS rebinding.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import NamedTuple

from securebench.gateway.decisions import Cause, RefusedError, UnreachableError
from securebench.gateway.streams import CHUNK_BYTES, SocketStream, Stream

_GLOBAL_UNICAST = IPv6Network("2000::/3")
"""The only part of the IPv6 space that is allocated for the public internet."""

_NAT64 = IPv6Network("64:ff9b::/96")
"""RFC 6052: the last 32 bits are the IPv4 address that a translator connects to."""

_REFUSED_V4 = (
    IPv4Network("168.63.129.16/32"),  # the host of Azure's virtual machines
    IPv4Network("192.0.0.0/24"),  # protocol assignments
    IPv4Network("192.88.99.0/24"),  # 6to4 relays, withdrawn
)
_REFUSED_V6 = (
    IPv6Network("2001::/23"),  # protocol assignments: Teredo, benchmarking, ORCHID
    IPv6Network("2001:db8::/32"),  # documentation
    IPv6Network("2002::/16"),  # 6to4: an IPv4 address behind a relay
    IPv6Network("3fff::/20"),  # documentation
)

_INSIDE: tuple[IPv4Network | IPv6Network, ...] = (
    IPv4Network("10.0.0.0/8"),
    IPv4Network("100.64.0.0/10"),  # shared address space, of Pods in some clouds
    IPv4Network("172.16.0.0/12"),
    IPv4Network("192.168.0.0/16"),
    IPv6Network("fc00::/7"),  # unique local
)
_METADATA = frozenset(map(ip_address, ("100.100.100.200", "fd00:ec2::254", "fd20:ce::254")))
"""Of Alibaba Cloud, AWS and Google Cloud; the usual 169.254.169.254 is link-local."""


def is_public(address: str) -> bool:
    """Return whether a numeric address is public unicast.

    An address that embeds an IPv4 address (mapped, NAT64) counts as that IPv4 address; other
    tunnels, and addresses with a zone, are never public.
    """
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv4Address):
        return _is_public_v4(parsed)
    inner = _inner(parsed)
    return _is_public_v6(parsed) if inner is None else _is_public_v4(inner)


def is_inside(address: str) -> bool:
    """Return whether a provider inside the cluster may have a numeric address.

    Networks of clusters are private, shared (RFC 6598) or public; the loopback, link-local and
    special addresses never are, nor are the metadata services of clouds.
    """
    if is_public(address):
        return True
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address):
        if parsed.scope_id is not None:
            return False
        parsed = _inner(parsed) or parsed
    return parsed not in _METADATA and any(parsed in network for network in _INSIDE)


def _inner(address: IPv6Address) -> IPv4Address | None:
    if address.scope_id is not None:
        return None
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped


def _is_public_v4(address: IPv4Address) -> bool:
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not any(address in network for network in _REFUSED_V4)
    )


def _is_public_v6(address: IPv6Address) -> bool:
    return (
        address.scope_id is None
        and address in _GLOBAL_UNICAST
        and not any(address in network for network in _REFUSED_V6)
    )


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
