"""Which host and port an agent's request names: the targets of CONNECT and of absolute URLs.

Both are parsed into one canonical form (contract 11.1 to 11.3). Anything but a plain host name and
a port of HTTP is refused, so that the allow-list and the resolver can never see different names.
Source: A-130 and A-135.
"""

from __future__ import annotations

import re
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final, NamedTuple

from securebench.agents.providers.endpoint import LABEL, MAX_DOMAIN_CHARACTERS, NUMBER
from securebench.gateway.decisions import Cause, RefusedError

HTTP_PORT: Final = 80
HTTPS_PORT: Final = 443
PORTS: Final = frozenset({HTTP_PORT, HTTPS_PORT})


def canonical_host(text: str) -> str | None:
    """Return a host name in lower case without a trailing dot, or None if it is invalid.

    Valid are ASCII letters, digits and inner hyphens in labels of 1 to 63 characters, at most 253
    in total. Dotted-decimal addresses have this form too; see ``authority``.
    """
    if not text.isascii():
        return None
    host = text.lower().removesuffix(".")
    if len(host) > MAX_DOMAIN_CHARACTERS:
        return None
    return host if all(LABEL.fullmatch(label) for label in host.split(".")) else None


_SCHEME = "http://"
_MAX_PORT = 65535

_PORT = re.compile(r"[0-9]{1,5}")
_VISIBLE = re.compile(r"[!-~]*")


class Target(NamedTuple):
    """Target of a request: a canonical name, never an address, and port 80 or 443."""

    host: str
    port: int


class UrlTarget(NamedTuple):
    """Target of a plain HTTP request.

    Attributes:
        target: Host and port.
        path: Origin form: path and query, beginning with ``/``; visible ASCII.
    """

    target: Target
    path: str


def connect_target(text: str) -> Target:
    """Parse the target of a CONNECT request; the default port is 443.

    Raises:
        RefusedError: 400 if it is not a host name, 403 for an address or another port.
    """
    return _target(text, HTTPS_PORT)


def host_target(text: str, port: int) -> Target:
    """Parse a Host header.

    Args:
        text: The header's value.
        port: Port of the URL; the default if the header has none.

    Raises:
        RefusedError: 400 if it is not a host name, 403 for an address or another port.
    """
    return _target(text, port)


def url_target(text: str) -> UrlTarget:
    """Parse the target of a plain request; the default port is 80.

    Args:
        text: Must be an absolute http URL without user or fragment.

    Raises:
        RefusedError: 400 for anything else, 403 for an address or another port.
    """
    if text[: len(_SCHEME)].lower() != _SCHEME:
        raise _bad("The proxy accepts only CONNECT and absolute http:// URLs.")
    rest = text[len(_SCHEME) :]
    if "#" in rest or not _VISIBLE.fullmatch(rest):
        raise _bad("The URL has characters that are invalid in a request target.")
    end = min((rest.find(sign) for sign in "/?" if sign in rest), default=len(rest))
    path = rest[end:]
    return UrlTarget(_target(rest[:end], HTTP_PORT), path if path.startswith("/") else f"/{path}")


def _target(text: str, default_port: int) -> Target:
    name, port = _split(text, default_port)
    host = canonical_host(name)
    if _is_literal(name.strip("[]")) or (host is not None and _ends_in_number(host)):
        raise RefusedError("Addresses are not allowed, only names.", Cause.LITERAL)
    if host is None:
        raise _bad("The target is not a valid host name.")
    if port not in PORTS:
        raise RefusedError(f"Port {port} is not allowed, only 80 and 443.", Cause.PORT)
    return Target(host, port)


def _split(text: str, default_port: int) -> tuple[str, int]:
    if text.startswith("["):
        name, bracket, rest = text.partition("]")
        if not bracket or not _is_literal(name[1:]) or (rest and not rest.startswith(":")):
            raise _bad("The target's brackets do not contain an address.")
        return f"{name}]", _port(rest[1:]) if rest else default_port
    if _is_literal(text):
        return text, default_port
    name, colon, port = text.partition(":")
    return name, _port(port) if colon else default_port


def _port(text: str) -> int:
    port = int(text) if _PORT.fullmatch(text) else 0
    if not 0 < port <= _MAX_PORT:
        raise _bad("The target's port is not a number from 1 to 65535.")
    return port


def _is_literal(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _ends_in_number(host: str) -> bool:
    return NUMBER.fullmatch(host.rpartition(".")[2]) is not None


def _bad(reason: str) -> RefusedError:
    return RefusedError(reason, Cause.BAD_REQUEST, HTTPStatus.BAD_REQUEST)
