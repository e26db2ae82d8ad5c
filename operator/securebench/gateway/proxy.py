"""The proxy route: serve requests in sequence, each checked separately (contract 11.3).

CONNECT becomes a tunnel, which copies bytes once the TLS ClientHello has named the same host; the
server name is extracted incrementally, before any byte reaches the origin. Plain HTTP requests with
an absolute URL are forwarded: each gets its own connection to the origin, so that a smuggled
request cannot use what another was allowed. Following redirects is left to the agent.
Source: RFC 8446 sections 4.1.2 and 5.1, RFC 6066 section 3; threat A-131.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Final

import h11

from securebench.gateway.decisions import (
    Cause,
    CutError,
    Decision,
    GatewayError,
    RefusedError,
    UnreachableError,
    Verdict,
)
from securebench.gateway.http1 import (
    HTTP_1_1,
    Exchange,
    Headers,
    OriginConnection,
    RequestHead,
    end_to_end,
    list_members,
    receive_exchange,
    refusal,
    refuse,
)
from securebench.gateway.http1 import values as header_values
from securebench.gateway.launches import ServedLaunch
from securebench.gateway.run_gateway import RunGateway
from securebench.gateway.streams import AgentStream, IdleLimit, Stream, linger, pump
from securebench.gateway.targets import (
    HTTP_PORT,
    HTTPS_PORT,
    Target,
    UrlTarget,
    canonical_host,
    connect_target,
    host_target,
    url_target,
)
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


_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


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
        await self._agent.write(_ESTABLISHED)
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


class _RequestEntry:
    """A decision in progress; created before the request's first byte is read.

    Unless another outcome is noted, it is logged as cut by the end of the launch or the gateway.

    Args:
        agent: Provides the byte counts.
        launch: Logs the decision.
        monotonic: Monotonic clock, in seconds.
    """

    def __init__(
        self, agent: AgentStream, launch: ServedLaunch, monotonic: Callable[[], float]
    ) -> None:
        self._agent = agent
        self._launch = launch
        self._monotonic = monotonic
        self._bytes_up = agent.bytes_up
        self._bytes_down = agent.bytes_down
        self._began = monotonic()
        self._method = ""
        self._host = ""
        self._port = 0
        self._path = ""
        self._verdict = Verdict.CUT
        self._reason = Cause.CLOSED.value
        self._is_begun = False

    def ask(self, head: RequestHead) -> None:
        """Note the request as sent; a user name in its URL is omitted."""
        self._began = self._monotonic()
        self._method = head.method
        authority = head.target.partition("://")[2].partition("/")[0] or head.target
        self._host = authority.rpartition("@")[2]

    def understand(self, url: UrlTarget) -> None:
        """Note the parsed target."""
        self._host, self._port = url.target
        self._path = url.path

    def begin(self) -> None:
        """Note that the request goes out to the origin."""
        self._is_begun = True

    def succeed(self) -> None:
        """Note that the request was served."""
        self._verdict, self._reason = Verdict.ALLOWED, ""

    def break_off(self) -> None:
        """Note that one side closed its connection."""
        self._verdict, self._reason = Verdict.ALLOWED, Cause.BROKEN.value

    def fail(self, error: GatewayError) -> None:
        """Note the error that ended the request."""
        self._reason = error.cause.value
        if not self._is_begun:
            self._verdict = Verdict.REFUSED
        elif isinstance(error, UnreachableError):
            self._verdict = Verdict.ALLOWED

    def record(self, status: int | None) -> None:
        """Log the decision with the status that the agent got, or None."""
        decision = Decision(
            route=Route.PROXY,
            method=self._method,
            host=self._host,
            port=self._port,
            verdict=self._verdict,
            reason=self._reason,
            path=self._path,
            bytes_up=self._agent.bytes_up - self._bytes_up,
            bytes_down=self._agent.bytes_down - self._bytes_down,
            seconds=self._monotonic() - self._began,
            status=status,
        )
        self._launch.record(decision)


METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})

_WEBSOCKET_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455 section 1.3."""

Touch = Callable[[], None]


@dataclass(frozen=True)
class Forward:
    """One forwarded request.

    Attributes:
        entry: Its log entry in progress.
    """

    exchange: Exchange
    agent: AgentStream
    launch: ServedLaunch
    gateway: RunGateway
    entry: _RequestEntry

    async def serve(self) -> None:
        """Answer the request and log it; the exchange knows whether another may follow.

        Raises:
            OSError: The agent's connection broke.
        """
        try:
            url = self._admitted()
            origin = await self.gateway.dial(self.launch, *url.target)
            self.entry.begin()
            try:
                await self._relay(url, origin)
            finally:
                await origin.close()
            self.entry.succeed()
        except GatewayError as error:
            self.entry.fail(error)
            await self._answer(error)
        except OSError:
            self.entry.break_off()
            raise
        finally:
            self.entry.record(self.exchange.status)

    def _admitted(self) -> UrlTarget:
        head = self.exchange.head
        self.entry.ask(head)
        if head.method not in METHODS:
            message = "The proxy accepts only CONNECT, GET, HEAD, POST, PUT, PATCH and DELETE."
            raise RefusedError(message, Cause.METHOD, HTTPStatus.NOT_IMPLEMENTED)
        url = url_target(head.target)
        self.entry.understand(url)
        require_host(head, url.target)
        if not self.gateway.is_listed(url.target.host):
            raise RefusedError(
                f"{url.target.host} is not one of the allowed domains.", Cause.NOT_LISTED
            )
        return url

    async def _answer(self, error: GatewayError) -> None:
        """Respond with an error unless the response has begun; then just end the connection."""
        if self.exchange.status is None:
            status = getattr(error, "status", HTTPStatus.GATEWAY_TIMEOUT)
            with suppress(CutError):
                await self.exchange.answer(status, error.reason)

    async def _relay(self, url: UrlTarget, stream: Stream) -> None:
        head, limits = self.exchange.head, self.gateway.config.limits
        origin = OriginConnection(stream)
        async with IdleLimit(limits.idle_seconds) as idle:
            await origin.start(head.method, url.path, origin_headers(head, url.target))
            up, down = self._upload(origin, idle.touch), self._download(origin, idle.touch)
            if head.has_body:
                await _until_answered(up, down)
            else:
                await up
                await down
        if self.exchange.status == HTTPStatus.SWITCHING_PROTOCOLS:
            await self._switch(origin, stream)

    async def _upload(self, origin: OriginConnection, touch: Touch) -> None:
        """Send the request's body; an origin that stops reading it may still respond."""
        async for data in self.exchange.body():
            touch()
            try:
                await origin.send(data)
            except UnreachableError:
                return
            touch()
        is_chunked = self.exchange.head.length is None
        with suppress(UnreachableError):
            await origin.finish(self.exchange.trailers if is_chunked else ())

    async def _download(self, origin: OriginConnection, touch: Touch) -> None:
        answer = await origin.next_head()
        while isinstance(answer, h11.InformationalResponse):
            if answer.status_code == HTTPStatus.SWITCHING_PROTOCOLS:
                await self.exchange.inform(
                    HTTPStatus.SWITCHING_PROTOCOLS, _switch_headers(self.exchange.head, answer)
                )
                return
            if answer.status_code != HTTPStatus.CONTINUE:
                await self.exchange.inform(answer.status_code, end_to_end(answer.headers))
                touch()
            answer = await origin.next_head()
        await self.exchange.start(answer.status_code, _answer_headers(answer), answer.reason)
        async for data in origin.body():
            touch()
            await self.exchange.send(data)
            touch()
        await self.exchange.finish(origin.trailers)

    async def _switch(self, origin: OriginConnection, stream: Stream) -> None:
        if early := self.exchange.rest:
            await stream.write(early)
        if early := origin.rest:
            await self.agent.write(early)
        await pump(self.agent, stream, self.gateway.config.limits.idle_seconds)


async def _until_answered(
    up: Coroutine[object, object, None], down: Coroutine[object, object, None]
) -> None:
    """Run both; the end of the response, or a malformed request, ends both."""
    upload, download = asyncio.ensure_future(up), asyncio.ensure_future(down)
    try:
        await asyncio.wait((upload, download), return_when=asyncio.FIRST_COMPLETED)
        if upload.done():
            upload.result()
        await download
    finally:
        upload.cancel()
        download.cancel()
        await asyncio.gather(upload, download, return_exceptions=True)


def require_host(head: RequestHead, target: Target) -> None:
    """Require that the request has exactly one Host header, and that it names the target.

    Raises:
        RefusedError: 400.
    """
    fields = head.values(b"host")
    try:
        named = [host_target(field.decode("latin-1"), target.port) for field in fields]
    except RefusedError:
        named = []
    if named != [target]:
        raise RefusedError(
            f"The Host header of the request does not name {target.host}.",
            Cause.HOST_MISMATCH,
            HTTPStatus.BAD_REQUEST,
        )


def origin_headers(head: RequestHead, target: Target) -> Headers:
    """Return the headers for the origin, with new Host and framing headers."""
    made = {b"host", b"content-length"}
    kept = tuple(pair for pair in end_to_end(head.headers) if pair[0] not in made)
    port = "" if target.port == HTTP_PORT else f":{target.port}"
    return (
        (b"host", f"{target.host}{port}".encode()),
        *kept,
        *_framing(head),
        *(_UPGRADE if _is_websocket(head) else _CLOSE),
    )


def _answer_headers(answer: h11.Response) -> Headers:
    """Return the response headers for the agent; Content-Length only if it is the framing."""
    headers = end_to_end(answer.headers)
    is_other = header_values(tuple(answer.headers), b"transfer-encoding")
    if is_other or answer.status_code == HTTPStatus.NO_CONTENT:
        return tuple(pair for pair in headers if pair[0] != b"content-length")
    return headers


def _is_websocket(head: RequestHead) -> bool:
    """Return whether a request asks for a WebSocket, the only protocol upgrade allowed."""
    return (
        head.method == "GET"
        and head.version == HTTP_1_1
        and not head.has_body
        and b"upgrade" in list_members(head.headers, b"connection")
        and [value.lower() for value in head.values(b"upgrade")] == [b"websocket"]
        and len(head.values(b"sec-websocket-key")) == 1
    )


def _switch_headers(head: RequestHead, answer: h11.InformationalResponse) -> Headers:
    """Return the headers of a 101 response to the agent.

    Raises:
        UnreachableError: The origin did not accept the upgrade to a WebSocket.
    """
    headers: Headers = tuple(answer.headers)
    key = b"".join(head.values(b"sec-websocket-key"))
    want = base64.b64encode(hashlib.sha1(key + _WEBSOCKET_GUID, usedforsecurity=False).digest())
    accepted = header_values(headers, b"sec-websocket-accept")
    if list_members(headers, b"upgrade") != {b"websocket"} or accepted != [want]:
        raise UnreachableError(
            "The origin switched to something other than a WebSocket.", Cause.BROKEN
        )
    return (*end_to_end(headers), *_UPGRADE)


_UPGRADE: Final[Headers] = ((b"connection", b"upgrade"), (b"upgrade", b"websocket"))
_CLOSE: Final[Headers] = ((b"connection", b"close"),)


def _framing(head: RequestHead) -> Headers:
    if head.length is None:
        return ((b"transfer-encoding", b"chunked"),)
    if head.values(b"content-length"):
        return ((b"content-length", str(head.length).encode()),)
    return ()


async def serve_proxy(agent: AgentStream, launch: ServedLaunch, gateway: RunGateway) -> None:
    """Serve an agent's connection until it ends; every decision is logged.

    The stream is positioned after the preface; the caller closes it.

    Raises:
        OSError: The agent's connection broke.
    """
    while await _serve_next(agent, launch, gateway):
        pass
    await linger(agent)


async def _serve_next(agent: AgentStream, launch: ServedLaunch, gateway: RunGateway) -> bool:
    """Serve one request; return whether another may follow."""
    entry = _RequestEntry(agent, launch, gateway.monotonic)
    exchange = await receive_exchange(
        agent, gateway.config.limits.idle_seconds, partial(_record_failure, entry)
    )
    if exchange is None:
        return False
    if exchange.head.method != "CONNECT":
        await Forward(exchange, agent, launch, gateway, entry).serve()
        return exchange.is_reusable()
    entry.ask(exchange.head)
    try:
        _require_plain_connect(exchange.head)
    except RefusedError as error:
        _record_failure(entry, error)
        await refuse(agent, error)
        return False
    await serve_tunnel(agent, launch, gateway, exchange.head.target, exchange.rest)
    return False


def _record_failure(entry: _RequestEntry, error: RefusedError | CutError) -> None:
    if error.cause is not Cause.IDLE:
        entry.fail(error)
        entry.record(error.status if isinstance(error, RefusedError) else None)


def _require_plain_connect(head: RequestHead) -> None:
    """Require that a CONNECT has no body, and no Host header that names another host.

    HTTP/1.0 clients send no Host header; some clients omit its port.

    Raises:
        RefusedError: 400, or the error of the target itself.
    """
    if head.has_body:
        raise RefusedError(
            "A CONNECT request must not have a body.", Cause.BAD_REQUEST, HTTPStatus.BAD_REQUEST
        )
    target = connect_target(head.target)
    for field in head.values(b"host"):
        if host_target(field.decode("latin-1"), HTTPS_PORT).host != target.host:
            raise RefusedError(
                f"The Host header of the request does not name {target.host}.",
                Cause.HOST_MISMATCH,
                HTTPStatus.BAD_REQUEST,
            )
