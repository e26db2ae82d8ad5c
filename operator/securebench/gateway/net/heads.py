"""Heads of HTTP/1.1 requests, read so that no two parsers could read them in two ways.

h11 folds lines, takes bare line feeds and prefers one of two framings; all that is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from securebench.gateway.net.causes import BAD_REQUEST, Cause, RefusedError

HTTP_1_0: Final = 10
HTTP_1_1: Final = 11

LENGTH_DIGITS: Final = 15
"""Of a Content-Length; a petabyte."""

Headers = tuple[tuple[bytes, bytes], ...]
"""Pairs of lower-case name and value, in the order of the wire."""

HOP_BY_HOP: Final = frozenset(
    {
        *(b"connection", b"keep-alive", b"proxy-connection", b"proxy-authorization"),
        *(b"proxy-authenticate", b"proxy-authentication-info", b"te", b"transfer-encoding"),
        *(b"upgrade", b"expect"),
    }
)
"""Headers that speak of one connection only (RFC 9110 section 7.6.1)."""

END: Final = b"\r\n\r\n"
"""Of a head."""

_FORBIDDEN = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|(?<!\r)\n|\r[^\n]")
_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e]+) HTTP/1\.([01])")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*(.*?)[ \t]*", re.DOTALL)
_LENGTH = re.compile(rb"[0-9]{1,%d}" % LENGTH_DIGITS)


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request without its body.

    Attributes:
        method: As it was sent; methods are case-sensitive.
        target: Of the request line: visible ASCII characters.
        version: ``HTTP_1_0`` or ``HTTP_1_1``.
        headers: All of them.
        length: Bytes of the body, or None where it is chunked.
    """

    method: str
    target: str
    version: int
    headers: Headers
    length: int | None

    def values(self, name: bytes) -> list[bytes]:
        """Return what the headers of a lower-case name say, in their order."""
        return values(self.headers, name)

    @property
    def has_body(self) -> bool:
        """Tell whether bytes follow."""
        return self.length != 0


def values(headers: Headers, name: bytes) -> list[bytes]:
    """Return what the headers of a lower-case name say, in their order."""
    return [value for key, value in headers if key == name]


def words(headers: Headers, name: bytes) -> set[bytes]:
    """Return the lower-case members of a comma-separated header."""
    lists = (value.lower().split(b",") for value in values(headers, name))
    return {word.strip() for members in lists for word in members} - {b""}


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers that are meant for the other end of a chain.

    Those that ``Connection`` names go as well; the framing is to be made anew.

    Args:
        headers: Pairs of lower-case name and value.
    """
    every = tuple(headers)
    dropped = (HOP_BY_HOP | words(every, b"connection")) - {b"content-length", b"host"}
    return tuple((name, value) for name, value in every if name not in dropped)


def check_characters(data: bytes | bytearray, start: int = 0) -> None:
    """Require that bytes may stand in a head; they need not be whole lines.

    Args:
        data: The head or its beginning.
        start: Where to begin.

    Raises:
        RefusedError: A control character, a bare line feed or a bare carriage return.
    """
    if _FORBIDDEN.search(data, start):
        raise bad_request("The request has a bare line feed or a control character.")


def request_head(data: bytes) -> RequestHead:
    """Parse a request line and headers.

    Args:
        data: With the empty line at the end.

    Raises:
        RefusedError: Two parsers might read it in two ways.
    """
    check_characters(data)
    first, *lines = data.removesuffix(END).split(b"\r\n")
    line = _REQUEST_LINE.fullmatch(first)
    if line is None:
        raise bad_request("The request line is malformed.")
    headers = tuple(_field(text) for text in lines)
    version = HTTP_1_1 if line[3] == b"1" else HTTP_1_0
    length = _body_length(headers, version)
    if words(headers, b"expect") - {b"100-continue"}:
        raise bad_request("The request expects more than 100-continue.", 417)
    return RequestHead(line[1].decode("ascii"), line[2].decode("ascii"), version, headers, length)


def _field(line: bytes) -> tuple[bytes, bytes]:
    found = _FIELD.fullmatch(line)
    if found is None:
        raise bad_request("A header line is malformed or folded.")
    return found[1].lower(), found[2]


def _body_length(headers: Headers, version: int) -> int | None:
    lengths, codings = values(headers, b"content-length"), values(headers, b"transfer-encoding")
    if len(lengths) + len(codings) > 1:
        raise bad_request("The request says more than once how long its body is.")
    if codings:
        if version == HTTP_1_0 or codings[0].lower() != b"chunked":
            raise bad_request("The request's Transfer-Encoding is not just chunked.")
        return None
    if lengths and _LENGTH.fullmatch(lengths[0]) is None:
        raise bad_request("The request's Content-Length is no plain number.")
    return int(lengths[0]) if lengths else 0


def bad_request(reason: str, status: int = BAD_REQUEST) -> RefusedError:
    """Return the error for what is no request."""
    return RefusedError(reason, Cause.BAD_REQUEST, status)
