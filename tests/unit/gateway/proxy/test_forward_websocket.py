"""WebSockets: the only protocol that a plain request may change to."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Awaitable, Callable

import pytest

from securebench.protocol.gateway import GatewayLimits
from support.proxies import LISTED, Peer, status_of, statuses, world

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""The example of RFC 6455 section 1.3."""

ASKED = {
    "Host": LISTED,
    "Connection": "keep-alive, Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Key": KEY,
    "Sec-WebSocket-Version": "13",
}
AGREED = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": ACCEPT}


def head(first: str, headers: dict[str, str]) -> bytes:
    lines = (first, *(f"{name}: {value}" for name, value in headers.items()), "", "")
    return "\r\n".join(lines).encode()


def handshake(**changes: str) -> bytes:
    return head(f"GET http://{LISTED}/socket HTTP/1.1", ASKED | changes)


def echo(agreed: bytes) -> Callable[[Peer], Awaitable[None]]:
    """Return an origin that agrees and sends back what it gets until the agent has ended."""

    async def handle(peer: Peer) -> None:
        await peer.until(b"\r\n\r\n")
        await peer.send(agreed)
        while data := await peer.read():
            await peer.send(data)

    return handle


def test_the_example_of_the_standard() -> None:
    guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    digest = hashlib.sha1((KEY + guid).encode(), usedforsecurity=False).digest()
    assert base64.b64encode(digest).decode() == ACCEPT


async def test_bytes_flow_both_ways_until_both_sides_end() -> None:
    async with world() as made, made.agent() as agent:
        made.origin.handle = echo(
            head("HTTP/1.1 101 Switching Protocols", AGREED) + b"\x81\x05first"
        )
        await agent.send(handshake() + b"\x81\x05early")
        answer = await agent.until(b"\x81\x05early")
        assert status_of(answer) == 101
        assert answer.partition(b"\r\n\r\n")[2] == b"\x81\x05first\x81\x05early"
        assert b"upgrade: websocket\r\n" in answer.lower()
        await agent.send(b"\x00\xff" * 100_000)
        agent.writer.write_eof()
        assert (await agent.rest()).endswith(b"\x00\xff" * 100_000)
        (decision,) = await made.log()
        assert (decision["verdict"], decision["status"]) == ("allowed", 101)
        assert int(str(decision["bytes_up"])) > 200_000
        assert b"\r\nupgrade: websocket\r\n" in bytes(made.origin.raw[0])


async def test_an_ending_of_one_side_leaves_the_other_open() -> None:
    async def answer_at_the_end(peer: Peer) -> None:
        await peer.until(b"\r\n\r\n")
        await peer.send(head("HTTP/1.1 101 Switching Protocols", AGREED))
        await peer.rest()
        await peer.send(b"last words")

    async with world() as made, made.agent() as agent:
        made.origin.handle = answer_at_the_end
        await agent.send(handshake())
        await agent.until(b"\r\n\r\n")
        agent.writer.write_eof()
        assert (await agent.rest()).endswith(b"\r\n\r\nlast words")


@pytest.mark.parametrize(
    ("limits", "reason"),
    [(GatewayLimits(idle_seconds=0.2), "idle"), (GatewayLimits(bytes=50_000), "byte_limit")],
)
async def test_limits_hold_after_the_switch(limits: GatewayLimits, reason: str) -> None:
    async with world(limits) as made, made.agent() as agent:
        made.origin.handle = echo(head("HTTP/1.1 101 Switching Protocols", AGREED))
        await agent.send(handshake())
        await agent.until(b"\r\n\r\n")
        if reason == "byte_limit":
            await agent.send(bytes(60_000))
        await agent.rest()
        (decision,) = await made.log()
        assert (decision["verdict"], decision["reason"]) == ("cut", reason)


NO_WEBSOCKET = {
    "h2c": {"Upgrade": "h2c"},
    "a list": {"Upgrade": "websocket, h2c"},
    "no token in Connection": {"Connection": "keep-alive"},
    "a body": {"Content-Length": "2"},
}


@pytest.mark.parametrize("name", NO_WEBSOCKET)
async def test_other_switches_are_not_asked_for(name: str) -> None:
    data = handshake(**NO_WEBSOCKET[name]) + (b"hi" if name == "a body" else b"")
    async with world() as made:
        assert status_of(await made.talk(data)) == 200
        (request,) = made.origin.requests()
        assert "upgrade" not in request.headers
        assert request.headers["connection"] == "close"


NO_AGREEMENT = {
    "another protocol": AGREED | {"Upgrade": "h2c"},
    "no protocol": {"Connection": "Upgrade", "Sec-WebSocket-Accept": ACCEPT},
    "another key": AGREED | {"Sec-WebSocket-Accept": "AAAAAAAAAAAAAAAAAAAAAAAAAAA="},
    "no key": {"Upgrade": "websocket", "Connection": "Upgrade"},
}


@pytest.mark.parametrize("name", NO_AGREEMENT)
async def test_a_switch_that_is_none_opens_no_tunnel(name: str) -> None:
    smuggled = b"GET /smuggled HTTP/1.1\r\nHost: other.org\r\n\r\n"
    async with world() as made:
        made.origin.handle = echo(head("HTTP/1.1 101 Switching Protocols", NO_AGREEMENT[name]))
        answer = await made.talk(handshake() + smuggled)
        assert statuses(answer)[:1] == [502]
        assert b"smuggled" not in bytes(made.origin.raw[0])


async def test_a_refused_switch_leaves_the_rest_as_a_request_of_its_own() -> None:
    async with world() as made:
        made.origin.answer = b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n"
        other = b"GET http://other.org/ HTTP/1.1\r\nHost: other.org\r\n\r\n"
        assert statuses(await made.talk(handshake() + other)) == [426, 403]
        assert len(made.origin.raw) == 1
