"""The proxy route: serve requests in sequence, each checked separately (contract 11.3).

CONNECT becomes a tunnel. Plain HTTP requests with an absolute URL are forwarded: each gets its own
connection to the origin, so that a smuggled request cannot use what another was allowed. Following
redirects is left to the agent.
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
    connect_target,
    host_target,
    url_target,
)
from securebench.gateway.tunnel import serve_tunnel
from securebench.protocol.gateway import Route


class RequestEntry:
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

WEBSOCKET_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
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
    entry: RequestEntry

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
                    HTTPStatus.SWITCHING_PROTOCOLS, switch_headers(self.exchange.head, answer)
                )
                return
            if answer.status_code != HTTPStatus.CONTINUE:
                await self.exchange.inform(answer.status_code, end_to_end(answer.headers))
                touch()
            answer = await origin.next_head()
        await self.exchange.start(answer.status_code, answer_headers(answer), answer.reason)
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
        *(_UPGRADE if is_websocket(head) else _CLOSE),
    )


def answer_headers(answer: h11.Response) -> Headers:
    """Return the response headers for the agent; Content-Length only if it is the framing."""
    headers = end_to_end(answer.headers)
    is_other = header_values(tuple(answer.headers), b"transfer-encoding")
    if is_other or answer.status_code == HTTPStatus.NO_CONTENT:
        return tuple(pair for pair in headers if pair[0] != b"content-length")
    return headers


def is_websocket(head: RequestHead) -> bool:
    """Return whether a request asks for a WebSocket, the only protocol upgrade allowed."""
    return (
        head.method == "GET"
        and head.version == HTTP_1_1
        and not head.has_body
        and b"upgrade" in list_members(head.headers, b"connection")
        and [value.lower() for value in head.values(b"upgrade")] == [b"websocket"]
        and len(head.values(b"sec-websocket-key")) == 1
    )


def switch_headers(head: RequestHead, answer: h11.InformationalResponse) -> Headers:
    """Return the headers of a 101 response to the agent.

    Raises:
        UnreachableError: The origin did not accept the upgrade to a WebSocket.
    """
    headers: Headers = tuple(answer.headers)
    key = b"".join(head.values(b"sec-websocket-key"))
    want = base64.b64encode(hashlib.sha1(key + WEBSOCKET_GUID, usedforsecurity=False).digest())
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
    entry = RequestEntry(agent, launch, gateway.monotonic)
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
        require_plain_connect(exchange.head)
    except RefusedError as error:
        _record_failure(entry, error)
        await refuse(agent, error)
        return False
    await serve_tunnel(agent, launch, gateway, exchange.head.target, exchange.rest)
    return False


def _record_failure(entry: RequestEntry, error: RefusedError | CutError) -> None:
    if error.cause is not Cause.IDLE:
        entry.fail(error)
        entry.record(error.status if isinstance(error, RefusedError) else None)


def require_plain_connect(head: RequestHead) -> None:
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
