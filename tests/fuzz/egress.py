"""Targets: what an agent may say to the gateway of its run before anything goes out for it."""

# ruff: noqa: E501 - tables of inputs

from __future__ import annotations

import ssl
from contextlib import suppress
from pathlib import Path

from fuzz.loop import Target
from securebench.gateway.decisions import RefusedError
from securebench.gateway.dial import is_public
from securebench.gateway.proxy import MAX_HELLO_BYTES, ClientHelloParser
from securebench.gateway.targets import PORTS, canonical_host, connect_target, url_target
from securebench.gateway.targets import Target as Goal

SMALL = 7
"""Size of the pieces in which a hello is read a second time."""

# ClientHellos


def check_hello(data: bytes, _root: Path) -> None:
    """Whatever the pieces, a hello is refused or names the same host."""
    whole = read_hello(data, len(data) or 1)
    assert read_hello(data, SMALL) == whole
    assert whole is None or canonical_host(whole) == whole


def read_hello(data: bytes, size: int) -> str | None:
    reader = ClientHelloParser()
    with suppress(RefusedError):
        for at in range(0, len(data), size):
            name = reader.feed(data[at : at + size])
            if name is not None:
                return name
    return None


def client_hello(name: str | None) -> bytes:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    sent = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=name).do_handshake()
    return sent.read()


# Targets of requests


def check_target(data: bytes, _root: Path) -> None:
    """A target is refused, or a name in its one form that no resolver takes for an address."""
    text = data.decode("latin-1")
    with suppress(RefusedError):
        require_goal(connect_target(text))
    with suppress(RefusedError):
        url = url_target(text)
        require_goal(url.target)
        assert url.path.startswith("/")
        assert all(0x20 < ord(sign) < 0x7F for sign in url.path)


def require_goal(goal: Goal) -> None:
    assert canonical_host(goal.host) == goal.host
    assert goal.port in PORTS
    assert not is_public(goal.host)
    assert not goal.host.rpartition(".")[2].isdecimal()
    assert connect_target(f"{goal.host}:{goal.port}") == goal


HELLO = Target(
    "hello",
    check_hello,
    (client_hello("docs.dev"), client_hello("a.b.example"), client_hello(None)),
    (
        b"\x16\x03\x01", b"\x01\x00", b"\x00\x00", b"\xfe\x0d", b"\xff\xce", b"docs.dev", b"evil.example",
        b"\x00\x0d\x00\x0b\x00\x00\x08docs.dev", MAX_HELLO_BYTES.to_bytes(2, "big"), b"\xff\xff",
    ),
    traced=("/securebench/gateway/proxy.py",),
)  # fmt: skip
TARGET = Target(
    "target",
    check_target,
    (
        b"docs.dev:443", b"DOCS.dev.", b"http://docs.dev/a?b", b"[2001:db8::1]:443", b"192.0.2.1:80",
        b"http://docs.dev:80?x", b"[fe80::1%25eth0]", b"0x7f.1:443",
    ),
    (
        b"http://", b"https://", b"docs.dev", b":443", b":80", b":", b".", b"[", b"]", b"%00", b"@", b"#", b"?", b"/", b"\\",
        b"::ffff:", b"127.1", b"0x7f", b"0177.0.0.1", b"2130706433", b"xn--", b"\x00", b" ", b"\xe3\x80\x82", b"-",
    ),
    traced=("/securebench/gateway/",),
)  # fmt: skip

TARGETS = (HELLO, TARGET)
