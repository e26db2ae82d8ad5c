"""How the sidecar ``egress-proxy`` gets a connection to the run's gateway."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

from securebench.protocol.sidecar import ACCEPTED, MAGIC, PREFACE_BYTES, REFUSED, Route

if TYPE_CHECKING:
    from pathlib import Path

CHUNK_BYTES = 16 * 1024
"""Read at once; twice as much is buffered of each direction before the sender has to wait, and
what asyncio keeps for the receiver by default."""

REPLY_BYTES = 512
"""Longest first line of the gateway."""

REPLY_SECONDS = 15.0
"""For the gateway to take the connection and to answer the preface; it resolves nothing by then."""

ABSENT = frozenset({errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH})
"""Errors of a connection to an address at which nothing listens, or to which there is no way.

Silence is none of them: an agent fills the gateway's queue by connections of its own. Nor are
errors of this machine, whose ports and descriptors it can use up.
"""

NO_LINGER = struct.pack("ii", 1, 0)
"""Closing sends a reset, so that a cut answer is not taken for a whole one."""


class GatewayStream(NamedTuple):
    """Both directions of one connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class GatewayRefusedError(Exception):
    """The gateway said no."""


class GatewayUnreachableError(Exception):
    """The gateway did not answer as it should."""


class AbsentError(GatewayUnreachableError):
    """Nothing takes connections at the gateway's address."""


async def dial(host: str, port: int, token: Path, route: Route) -> GatewayStream:
    """Return a connection to the gateway that it has accepted for a route.

    Args:
        host: Numeric address of the gateway.
        port: Its port.
        token: File with the launch's token.
        route: What the connection is for.

    Raises:
        GatewayRefusedError: It says no.
        AbsentError: It is not there.
        GatewayUnreachableError: It says nothing, or what it never says; or there is no token.
    """
    try:
        preface = _preface(route, token)
        async with asyncio.timeout(REPLY_SECONDS):
            stream = await _connect(host, port)
            try:
                await _introduce(stream, preface)
            except BaseException:
                cut(stream)
                raise
    except TimeoutError:
        raise GatewayUnreachableError(f"no answer within {REPLY_SECONDS:g} seconds") from None
    except (OSError, ValueError) as error:
        raise GatewayUnreachableError(str(error) or type(error).__name__) from error
    return stream


def cut(stream: GatewayStream) -> None:
    """Close at once, with a reset where it is still open."""
    with contextlib.suppress(OSError):  # it is closed
        raw: socket.socket = stream.writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    stream.writer.transport.abort()


def _preface(route: Route, token: Path) -> bytes:
    preface = f"{MAGIC} {route.value} {token.read_text('ascii').strip()}\n".encode("ascii")
    if len(preface) > PREFACE_BYTES:
        raise GatewayUnreachableError("the token is too long")
    return preface


async def _connect(host: str, port: int) -> GatewayStream:
    try:
        return GatewayStream(*await asyncio.open_connection(host, port, limit=CHUNK_BYTES))
    except OSError as error:
        if error.errno in ABSENT:
            raise AbsentError(str(error)) from error
        raise


async def _introduce(stream: GatewayStream, preface: bytes) -> None:
    stream.writer.write(preface)
    try:
        reply = await stream.reader.readuntil(b"\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        raise GatewayUnreachableError("it closed the connection before its answer") from error
    if reply == ACCEPTED:
        return
    if len(reply) > REPLY_BYTES or not reply.startswith(REFUSED):
        raise GatewayUnreachableError("its answer is of another version")
    raise GatewayRefusedError(reply.removeprefix(REFUSED).decode("ascii", "replace").strip())
