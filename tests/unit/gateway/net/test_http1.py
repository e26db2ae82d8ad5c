"""Heads, bodies and answers on streams in memory."""

from __future__ import annotations

import pytest

from securebench.gateway.decisions import Cause, RefusedError, UnreachableError
from securebench.gateway.http1 import (
    HEAD_BYTES,
    Exchange,
    OriginConnection,
    end_to_end,
    list_members,
    next_exchange,
    refusal,
    request_head,
)
from securebench.gateway.launches import ServedLaunch
from securebench.gateway.streams import CHUNK_BYTES, AgentStream
from securebench.protocol.gateway import GatewayLimits, LaunchReport
from support.build import FakeClock

HEAD = b"POST http://a.example/ HTTP/1.1\r\nHost: a.example\r\n"


class Memory:
    """A stream that gives out pieces and keeps what is written."""

    def __init__(self, *pieces: bytes, is_broken: bool = False) -> None:
        self._pieces = list(pieces)
        self._is_broken = is_broken
        self.written = b""

    async def read(self, _limit: int = CHUNK_BYTES) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    async def write(self, data: bytes) -> None:
        if self._is_broken:
            raise ConnectionResetError
        self.written += data

    async def end(self) -> None:
        pass

    async def close(self) -> None:
        pass


def agent_of(memory: Memory) -> AgentStream:
    limits = GatewayLimits()
    return AgentStream(memory, ServedLaunch(LaunchReport("pod", "uid"), limits, FakeClock()))


async def exchange_of(*pieces: bytes) -> tuple[Exchange, Memory]:
    memory = Memory(*pieces)
    exchange = await next_exchange(agent_of(memory))
    assert exchange is not None
    return exchange, memory


async def test_a_request_in_pieces_of_one_byte_is_the_same() -> None:
    data = HEAD + b"Content-Length: 5\r\n\r\nhello"
    exchange, _ = await exchange_of(*(data[at : at + 1] for at in range(len(data))))
    assert exchange.head == request_head(data[: -len(b"hello")])
    assert [piece async for piece in exchange.body()] == [b"h", b"e", b"l", b"l", b"o"]


async def test_what_follows_a_request_is_the_next_one() -> None:
    memory = Memory(HEAD + b"\r\n" + HEAD + b"X: 2\r\n\r\n")
    agent = agent_of(memory)
    first = await next_exchange(agent)
    assert first is not None
    await first.answer(403, "No.")
    assert first.is_reusable()
    second = await next_exchange(agent)
    assert second is not None
    assert second.head.values(b"x") == [b"2"]
    await second.answer(403, "No.")
    assert second.is_reusable()
    assert await next_exchange(agent) is None


@pytest.mark.parametrize(("size", "want"), [(HEAD_BYTES, None), (HEAD_BYTES + 1, 431)])
async def test_the_bound_of_a_head(size: int, want: int | None) -> None:
    frame = HEAD + b"X: \r\n\r\n"
    data = frame.replace(b"X: ", b"X: " + b"x" * (size - len(frame)))
    if want is None:
        await exchange_of(data)
        return
    with pytest.raises(RefusedError) as caught:
        await exchange_of(data)
    assert caught.value.status == want


async def test_a_bare_line_feed_is_refused_before_the_head_is_whole() -> None:
    memory = Memory(b"GET / HTTP/1.1\n", b"never read")
    with pytest.raises(RefusedError, match="bare line feed"):
        await next_exchange(agent_of(memory))
    assert await memory.read() == b"never read"


async def test_a_line_end_may_be_split() -> None:
    exchange, _ = await exchange_of(HEAD[:-2] + b"\r", b"\nX: y\r", b"\n\r", b"\n")
    assert exchange.head.values(b"x") == [b"y"]


async def test_half_a_head_is_no_end() -> None:
    with pytest.raises(RefusedError, match="ended inside"):
        await exchange_of(HEAD)


@pytest.mark.parametrize(
    "pieces",
    [
        (b"Content-Length: 11\r\n\r\n",),
        (b"Transfer-Encoding: chunked\r\n\r\n", b"b\r\nhello world\r\n0\r\n\r\n"),
    ],
)
async def test_a_body_above_the_limit_is_refused(pieces: tuple[bytes, ...]) -> None:
    exchange, memory = await exchange_of(HEAD + pieces[0], *pieces[1:])
    with pytest.raises(RefusedError) as caught:
        await exchange.whole_body(10)
    assert (caught.value.status, caught.value.cause) == (413, Cause.TOO_LARGE)
    await exchange.answer(413, caught.value.reason)
    assert not exchange.is_reusable()
    assert b"connection: close" in memory.written


async def test_a_body_within_the_limit() -> None:
    exchange, _ = await exchange_of(
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"5\r\nhel", b"lo\r\n0\r\nX-Y: z\r\n\r\nrest"
    )
    assert await exchange.whole_body(5) == b"hello"
    assert exchange.trailers == ((b"x-y", b"z"),)
    assert exchange.rest == b"rest"


async def test_trailers_go_only_where_the_framing_has_them() -> None:
    chunked, written = await exchange_of(HEAD + b"\r\n")
    await chunked.start(200, ())
    await chunked.finish(((b"x", b"y"),))
    assert written.written.endswith(b"0\r\nx: y\r\n\r\n")
    sized, written = await exchange_of(HEAD + b"\r\n")
    await sized.start(200, ((b"content-length", b"0"),))
    await sized.finish(((b"x", b"y"),))
    assert b"x: y" not in written.written


@pytest.mark.parametrize("data", [b"", b"abc"])
async def test_an_answer_is_as_long_as_it_says(data: bytes) -> None:
    exchange, _ = await exchange_of(HEAD + b"\r\n")
    await exchange.start(200, ((b"content-length", b"2"),))
    with pytest.raises(UnreachableError):  # noqa: PT012 - more is seen at once, less at the end
        await exchange.send(data)
        await exchange.finish()
    assert not exchange.is_reusable()


async def test_a_broken_origin_is_unreachable() -> None:
    with pytest.raises(UnreachableError, match="broke"):
        await OriginConnection(Memory(is_broken=True)).start("GET", "/", ((b"host", b"a"),))


async def test_an_origin_that_ends_has_not_answered() -> None:
    origin = OriginConnection(Memory())
    await origin.start("GET", "/", ((b"host", b"a"),))
    await origin.finish()
    with pytest.raises(UnreachableError, match="ended too early"):
        await origin.next_head()


def test_a_refusal_is_a_whole_answer() -> None:
    head, _, body = refusal(400, "This is no request.").partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == b"HTTP/1.1 400 Bad Request"
    assert body == b"This is no request.\n"
    assert f"content-length: {len(body)}".encode() in head


def test_headers_that_connection_names_stay_behind() -> None:
    headers = (
        (b"connection", b"close, X-Hop"),
        (b"connection", b"host,content-length"),
        (b"x-hop", b"1"),
        (b"host", b"a"),
        (b"content-length", b"0"),
        (b"x-kept", b"1"),
    )
    assert [name for name, _ in end_to_end(headers)] == [b"host", b"content-length", b"x-kept"]


def test_words_of_a_list() -> None:
    headers = ((b"a", b"X , y,,"), (b"a", b"z"), (b"b", b"q"))
    assert list_members(headers, b"a") == {b"x", b"y", b"z"}
