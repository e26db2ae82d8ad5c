"""Parse HTTP/1.1 request heads strictly, so that no two parsers can disagree about them.

h11 accepts folded lines, bare line feeds and contradictory framing; all of that is rejected here,
because it allows request smuggling.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from securebench.gateway.net.causes import Cause, RefusedError

HTTP_1_0: Final = 10
HTTP_1_1: Final = 11

LENGTH_DIGITS: Final = 15
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
_LENGTH = re.compile(rb"[0-9]{1,%d}" % LENGTH_DIGITS)


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request without its body.

    Attributes:
        method: As sent; methods are case-sensitive.
        target: Request target; visible ASCII characters.
        version: ``HTTP_1_0`` or ``HTTP_1_1``.
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


def check_characters(data: bytes | bytearray, start: int = 0) -> None:
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
    check_characters(data)
    first, *lines = data.removesuffix(END).split(b"\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise bad_request("The request line is malformed.")
    headers = tuple(_field(text) for text in lines)
    version = HTTP_1_1 if line[3] == b"1" else HTTP_1_0
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
        if version == HTTP_1_0 or codings[0].lower() != b"chunked":
            raise bad_request("The request's Transfer-Encoding is not exactly chunked.")
        return None
    if lengths and _LENGTH.fullmatch(lengths[0]) is None:
        raise bad_request("The request's Content-Length is not a plain number.")
    return int(lengths[0]) if lengths else 0


def bad_request(reason: str, status: int = HTTPStatus.BAD_REQUEST) -> RefusedError:
    """Return the error for a malformed request."""
    return RefusedError(reason, Cause.BAD_REQUEST, status)
