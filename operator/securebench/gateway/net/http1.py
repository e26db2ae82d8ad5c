"""HTTP/1.1 on streams: both ends of an exchange; h11 does the framing, ``heads`` is stricter.

Every request and every answer has a parser of its own, so that nothing of one message decides how
the next one is read. What is sent on is written anew and never copied from what was received.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Final, NamedTuple

import h11

from securebench.gateway.net.causes import Cause, CutError, RefusedError, UnreachableError
from securebench.gateway.net.heads import (
    END,
    HOP_BY_HOP,
    HTTP_1_0,
    Headers,
    RequestHead,
    bad_request,
    check_characters,
    request_head,
    values,
)
from securebench.gateway.net.streams import AgentStream, IdleLimit, Stream

HEAD_BYTES: Final = 64 * 1024
"""Request line and headers together, or one line of a chunked body; common servers take 8 to 80."""

_LONG: Final = "The headers of the request are too long."
_BROKEN: Final = "The connection to the origin broke."
_SWITCHING: Final = 101
_WITHOUT_BODY = frozenset({204, 304})
_NOT_IN_TRAILERS = HOP_BY_HOP | {b"content-length", b"host", b"trailer"}


class _HeadBytes(NamedTuple):
    head: bytes
    """With the empty line."""
    rest: bytes


async def receive_exchange(
    agent: AgentStream, idle_seconds: float, failed: Callable[[RefusedError | CutError], None]
) -> Exchange | None:
    """Wait for the agent's next request; bytes that are none are answered.

    Args:
        agent: The exchange before is over and was reusable.
        idle_seconds: Longest time that the head may take.
        failed: Takes down why there is no request, before the agent is told.

    Returns:
        None where no request follows on the connection.
    """
    try:
        async with IdleLimit(idle_seconds):
            return await next_exchange(agent)
    except RefusedError as error:
        failed(error)
        await refuse(agent, error)
    except CutError as error:
        failed(error)
    return None


async def refuse(agent: AgentStream, error: RefusedError) -> None:
    """Answer what is no request, as far as the launch has bytes left; close the connection then."""
    with suppress(CutError):
        await agent.write(refusal(error.status, error.reason))


async def next_exchange(agent: AgentStream) -> Exchange | None:
    """Read the head of the agent's next request; the exchange before is over and was reusable.

    Returns:
        None where the agent has ended the connection.

    Raises:
        RefusedError: It is no request; send ``refusal`` and close.
        CutError: The launch's byte limit is reached.
    """
    found = await _head_bytes(agent)
    return None if found is None else Exchange(agent, request_head(found.head), found)


async def _head_bytes(agent: AgentStream) -> _HeadBytes | None:
    buffer, searched = bytearray(), 0
    while (end := buffer.find(END, max(0, searched - len(END)))) < 0:
        check_characters(buffer, max(0, searched - 1))
        if len(buffer) > HEAD_BYTES:
            raise bad_request(_LONG, 431)
        searched = len(buffer)
        data = await agent.read()
        if not data and buffer:
            raise bad_request("The connection ended inside the head of a request.")
        if not data:
            return None
        buffer += data
    end += len(END)
    if end > HEAD_BYTES:
        raise bad_request(_LONG, 431)
    return _HeadBytes(bytes(buffer[:end]), bytes(buffer[end:]))


class Exchange:
    """One request of the agent and its answer.

    Args:
        agent: Its connection.
        head: Of the request.
        received: The same as bytes, and what came with it.

    Attributes:
        head: Of the request.
        trailers: After the body; complete when ``body`` has ended.
        status: Of the final answer as soon as it has begun (101 is one), else None.
    """

    def __init__(self, agent: AgentStream, head: RequestHead, received: _HeadBytes) -> None:
        self.head = head
        self.trailers: Headers = ()
        self.status: int | None = None
        self._is_chunked = False
        self._agent = agent
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._http.receive_data(received.head)
        if not isinstance(self._event(), h11.Request):
            raise bad_request("The request is malformed.")
        if received.rest:
            self._http.receive_data(received.rest)

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the request's body; says 100 Continue first to an agent that waits for it.

        Raises:
            RefusedError: The body is malformed or ends too early.
        """
        if self._http.they_are_waiting_for_100_continue:
            await self.inform(100)
        while True:
            event = self._event()
            if event is h11.NEED_DATA:
                self._http.receive_data(await self._agent.read())
            elif isinstance(event, h11.Data):
                yield bytes(event.data)
            else:
                if isinstance(event, h11.EndOfMessage):
                    self.trailers = _safe_trailers(event)
                return

    async def whole_body(self, limit: int) -> bytes:
        """Return the request's body.

        Raises:
            RefusedError: It is malformed, or longer than the limit (413).
        """
        too_large = RefusedError(
            f"The body of the request is longer than {limit} bytes.", Cause.TOO_LARGE, 413
        )
        if (self.head.length or 0) > limit:
            raise too_large
        found = bytearray()
        async for data in self.body():
            found += data
            if len(found) > limit:
                raise too_large
        return bytes(found)

    async def inform(self, status: int, headers: Headers = ()) -> None:
        """Send what comes before the answer, or 101 instead of it; HTTP/1.0 has none of it."""
        event = h11.InformationalResponse(status_code=status, headers=list(headers))
        data = self._http.send(event)
        if status == _SWITCHING:
            self.status = status
        if self.head.version > HTTP_1_0:
            await self._agent.write(data)

    async def start(self, status: int, headers: Headers, reason: bytes = b"") -> None:
        """Send the head of the answer: framing and keep-alive are added.

        Args:
            status: 200 or above.
            headers: End to end. Without a Content-Length the body is chunked, or ends with the
                connection for HTTP/1.0.
            reason: Text behind the status.
        """
        self.status = status
        self._is_chunked = (
            self.head.version > HTTP_1_0
            and self.head.method != "HEAD"
            and status not in _WITHOUT_BODY
            and not values(headers, b"content-length")
        )
        event = h11.Response(status_code=status, headers=list(headers), reason=reason)
        await self._agent.write(self._http.send(event))

    async def send(self, data: bytes) -> None:
        """Send a piece of the answer's body.

        Raises:
            UnreachableError: It is more than the answer's Content-Length.
        """
        await self._agent.write(_sent(self._http, h11.Data(data=data)))

    async def finish(self, trailers: Headers = ()) -> None:
        """End the answer; trailers are dropped where the framing has none.

        Raises:
            UnreachableError: It is less than the answer's Content-Length.
        """
        event = h11.EndOfMessage(headers=list(trailers) if self._is_chunked else [])
        await self._agent.write(_sent(self._http, event))

    async def answer(self, status: int, message: str, headers: Headers = ()) -> None:
        """Answer with one line of text. Where the request's body was not read, it is the last one.

        Args:
            status: 200 or above.
            message: One sentence.
            headers: Further ones.
        """
        body = f"{message}\n".encode()
        unread = ((b"connection", b"close"),) if self.head.has_body else ()
        await self.start(status, (*_text_headers(body), *headers, *unread), _phrase(status))
        if self.head.method != "HEAD":
            await self.send(body)
        await self.finish()

    def is_reusable(self) -> bool:
        """Tell whether another request may follow, and hand over what is there of it."""
        http = self._http
        if not self.head.has_body and http.their_state is h11.SEND_BODY:
            self._event()
        if (http.our_state, http.their_state) != (h11.DONE, h11.DONE):
            return False
        self._agent.unread(self.rest)
        return True

    @property
    def rest(self) -> bytes:
        """What was received and belongs to no part of the request."""
        return self._http.trailing_data[0]

    def _event(self) -> object:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise bad_request("The request is malformed.", error.error_status_hint) from error


class OriginConnection:
    """The origin's end: one request and its answer; UnreachableError when the connection breaks.

    Args:
        stream: To the origin.

    Attributes:
        trailers: After the answer's body; complete when ``body`` has ended.
    """

    def __init__(self, stream: Stream) -> None:
        self.trailers: Headers = ()
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)

    async def start(self, method: str, target: str, headers: Headers) -> None:
        """Send the head of the request.

        Args:
            method: In its usual case.
            target: Path and query.
            headers: With Host and, where there is a body, its Content-Length or
                ``Transfer-Encoding: chunked``.
        """
        event = h11.Request(method=method, target=target, headers=list(headers))
        await self._write(self._http.send(event))

    async def send(self, data: bytes) -> None:
        """Send a piece of the request's body."""
        await self._write(self._http.send(h11.Data(data=data)))

    async def finish(self, trailers: Headers = ()) -> None:
        """End the request; trailers only where it is chunked."""
        await self._write(self._http.send(h11.EndOfMessage(headers=list(trailers))))

    async def next_head(self) -> h11.InformationalResponse | h11.Response:
        """Return the head of the next answer; the one with a status of 200 or above is the last.

        Raises:
            UnreachableError: It is malformed, or the origin ended the connection.
        """
        event = await self._next()
        if not isinstance(event, h11.InformationalResponse | h11.Response):
            raise UnreachableError("The origin did not answer.", Cause.BROKEN)
        return event

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the answer's body.

        Raises:
            UnreachableError: It is malformed or ends too early.
        """
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)
        if isinstance(event, h11.EndOfMessage):
            self.trailers = _safe_trailers(event)

    @property
    def rest(self) -> bytes:
        """What was received after a change of protocols."""
        return self._http.trailing_data[0]

    async def _next(self) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self._http.receive_data(await self._stream.read())
        except h11.RemoteProtocolError as error:
            raise UnreachableError(
                "The origin's answer is malformed or ended too early.", Cause.BROKEN
            ) from error
        except OSError as error:
            raise UnreachableError(_BROKEN, Cause.BROKEN) from error
        return event

    async def _write(self, data: bytes) -> None:
        try:
            await self._stream.write(data)
        except OSError as error:
            raise UnreachableError(_BROKEN, Cause.BROKEN) from error


def refusal(status: int, message: str) -> bytes:
    """Return an answer to bytes that are no request; the connection is to be closed after it."""
    body = f"{message}\n".encode()
    http = h11.Connection(h11.SERVER)
    headers = [*_text_headers(body), (b"connection", b"close")]
    head = http.send(h11.Response(status_code=status, headers=headers, reason=_phrase(status)))
    return head + http.send(h11.Data(data=body)) + http.send(h11.EndOfMessage())


def _phrase(status: int) -> bytes:
    return HTTPStatus(status).phrase.encode()


def _text_headers(body: bytes) -> Headers:
    length = str(len(body)).encode()
    return ((b"content-type", b"text/plain; charset=utf-8"), (b"content-length", length))


def _safe_trailers(event: h11.EndOfMessage) -> Headers:
    return tuple((name, value) for name, value in event.headers if name not in _NOT_IN_TRAILERS)


def _sent(http: h11.Connection, event: h11.Data | h11.EndOfMessage) -> bytes:
    try:
        return http.send(event)
    except h11.LocalProtocolError as error:
        raise UnreachableError("The answer is not as long as it says.", Cause.BROKEN) from error
