"""CONNECT tunnels: copy bytes once the TLS ClientHello has named the same host.

The server name is extracted incrementally, before any byte reaches the origin.
Source: RFC 8446 sections 4.1.2 and 5.1, RFC 6066 section 3; contract 11.3, threat A-131.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from securebench.gateway.decisions import (
    Cause,
    CutError,
    Decision,
    RefusedError,
    UnreachableError,
    Verdict,
)
from securebench.gateway.http1 import refusal
from securebench.gateway.launches import ServedLaunch
from securebench.gateway.run_gateway import RunGateway
from securebench.gateway.streams import AgentStream, Stream, pump
from securebench.gateway.targets import Target, canonical_host, connect_target
from securebench.protocol.gateway import Route
from securebench.sizes import KIB

MAX_HELLO_BYTES = 16 * KIB
"""Limit on the handshake message; with post-quantum keys and tickets it has about 2 KB."""
MAX_RECORDS = 64
"""Limit on the records of one message; a peer could otherwise send one byte per record."""

_HEADER_BYTES = 5
_MESSAGE_HEADER_BYTES = 4
"""Message type and length."""
_HANDSHAKE = 22
_CLIENT_HELLO = 1
_MAJOR_VERSION = 3
_RANDOM_BYTES = 32
_SERVER_NAME = 0
_HOST_NAME = 0
_ENCRYPTED_HELLO = frozenset({*range(0xFE08, 0xFE0E), 0xFFCE})
"""encrypted_client_hello with its drafts, and the older encrypted_server_name."""


class ClientHelloParser:
    """Parses the first bytes of a TLS client until the server name is known."""

    def __init__(self) -> None:
        self._records = bytearray()
        self._message = bytearray()
        self._count = 0

    def feed(self, data: bytes) -> str | None:
        """Return the canonical server name, or None while the hello is incomplete.

        Bytes after the hello are ignored.

        Args:
            data: The next chunk, of any size.

        Raises:
            RefusedError: It is not a ClientHello within the bounds, it has no server name, or it
                has an encrypted part that may name another server.
        """
        self._records += data
        while self._take_record():
            if self._is_complete():
                return _server_name(_Fields(bytes(self._message[_MESSAGE_HEADER_BYTES:])))
        return None

    def _take_record(self) -> bool:
        records = self._records
        if records[:1] not in (b"", bytes([_HANDSHAKE])):
            raise _no_hello()
        if len(records) < _HEADER_BYTES:
            return False
        size = int.from_bytes(records[3:5], "big")
        if records[1] != _MAJOR_VERSION or not 0 < size <= MAX_HELLO_BYTES:
            raise _no_hello()
        end = _HEADER_BYTES + size
        if len(records) < end:
            return False
        self._count += 1
        self._message += records[_HEADER_BYTES:end]
        del records[:end]
        return True

    def _is_complete(self) -> bool:
        message = self._message
        if message[0] != _CLIENT_HELLO or self._count > MAX_RECORDS:
            raise _no_hello()
        if len(message) < _MESSAGE_HEADER_BYTES:
            return False
        size = _MESSAGE_HEADER_BYTES + int.from_bytes(message[1:_MESSAGE_HEADER_BYTES], "big")
        if size > MAX_HELLO_BYTES or len(message) > size:
            raise _no_hello()
        return len(message) == size


class _Fields:
    """Reads the fields of a message in sequence."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __bool__(self) -> bool:
        return bool(self._data)

    def take(self, size: int) -> bytes:
        if size > len(self._data):
            raise _no_hello()
        taken, self._data = self._data[:size], self._data[size:]
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, length_bytes: int) -> _Fields:
        return _Fields(self.take(self.number(length_bytes)))

    def rest(self) -> bytes:
        return self.take(len(self._data))


def _server_name(hello: _Fields) -> str:
    hello.take(2 + _RANDOM_BYTES)
    for length_bytes in (1, 2, 1):  # session, cipher suites, compression methods
        hello.vector(length_bytes)
    extensions = _extensions(hello.vector(2)) if hello else {}
    if hello:
        raise _no_hello()
    if not _ENCRYPTED_HELLO.isdisjoint(extensions):
        raise RefusedError("Encrypted ClientHellos are not allowed.", Cause.ENCRYPTED_HELLO)
    if _SERVER_NAME not in extensions:
        raise _no_name()
    return _host_name(extensions[_SERVER_NAME])


def _extensions(fields: _Fields) -> dict[int, _Fields]:
    found: dict[int, _Fields] = {}
    while fields:
        kind = fields.number(2)
        if kind in found:
            raise _no_hello()
        found[kind] = fields.vector(2)
    return found


def _host_name(extension: _Fields) -> str:
    names = extension.vector(2)
    if extension or names.number(1) != _HOST_NAME:
        raise _no_hello()
    text = names.vector(2).rest().decode("latin-1")
    if names:
        raise _no_hello()
    name = canonical_host(text)
    if name is None:
        raise _no_name()
    return name


def _no_hello() -> RefusedError:
    return RefusedError("Tunnels carry only TLS: there was no valid ClientHello.", Cause.NO_HELLO)


def _no_name() -> RefusedError:
    return RefusedError("The TLS ClientHello has no server name.", Cause.NO_SERVER_NAME)


ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


async def serve_tunnel(
    agent: AgentStream, launch: ServedLaunch, gateway: RunGateway, authority: str, early: bytes
) -> None:
    """Answer a CONNECT and carry its tunnel until both sides have ended.

    Every outcome is answered and logged here; the caller only closes the agent's stream, which is
    positioned after the head of the request. ``authority`` is the request's target as sent, and
    ``early`` what the agent sent right after the head.

    Raises:
        OSError: The agent's connection broke before the tunnel was established.
    """
    tunnel = _Tunnel(agent, launch, gateway, authority)
    agent.unread(early)
    try:
        await tunnel.serve()
    finally:
        tunnel.record(len(early))


class _Tunnel:
    """One CONNECT request and its outcome."""

    def __init__(
        self, agent: AgentStream, launch: ServedLaunch, gateway: RunGateway, authority: str
    ) -> None:
        self._agent = agent
        self._launch = launch
        self._gateway = gateway
        self._authority = authority
        self._target = Target(authority, 0)
        self._begun = gateway.monotonic()
        self._bytes = (agent.bytes_up, agent.bytes_down)
        self._status: int | None = None
        # The default outcome: the end of the launch can cancel the task at any point.
        self._verdict = Verdict.CUT
        self._cause: Cause | None = Cause.CLOSED

    async def serve(self) -> None:
        try:
            outside = await self._open()
        except (RefusedError, UnreachableError) as error:
            self._decide(Verdict.REFUSED, error.cause, error.status)
            await self._agent.write(refusal(error.status, error.reason))
            return
        try:
            await self._carry(outside)
        except RefusedError as error:
            self._decide(Verdict.REFUSED, error.cause, HTTPStatus.OK)
        except CutError as error:
            self._decide(Verdict.CUT, error.cause, HTTPStatus.OK)
        except OSError:
            self._decide(Verdict.ALLOWED, Cause.BROKEN, HTTPStatus.OK)
        else:
            self._decide(Verdict.ALLOWED, None, HTTPStatus.OK)
        finally:
            await outside.close()

    async def _open(self) -> Stream:
        target = self._target = connect_target(self._authority)
        if not self._gateway.is_listed(target.host):
            raise RefusedError(
                f"{target.host} is not one of the allowed domains.", Cause.NOT_LISTED
            )
        return await self._gateway.dial(self._launch, target.host, target.port)

    async def _carry(self, outside: Stream) -> None:
        self._status = HTTPStatus.OK
        await self._agent.write(ESTABLISHED)
        hello = await self._hello()
        await outside.write(hello)
        await pump(self._agent, outside, self._gateway.config.limits.idle_seconds)

    async def _hello(self) -> bytes:
        """Return the agent's first bytes, which contain a whole ClientHello for the target."""
        reader, received, name = ClientHelloParser(), b"", None
        try:
            async with asyncio.timeout(self._gateway.config.limits.connect_seconds):
                while name is None:
                    data = await self._agent.read()
                    if not data:
                        raise RefusedError("There was no ClientHello.", Cause.NO_HELLO)
                    received += data
                    name = reader.feed(data)
        except TimeoutError:
            raise RefusedError("There was no ClientHello in time.", Cause.NO_HELLO) from None
        if name != self._target.host:
            raise RefusedError("The ClientHello names another host.", Cause.SNI_MISMATCH)
        return received

    def _decide(self, verdict: Verdict, cause: Cause | None, status: int) -> None:
        self._verdict, self._cause, self._status = verdict, cause, status

    def record(self, early_bytes: int) -> None:
        """Log the decision; called once, at the end."""
        bytes_up, bytes_down = self._bytes
        self._launch.record(
            Decision(
                Route.PROXY,
                "CONNECT",
                self._target.host,
                self._target.port,
                self._verdict,
                self._cause or "",
                bytes_up=self._agent.bytes_up - bytes_up + early_bytes,
                bytes_down=self._agent.bytes_down - bytes_down,
                seconds=self._gateway.monotonic() - self._begun,
                status=self._status,
            )
        )
