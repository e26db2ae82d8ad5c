"""HTTP/1.1 on streams, towards the agent and towards the origin.

Request heads are parsed strictly, so that no two parsers can disagree about them: h11 accepts
folded lines, bare line feeds and contradictory framing; all of that is rejected here, because it
allows request smuggling. h11 does the framing. Every message gets a fresh parser, so that one
message cannot influence how the next one is parsed. Forwarded heads are serialised again, never
copied from received bytes.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import h11

from securebench.gateway.decisions import Cause, CutError, RefusedError, UnreachableError
from securebench.gateway.streams import AgentStream, IdleLimit, Stream
from securebench.sizes import KIB

_HTTP_1_0: Final = 10
HTTP_1_1: Final = 11

_LENGTH_DIGITS: Final = 15
"""Maximum digits of a Content-Length; about a petabyte."""

Headers = tuple[tuple[bytes, bytes], ...]
"""Pairs of lower-case name and value, in the order of the wire."""

HOP_BY_HOP: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization"),
        *(b"proxy-authenticate", b"proxy-authentication-info", b"te", b"transfer-encoding"),
        *(b"upgrade", b"expect"),
    }
)
"""Headers that apply to a single connection (RFC 9110 section 7.6.1)."""

END: Final = b"\r\n\r\n"
"""Terminates a head."""

_FORBIDDEN = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r[^\n]")
_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e]+) HTTP/1\.([01])")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*", re.DOTALL)
_LENGTH = re.compile(rb"[0-9]{1,%d}" % _LENGTH_DIGITS)


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request without its body.

    Attributes:
        method: As sent; methods are case-sensitive.
        target: Request target; visible ASCII characters.
        version: ``_HTTP_1_0`` or ``HTTP_1_1``.
        headers: All of them.
        length: Bytes of the body; None if it is chunked.
    """

    method: str
    target: str
    version: int
    headers: Headers
    length: int | None

    def values(self, name: bytes) -> list[bytes]:
        """Return all values of a header, given by its lower-case name, in order."""
        return values(self.headers, name)

    @property
    def has_body(self) -> bool:
        """Return whether a body follows."""
        return self.length != 0


def values(headers: Headers, name: bytes) -> list[bytes]:
    """Return all values of a header, given by its lower-case name, in order."""
    return [value for key, value in headers if key == name]


def list_members(headers: Headers, name: bytes) -> set[bytes]:
    """Return the lower-case members of a comma-separated header."""
    lists = (value.lower().split(b",") for value in values(headers, name))
    return {word.strip() for members in lists for word in members} - {b""}


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the end-to-end headers.

    Hop-by-hop headers and those that ``Connection`` lists are removed; the caller sets the framing.
    """
    every = tuple(headers)
    dropped = (HOP_BY_HOP | list_members(every, b"connection")) - {b"content-length", b"host"}
    return tuple((name, value) for name, value in every if name not in dropped)


def _check_characters(data: bytes | bytearray, start: int = 0) -> None:
    """Require that a head, or the beginning of one, has only valid characters.

    Args:
        data: The head or its beginning.
        start: Offset of the first byte to check.

    Raises:
        RefusedError: A control character, a bare line feed or a bare carriage return.
    """
    if _FORBIDDEN.search(data, start):
        raise bad_request("The request has a bare line feed or a control character.")


def request_head(data: bytes) -> RequestHead:
    """Parse a request line and headers.

    Args:
        data: Including the empty line at the end.

    Raises:
        RefusedError: It is malformed or ambiguous.
    """
    _check_characters(data)
    first, *lines = data.removesuffix(END).split(b"\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise bad_request("The request line is malformed.")
    headers = tuple(_field(text) for text in lines)
    version = HTTP_1_1 if line[3] == b"1" else _HTTP_1_0
    length = _body_length(headers, version)
    if list_members(headers, b"expect") - {b"100-continue"}:
        raise bad_request("The request has an unknown expectation.", 417)
    return RequestHead(line[1].decode("ascii"), line[2].decode("ascii"), version, headers, length)


def _field(line: bytes) -> tuple[bytes, bytes]:
    found = _FIELD.fullmatch(line)
    if found is None:
        raise bad_request("A header line is malformed or folded.")
    return found[1].lower(), found[2]


def _body_length(headers: Headers, version: int) -> int | None:
    lengths, codings = values(headers, b"content-length"), values(headers, b"transfer-encoding")
    if len(lengths) + len(codings) > 1:
        raise bad_request("The request has more than one body length.")
    if codings:
        if version == _HTTP_1_0 or codings[0].lower() != b"chunked":
            raise bad_request("The request's Transfer-Encoding is not exactly chunked.")
        return None
    if lengths and _LENGTH.fullmatch(lengths[0]) is None:
        raise bad_request("The request's Content-Length is not a plain number.")
    return int(lengths[0]) if lengths else 0


def bad_request(reason: str, status: int = HTTPStatus.BAD_REQUEST) -> RefusedError:
    """Return the error for a malformed request."""
    return RefusedError(reason, Cause.BAD_REQUEST, status)


HEAD_BYTES: Final = 64 * KIB
"""Limit on request line and headers together, and on a chunk header; common servers allow 8 to 80
KiB."""

_LONG: Final = "The headers of the request are too long."
_BROKEN: Final = "The connection to the origin broke."
_SWITCHING: Final = 101
_WITHOUT_BODY = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})
_NOT_IN_TRAILERS = HOP_BY_HOP | {b"content-length", b"host", b"trailer"}


async def receive_exchange(
    agent: AgentStream, idle_seconds: float, failed: Callable[[RefusedError | CutError], None]
) -> Exchange | None:
    """Wait for the agent's next request; answer malformed ones.

    Args:
        agent: Its previous exchange, if any, ended reusable.
        idle_seconds: Time limit for the head.
        failed: Records why there is no request, before the agent is answered.

    Returns:
        None if no further request follows on the connection.
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
    """Answer a malformed request if the launch has bytes left; the caller closes the stream."""
    with suppress(CutError):
        await agent.write(refusal(error.status, error.reason))


async def next_exchange(agent: AgentStream) -> Exchange | None:
    """Read the head of the agent's next request; the previous exchange ended reusable.

    Returns:
        None if the agent closed the connection.

    Raises:
        RefusedError: The request is malformed; send ``refusal`` and close.
        CutError: The launch's byte limit is reached.
    """
    found = await _head_bytes(agent)
    return None if found is None else Exchange(agent, *found)


async def _head_bytes(agent: AgentStream) -> tuple[bytes, bytes] | None:
    """Return the bytes of a head with the empty line, and what was received after them."""
    buffer, searched = bytearray(), 0
    while (end := buffer.find(END, max(0, searched - len(END)))) < 0:
        _check_characters(buffer, max(0, searched - 1))
        if len(buffer) > HEAD_BYTES:
            raise bad_request(_LONG, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        searched = len(buffer)
        data = await agent.read()
        if not data and buffer:
            raise bad_request("The connection ended inside the head of a request.")
        if not data:
            return None
        buffer += data
    end += len(END)
    if end > HEAD_BYTES:
        raise bad_request(_LONG, HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
    return bytes(buffer[:end]), bytes(buffer[end:])


class Exchange:
    """One request of the agent and its response.

    Args:
        agent: Its connection.
        head: The bytes of the head, including the empty line.
        rest: What was received after it.

    Attributes:
        head: The parsed head of the request.
        trailers: After the body; complete when ``body`` has ended.
        status: Status of the final response (including 101) once it has begun, else None.
    """

    def __init__(self, agent: AgentStream, head: bytes, rest: bytes) -> None:
        self.head = request_head(head)
        self.trailers: Headers = ()
        self.status: int | None = None
        self._is_chunked = False
        self._agent = agent
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        self._http.receive_data(head)
        if not isinstance(self._event(), h11.Request):
            raise bad_request("The request is malformed.")
        if rest:
            self._http.receive_data(rest)

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the request's body; first send 100 Continue if the agent expects it.

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
            RefusedError: It is malformed, or exceeds the limit (413).
        """
        too_large = RefusedError(
            f"The body of the request is longer than {limit} bytes.",
            Cause.TOO_LARGE,
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
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
        """Send an informational response, or 101; omitted for HTTP/1.0."""
        event = h11.InformationalResponse(status_code=status, headers=list(headers))
        data = self._http.send(event)
        if status == _SWITCHING:
            self.status = status
        if self.head.version > _HTTP_1_0:
            await self._agent.write(data)

    async def start(self, status: int, headers: Headers, reason: bytes = b"") -> None:
        """Send the head of the response; framing and keep-alive headers are added.

        Args:
            status: 200 or above.
            headers: End-to-end headers. Without a Content-Length the body is chunked, or for
                HTTP/1.0 delimited by the end of the connection.
            reason: Reason phrase.
        """
        self.status = status
        self._is_chunked = (
            self.head.version > _HTTP_1_0
            and self.head.method != "HEAD"
            and status not in _WITHOUT_BODY
            and not values(headers, b"content-length")
        )
        event = h11.Response(status_code=status, headers=list(headers), reason=reason)
        await self._agent.write(self._http.send(event))

    async def send(self, data: bytes) -> None:
        """Send a chunk of the response's body.

        Raises:
            UnreachableError: The body exceeds the response's Content-Length.
        """
        await self._agent.write(_sent(self._http, h11.Data(data=data)))

    async def finish(self, trailers: Headers = ()) -> None:
        """End the response; trailers are dropped unless the body is chunked.

        Raises:
            UnreachableError: The body is shorter than the response's Content-Length.
        """
        event = h11.EndOfMessage(headers=list(trailers) if self._is_chunked else [])
        await self._agent.write(_sent(self._http, event))

    async def answer(self, status: int, message: str, headers: Headers = ()) -> None:
        """Respond with one line of text; the connection closes if the request's body was not read.

        Args:
            status: 200 or above.
            message: One sentence.
            headers: Additional headers.
        """
        body = f"{message}\n".encode()
        unread = ((b"connection", b"close"),) if self.head.has_body else ()
        await self.start(status, (*_text_headers(body), *headers, *unread), _phrase(status))
        if self.head.method != "HEAD":
            await self.send(body)
        await self.finish()

    def is_reusable(self) -> bool:
        """Return whether another request may follow; unread bytes go back to the stream."""
        http = self._http
        if not self.head.has_body and http.their_state is h11.SEND_BODY:
            self._event()
        if (http.our_state, http.their_state) != (h11.DONE, h11.DONE):
            return False
        self._agent.unread(self.rest)
        return True

    @property
    def rest(self) -> bytes:
        """Bytes received after the end of the request."""
        return self._http.trailing_data[0]

    def _event(self) -> object:
        try:
            return self._http.next_event()
        except h11.RemoteProtocolError as error:
            raise bad_request("The request is malformed.", error.error_status_hint) from error


class OriginConnection:
    """Client side of one exchange with the origin; UnreachableError if the connection breaks.

    Attributes:
        trailers: After the response's body; complete when ``body`` has ended.
    """

    def __init__(self, stream: Stream) -> None:
        self.trailers: Headers = ()
        self._stream = stream
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES)

    async def start(self, method: str, target: str, headers: Headers) -> None:
        """Send the head of the request.

        Args:
            method: In upper case.
            target: Path and query.
            headers: Including Host and, with a body, Content-Length or
                ``Transfer-Encoding: chunked``.
        """
        event = h11.Request(method=method, target=target, headers=list(headers))
        await self._write(self._http.send(event))

    async def send(self, data: bytes) -> None:
        """Send a chunk of the request's body."""
        await self._write(self._http.send(h11.Data(data=data)))

    async def finish(self, trailers: Headers = ()) -> None:
        """End the request; trailers require a chunked body."""
        await self._write(self._http.send(h11.EndOfMessage(headers=list(trailers))))

    async def next_head(self) -> h11.InformationalResponse | h11.Response:
        """Return the next response head; the first with a status of 200 or above is the final one.

        Raises:
            UnreachableError: It is malformed, or the origin closed the connection.
        """
        event = await self._next()
        if not isinstance(event, h11.InformationalResponse | h11.Response):
            raise UnreachableError("The origin did not answer.", Cause.BROKEN)
        return event

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the response's body.

        Raises:
            UnreachableError: It is malformed or ends too early.
        """
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)
        if isinstance(event, h11.EndOfMessage):
            self.trailers = _safe_trailers(event)

    @property
    def rest(self) -> bytes:
        """Bytes received after the protocol switch."""
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
    """Return the bytes of a response to a malformed request; the connection must then be closed."""
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
        raise UnreachableError(
            "The response's length differs from its Content-Length.", Cause.BROKEN
        ) from error
