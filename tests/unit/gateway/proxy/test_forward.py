"""Requests that the proxy forwards, to web sockets too."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import tracemalloc
from collections.abc import Awaitable, Callable

import pytest

from securebench.protocol.gateway import GatewayLimits
from support.proxies import LISTED, Peer, World, status_of, statuses, world

# ruff: noqa: E501 - tables of inputs


MEGABYTE = 1024 * 1024


def request(method: str, *headers: str, body: bytes = b"", version: str = "1.1") -> bytes:
    lines = (f"{method} http://{LISTED}/a HTTP/{version}", f"Host: {LISTED}", *headers, "", "")
    return "\r\n".join(lines).encode() + body


def body_of(answer: bytes) -> bytes:
    return answer.partition(b"\r\n\r\n")[2]


async def reasons(made: World) -> list[tuple[object, object]]:
    return [(one["verdict"], one["reason"]) for one in await made.log()]


async def test_headers_of_the_hop_stay_behind_and_the_others_go_on() -> None:
    sent = request(
        "GET",
        "User-Agent: pip/25",
        "Authorization: Bearer mine",
        "X-Forwarded-For: 10.0.0.1",
        "Cookie: a=b",
        "Cookie: c=d",
        "Proxy-Connection: keep-alive",
        "Proxy-Authorization: Basic secret",
        "Connection: keep-alive, X-Hop",
        "Keep-Alive: timeout=5",
        "X-Hop: dropped",
        "TE: trailers",
        "Upgrade: h2c",
    )
    async with world() as made:
        assert status_of(await made.talk(sent)) == 200
        (seen,) = made.origin.requests()
    assert seen.headers == {
        "host": LISTED,
        "user-agent": "pip/25",
        "authorization": "Bearer mine",
        "x-forwarded-for": "10.0.0.1",
        "cookie": "c=d",
        "connection": "close",
    }
    assert bytes(made.origin.raw[0]).lower().count(b"cookie: ") == 2


BODIES = {
    "length": (["Content-Length: 5"], b"hello", {"content-length": "5"}),
    "empty": (["Content-Length: 0"], b"", {"content-length": "0"}),
    "none": ([], b"", {}),
    "chunks": (["Transfer-Encoding: chunked"], b"2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\n\r\n", {"transfer-encoding": "chunked"}),
}  # fmt: skip


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "GET"])
@pytest.mark.parametrize("name", BODIES)
async def test_bodies_of_both_framings(method: str, name: str) -> None:
    headers, body, want = BODIES[name]
    async with world() as made:
        answer = await made.talk(request(method, *headers, body=body))
        (seen,) = made.origin.requests()
    assert status_of(answer) == 200
    assert seen.body == (b"hello" if body else b"")
    assert {key: seen.headers[key] for key in want} == want
    assert len({"content-length", "transfer-encoding"} & set(seen.headers)) == len(want)


async def test_a_chunked_upload_keeps_its_trailers() -> None:
    body = b"5\r\nhello\r\n0\r\nX-Sum: 1\r\nHost: other.org\r\nConnection: x\r\n\r\n"
    headers = ("Transfer-Encoding: chunked", "Trailer: X-Sum")
    async with world() as made:
        await made.talk(request("PUT", *headers, body=body))
        (seen,) = made.origin.requests()
    assert (seen.body, seen.trailers) == (b"hello", {"x-sum": "1"})


ANSWERS = {
    "length": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "GET", 200, b"hello"),
    "chunks": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "GET",
        200,
        b"5\r\nhello\r\n0\r\n\r\n",
    ),
    "chunks with trailers": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 1\r\n\r\n",
        "GET",
        200,
        b"5\r\nhello\r\n0\r\nx-sum: 1\r\n\r\n",
    ),
    "length and chunks": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "GET",
        200,
        b"5\r\nhello\r\n0\r\n\r\n",
    ),
    "until the end": (b"HTTP/1.1 200 OK\r\n\r\nhello", "GET", 200, b"5\r\nhello\r\n0\r\n\r\n"),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\nhello", "GET", 200, b"5\r\nhello\r\n0\r\n\r\n"),
    "bytes behind the body": (
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhelloHTTP/1.1 200 OK\r\n\r\n",
        "GET",
        200,
        b"hello",
    ),
    "HEAD": (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HEAD", 200, b""),
    "204": (b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", "GET", 204, b""),
    "304": (b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", "GET", 304, b""),
    "redirect": (
        b"HTTP/1.1 302 Found\r\nLocation: http://other.org/\r\nContent-Length: 0\r\n\r\n",
        "GET",
        302,
        b"",
    ),
    "an odd status": (b"HTTP/1.1 599 What\r\nContent-Length: 0\r\n\r\n", "GET", 599, b""),
    "hints first": (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "GET",
        200,
        b"hello",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_answers_are_framed_anew(name: str) -> None:
    raw, method, want_status, want_body = ANSWERS[name]
    follow_up = request("GET", "Connection: close")
    async with world() as made:
        made.origin.answer = raw
        answer = await made.talk(request(method))
        assert status_of(answer) == want_status
        assert body_of(answer) == want_body
        assert await reasons(made) == [("allowed", "")]
        assert len(made.origin.dialled) == 1
        assert statuses(await made.talk(request(method) + follow_up))[-1] == want_status


async def test_headers_of_the_answer_of_one_hop_stay_behind() -> None:
    async with world() as made:
        made.origin.answer = (
            b"HTTP/1.1 200 Fine\r\nServer: x\r\nSet-Cookie: a\r\nSet-Cookie: b\r\nUpgrade: h2c\r\n"
            b"Connection: close, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nContent-Length: 0\r\n\r\n"
        )
        answer = await made.talk(request("GET"))
    head = b"HTTP/1.1 200 Fine\r\nserver: x\r\nset-cookie: a\r\nset-cookie: b\r\ncontent-length: 0"
    assert answer.lower() == head.lower() + b"\r\n\r\n"


async def test_an_agent_of_http_1_0_gets_a_body_until_the_end() -> None:
    async with world() as made:
        made.origin.answer = (
            b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        )
        answer = await made.talk(request("GET", version="1.0"))
    assert statuses(answer) == [200]
    assert body_of(answer) == b"hello"
    assert b"transfer-encoding" not in answer.lower()


async def test_early_hints_reach_the_agent() -> None:
    async with world() as made:
        made.origin.answer = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
        assert statuses(await made.talk(request("GET"))) == [103, 200]


async def test_100_continue_comes_when_the_origin_is_there() -> None:
    expecting = request("POST", "Content-Length: 5", "Expect: 100-continue")
    async with world() as made, made.agent() as agent:
        await agent.send(expecting)
        await agent.until(b"HTTP/1.1 100 \r\n\r\n")
        assert len(made.origin.dialled) == 1
        await agent.send(b"hello")
        assert (await agent.until(b"\r\n\r\nhello")).count(b"HTTP/1.1 ") == 2
        (seen,) = made.origin.requests()
    assert seen.body == b"hello"
    assert "expect" not in seen.headers


async def test_a_refused_request_gets_no_100_continue() -> None:
    evil = request("POST", "Content-Length: 5", "Expect: 100-continue").replace(
        LISTED.encode(), b"other.org"
    )
    async with world() as made, made.agent() as agent:
        await agent.send(evil)
        agent.writer.write_eof()
        assert statuses(await agent.rest()) == [403]


async def test_the_body_of_a_refused_request_is_no_next_request() -> None:
    hidden = request("GET")
    evil = request("POST", f"Content-Length: {len(hidden)}", body=hidden)
    async with world() as made:
        answer = await made.talk(evil.replace(LISTED.encode(), b"other.org", 2) + hidden)
        assert statuses(answer) == [403]
        assert made.origin.dialled == []


def scripted(*parts: bytes) -> Callable[[Peer], Awaitable[None]]:
    """Return an origin that reads the request, sends the parts and breaks off."""

    async def handle(peer: Peer) -> None:
        await peer.request()
        for part in parts:
            await peer.send(part)

    return handle


BROKEN = {
    "nothing": (),
    "half a head": (b"HTTP/1.1 200 OK\r\nContent-",),
    "no HTTP": (b"220 smtp.example.com ESMTP\r\n\r\n",),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",),
    "a coding": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",),
    "long head": (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000,),
    "a switch that nobody asked for": (b"HTTP/1.1 101 Fine\r\nUpgrade: websocket\r\n\r\n",),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_an_origin_that_does_not_speak_http_is_a_502(name: str) -> None:
    async with world() as made:
        made.origin.handle = scripted(*BROKEN[name])
        assert statuses(await made.talk(request("GET") + request("GET"))) == [502, 502]
        assert await reasons(made) == [("allowed", "broken")] * 2


TRUNCATED = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello",
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    "broken chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nx\r\n",
}


@pytest.mark.parametrize("name", TRUNCATED)
async def test_a_truncated_answer_does_not_look_whole(name: str) -> None:
    async with world() as made:
        made.origin.handle = scripted(TRUNCATED[name])
        answer = await made.talk(request("GET") + request("GET"))
        assert statuses(answer) == [200]
        assert b"hello" in answer
        assert not answer.endswith(b"0\r\n\r\n")
        assert await reasons(made) == [("allowed", "broken")]


async def test_an_answer_before_the_end_of_the_upload_arrives() -> None:
    async def refuse(peer: Peer) -> None:
        await peer.read()
        await peer.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        peer.writer.write_eof()

    async with world() as made, made.agent() as agent:
        made.origin.handle = refuse
        await agent.send(request("POST", "Content-Length: 1000000", body=b"x"))
        answer = await agent.until(b"\r\n\r\nno")
        await agent.send(b"x" * 10_000)
        assert statuses(await agent.rest()) == [413]
        assert status_of(answer) == 413
        assert await reasons(made) == [("allowed", "")]


async def test_a_silent_origin_is_cut_with_504() -> None:
    async def silent(peer: Peer) -> None:
        await peer.rest()

    async with world(GatewayLimits(idle_seconds=0.2)) as made:
        made.origin.handle = silent
        assert statuses(await made.talk(request("GET"))) == [504]
        assert await reasons(made) == [("cut", "idle")]


async def test_a_stream_that_goes_on_is_not_idle() -> None:
    async def events(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        for number in range(8):
            await asyncio.sleep(0.1)
            await peer.send(b"data: %d\n\n" % number)

    async with world(GatewayLimits(idle_seconds=0.4)) as made, made.agent() as agent:
        made.origin.handle = events
        await agent.send(request("GET", "Connection: close"))
        await agent.until(b"data: 0\n\n\r\n")
        assert b"data: 7\n\n\r\n0\r\n\r\n" in await agent.rest()
        assert await reasons(made) == [("allowed", "")]


async def test_the_byte_limit_cuts_an_answer() -> None:
    async with world(GatewayLimits(bytes=100_000)) as made:
        made.origin.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + b"x" * 200_000
        answer = await made.talk(request("GET"))
        assert len(answer) < 100_000
        assert await reasons(made) == [("cut", "byte_limit")]


async def test_the_byte_limit_cuts_an_upload() -> None:
    async with world(GatewayLimits(bytes=100_000)) as made:
        sent = request("POST", "Content-Length: 200000", body=b"x" * 200_000)
        await made.talk(sent)
        assert await reasons(made) == [("cut", "byte_limit")]
        assert len(made.origin.raw[0]) < 100_000


async def test_a_slow_reader_holds_the_origin_back() -> None:
    size = 64 * MEGABYTE

    async def pour(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        for _ in range(size // MEGABYTE):
            await peer.send(bytes(MEGABYTE))
            poured.append(MEGABYTE)

    poured: list[int] = []
    async with world() as made, made.agent() as agent:
        made.origin.handle = pour
        tracemalloc.start()
        try:
            await agent.send(request("GET", "Connection: close"))
            await agent.read(1000)
            await settled(poured)
            assert sum(poured) < size // 2
            assert tracemalloc.get_traced_memory()[0] < 8 * MEGABYTE
        finally:
            tracemalloc.stop()
        total = len(agent.received)
        while data := await agent.reader.read(MEGABYTE):
            total += len(data)
        assert total > size
        assert await reasons(made) == [("allowed", "")]


async def settled(poured: list[int]) -> None:
    """Return when nothing more is taken for a while."""
    before = -1
    while before != len(poured):
        before = len(poured)
        await asyncio.sleep(0.2)


async def test_a_large_upload_arrives_whole() -> None:
    size = 20 * MEGABYTE
    arrived: list[int] = []

    async def swallow(peer: Peer) -> None:
        while sum(arrived) < size:
            arrived.append(len(await peer.reader.read(MEGABYTE)))
        await peer.send(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n")

    async with world() as made:
        made.origin.handle = swallow
        answer = await made.talk(request("PUT", f"Content-Length: {size}", body=bytes(size)))
        assert status_of(answer) == 201
        assert made.launch.report.bytes_up > size


async def test_an_agent_that_goes_away_ends_the_download() -> None:
    async def pour(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            await peer.send(bytes(MEGABYTE))

    async with world() as made:
        made.origin.handle = pour
        async with made.agent() as agent:
            await agent.send(request("GET"))
            await agent.read()
            agent.writer.transport.abort()
        assert await reasons(made) == [("allowed", "broken")]


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
