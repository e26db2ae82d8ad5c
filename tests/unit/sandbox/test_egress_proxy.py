from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from securebench.core.errors import SpecError
from securebench.protocol.sidecar import Route
from securebench.sandbox import dial, egress_proxy
from securebench.sandbox.egress_proxy import Carrier, ProxySpec, decode

pytestmark = pytest.mark.timeout(30)

HOST = "127.0.0.1"
Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Behaviour = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Gateway:
    """A gateway on the loopback: remembers prefaces, answers each by ``replies``, then behaves.

    The last reply is given for ever; ``None`` closes the connection instead.
    """

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.replies: list[bytes | None] = [b"OK\n"]
        self.prefaces: list[bytes] = []
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            preface = await reader.readline()
            if preface:
                self.prefaces.append(preface)
                reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                writer.write(reply or b"")
                if reply == b"OK\n":
                    await self.behaviour(reader, writer)
        writer.close()


@contextlib.asynccontextmanager
async def gateway_that(behaviour: Behaviour, port: int = 0) -> AsyncIterator[Gateway]:
    gateway = Gateway(behaviour)
    server = await asyncio.start_server(gateway.serve, HOST, port)
    gateway.port = server.sockets[0].getsockname()[1]
    try:
        yield gateway
    finally:
        server.close()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


async def end(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    return None


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("first.token\n", encoding="ascii")
    return path


def renew(token: Path, content: str | None) -> None:
    """As the kubelet does it; nothing for a token that it could not get."""
    token.unlink()
    if content is not None:
        token.write_text(content, encoding="utf-8")


def spec(port: int, token: Path, **changes: Any) -> ProxySpec:
    listen = {Route.PROXY: 0, Route.PROVIDER: 0}
    return ProxySpec(HOST, port, token, listen, 4, 1.0, 1.0)._replace(**changes)


def free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


def port_of(carrier: Carrier, route: Route = Route.PROXY) -> int:
    server = carrier._servers[[Route.PROXY, Route.PROVIDER].index(route)]
    return int(server.sockets[0].getsockname()[1])


async def connect(carrier: Carrier, route: Route = Route.PROXY) -> Stream:
    return await asyncio.open_connection(HOST, port_of(carrier, route))


async def exchange(carrier: Carrier, data: bytes, route: Route = Route.PROXY) -> bytes:
    reader, writer = await connect(carrier, route)
    writer.write(data)
    writer.write_eof()
    answer = await reader.read()
    writer.close()
    return answer


@pytest.mark.parametrize("route", [Route.PROXY, Route.PROVIDER])
async def test_bytes_go_both_ways_behind_one_line_of_its_own(route: Route, token: Path) -> None:
    data = os.urandom(300_000)
    async with gateway_that(echo) as gateway, Carrier(spec(gateway.port, token)) as carrier:
        assert await exchange(carrier, data, route) == data
    assert gateway.prefaces == [f"SB1 {route.value} first.token\n".encode()]


async def test_the_token_is_read_for_each_connection(token: Path) -> None:
    async with gateway_that(echo) as gateway, Carrier(spec(gateway.port, token)) as carrier:
        await exchange(carrier, b"a")
        renew(token, "second.token")
        await exchange(carrier, b"b")
    assert gateway.prefaces == [b"SB1 proxy first.token\n", b"SB1 proxy second.token\n"]


async def test_the_end_of_the_agents_bytes_leaves_the_answer_open(token: Path) -> None:
    async def answer_at_the_end(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"got " + await reader.read())

    async with (
        gateway_that(answer_at_the_end) as gateway,
        Carrier(spec(gateway.port, token)) as carrier,
    ):
        assert await exchange(carrier, b"all of it") == b"got all of it"


async def test_the_end_of_the_answer_leaves_the_agents_bytes_open(token: Path) -> None:
    received = asyncio.Event()

    async def end_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"short")
        writer.write_eof()
        if await reader.read() == b"onetwo":
            received.set()

    async with gateway_that(end_first) as gateway, Carrier(spec(gateway.port, token)) as carrier:
        reader, writer = await connect(carrier)
        writer.write(b"one")
        assert await reader.read() == b"short"
        writer.write(b"two")
        writer.close()
        await asyncio.wait_for(received.wait(), 2)


async def test_a_cut_answer_is_no_whole_answer(token: Path) -> None:
    async def break_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"half")
        await writer.drain()
        await reader.read(1)
        dial.cut(dial.GatewayStream(reader, writer))

    async with gateway_that(break_off) as gateway, Carrier(spec(gateway.port, token)) as carrier:
        reader, writer = await connect(carrier)
        writer.write(b"a")
        assert await reader.readexactly(4) == b"half"
        writer.write(b"b")
        with pytest.raises(ConnectionResetError):
            await reader.read()
        writer.close()


async def test_an_agent_that_does_not_read_stops_the_gateway(token: Path) -> None:
    sent = 0

    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        for _ in range(1024):
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async with gateway_that(flood) as gateway, Carrier(spec(gateway.port, token)) as carrier:
        with socket.socket() as agent:
            agent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            agent.settimeout(0)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(agent, (HOST, port_of(carrier)))
            await loop.sock_sendall(agent, b"go")
            before = -1
            while sent != before:
                before = sent
                await asyncio.sleep(0.2)
            assert 0 < sent < 32 * 1024**2
            got = 0
            while data := await loop.sock_recv(agent, 1 << 20):
                got += len(data)
            assert got == 1024 * 65536


async def test_nothing_is_sent_on_before_the_agents_first_byte(token: Path) -> None:
    async with gateway_that(echo) as gateway, Carrier(spec(gateway.port, token)) as carrier:
        assert await exchange(carrier, b"") == b""
        assert gateway.prefaces == []


async def test_a_refusal_is_an_answer(token: Path) -> None:
    async with gateway_that(echo) as gateway, Carrier(spec(gateway.port, token)) as carrier:
        gateway.replies = [b"NO closed\n"]
        answer = await exchange(carrier, b"CONNECT a.test:443 HTTP/1.1\r\n\r\n" + b"x" * 100_000)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 403 Forbidden\r\n")
    assert f"Content-Length: {len(body)}\r\n".encode() in head
    assert body == b"securebench: the gateway refused: closed\n"
    assert not carrier.has_missed


async def test_an_agent_may_send_on_after_a_refusal(token: Path) -> None:
    async with gateway_that(echo) as gateway, Carrier(spec(gateway.port, token)) as carrier:
        gateway.replies = [b"NO closed\n"]
        reader, writer = await connect(carrier)
        writer.write(b"x")
        assert b"the gateway refused" in await reader.read()
        for _ in range(3):
            writer.write(b"x" * 1000)
            await asyncio.sleep(0.02)
            await writer.drain()
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize(
    ("reply", "want"),
    [
        (None, b"it closed the connection before its answer"),
        (b"HTTP/1.1 200\n", b"its answer is of another version"),
        (b"NO " + b"x" * 600 + b"\n", b"its answer is of another version"),
        (b"x" * 40_000, b"it closed the connection before its answer"),
    ],
    ids=["no answer", "foreign answer", "long answer", "endless line"],
)
async def test_a_gateway_that_speaks_otherwise_is_unreachable(
    reply: bytes | None, want: bytes, token: Path
) -> None:
    async with gateway_that(echo) as gateway, Carrier(spec(gateway.port, token)) as carrier:
        gateway.replies = [reply]
        answer = await exchange(carrier, b"GET / HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert want in answer
    assert not carrier.has_missed


async def test_a_gateway_that_is_down_is_missed(
    token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress_proxy, "ABSENT_SECONDS", 0.1)
    async with Carrier(spec(free_port(), token)) as carrier:
        answer = await exchange(carrier, b"GET / HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert b"securebench: the gateway cannot be reached: " in answer
    assert carrier.has_missed


@pytest.mark.parametrize(
    ("reply", "want"), [(b"OK\n", b"x"), (b"NO closed\n", b"HTTP/1.1 403")], ids=["yes", "no"]
)
async def test_a_gateway_that_comes_back_in_time_is_not_missed(
    reply: bytes, want: bytes, token: Path
) -> None:
    port = free_port()
    async with Carrier(spec(port, token)) as carrier:
        waiting = asyncio.create_task(exchange(carrier, b"x"))
        await asyncio.sleep(0.1)
        async with gateway_that(echo, port) as gateway:
            gateway.replies = [reply]
            assert (await waiting).startswith(want)
    assert not carrier.has_missed


async def test_an_agent_that_ends_before_the_gateway_comes_back_missed_it(token: Path) -> None:
    async with Carrier(spec(free_port(), token)) as carrier:
        _, writer = await connect(carrier)
        writer.write(b"x")
        await asyncio.sleep(0.1)
    writer.close()
    assert carrier.has_missed


@pytest.mark.parametrize(
    "number", [errno.EADDRNOTAVAIL, errno.EMFILE, errno.ENOBUFS, errno.ETIMEDOUT, errno.ECONNRESET]
)
async def test_what_an_agent_can_bring_about_is_not_missed(
    number: int, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object, **__: object) -> Stream:
        raise OSError(number, os.strerror(number))

    async with Carrier(spec(free_port(), token)) as carrier:
        reader, writer = await connect(carrier)
        monkeypatch.setattr(asyncio, "open_connection", fail)
        writer.write(b"x")
        assert b"the gateway cannot be reached" in await reader.read()
        writer.close()
    assert not carrier.has_missed


async def test_a_gateway_that_is_silent_is_unreachable(
    token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dial, "REPLY_SECONDS", 0.05)
    with socket.create_server((HOST, 0)) as silent:
        async with Carrier(spec(silent.getsockname()[1], token)) as carrier:
            answer = await exchange(carrier, b"GET / HTTP/1.1\r\n\r\n")
    assert b"no answer within 0.05 seconds" in answer
    assert not carrier.has_missed


@pytest.mark.parametrize("content", [None, "t" * 9000, "töken"], ids=["none", "long", "foreign"])
async def test_without_a_good_token_nothing_is_sent(content: str | None, token: Path) -> None:
    renew(token, content)
    async with gateway_that(echo) as gateway, Carrier(spec(gateway.port, token)) as carrier:
        answer = await exchange(carrier, b"GET / HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    assert gateway.prefaces == []
    assert not carrier.has_missed


async def test_only_so_many_connections_are_open(token: Path) -> None:
    async with gateway_that(echo) as gateway, Carrier(spec(gateway.port, token)) as carrier:
        held = [await connect(carrier) for _ in range(4)]
        for reader, writer in held:
            writer.write(b"x")
            assert await reader.read(1) == b"x"
        answer = await exchange(carrier, b"y")
        assert answer.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert len(gateway.prefaces) == 4
        held[0][1].close()
        while len(carrier._carrying) > 3:
            await asyncio.wait(carrier._carrying, return_when=asyncio.FIRST_COMPLETED)
        assert await exchange(carrier, b"z") == b"z"
        for _, writer in held:
            writer.close()
    assert not carrier.has_missed


async def test_a_flood_of_connections_is_cut_without_an_answer(token: Path) -> None:
    async with gateway_that(echo) as gateway, Carrier(spec(gateway.port, token)) as carrier:
        held = [await connect(carrier) for _ in range(4)]
        answered = [await connect(carrier) for _ in range(4)]
        for reader, _ in answered:
            assert await reader.readexactly(12) == b"HTTP/1.1 503"
        surplus = await connect(carrier)
        assert await surplus[0].read() == b""
        for _, writer in (*held, *answered, surplus):
            writer.close()
    assert not carrier.has_missed


async def test_lines_on_stdout_are_bounded(
    token: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress_proxy, "LOG_LINES", 2)
    async with gateway_that(echo) as gateway, Carrier(spec(gateway.port, token)) as carrier:
        for _ in range(5):
            await exchange(carrier, b"secret of the agent")
        await asyncio.gather(*carrier._carrying)
    line = "egress-proxy: proxy: done, 19 bytes up, 19 bytes down\n"
    assert (
        capsys.readouterr().out == 2 * line + "egress-proxy: further connections are not listed\n"
    )


async def test_closing_is_repeated_until_the_gateway_says_ok(token: Path) -> None:
    async with gateway_that(end) as gateway:
        gateway.replies = [None, b"NO busy\n", b"OK\n"]
        assert await egress_proxy.close_launch(spec(gateway.port, token, close_seconds=5.0))
    assert gateway.prefaces == 3 * [b"SB1 close first.token\n"]


async def test_closing_waits_for_a_gateway_that_is_replaced(token: Path) -> None:
    port = free_port()
    closing = asyncio.create_task(egress_proxy.close_launch(spec(port, token, close_seconds=5.0)))
    await asyncio.sleep(0.05)
    async with gateway_that(end, port):
        assert await closing


async def test_closing_ends_without_an_answer(
    token: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with gateway_that(end) as gateway:
        gateway.replies = [b"NO unknown\n"]
        assert not await egress_proxy.close_launch(spec(gateway.port, token, close_seconds=0.1))
    assert "did not close the launch in time: unknown" in capsys.readouterr().out


@pytest.mark.parametrize(("reply", "want"), [(b"OK\n", 0), (b"NO unknown\n", 1)])
async def test_sigterm_cuts_the_agent_and_closes_the_launch(
    reply: bytes, want: int, token: Path
) -> None:
    listen = {Route.PROXY: free_port()}
    async with gateway_that(echo) as gateway:
        told = spec(gateway.port, token, listen=listen, close_seconds=0.3)
        serving = asyncio.create_task(egress_proxy.serve(told))
        assert await egress_proxy.wait_until_served(told) == 0
        reader, writer = await asyncio.open_connection(HOST, listen[Route.PROXY])
        writer.write(b"x")
        assert await reader.read(1) == b"x"
        gateway.replies = [reply]
        os.kill(os.getpid(), signal.SIGTERM)
        assert await serving == want
        with pytest.raises(ConnectionResetError):
            await reader.read()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(HOST, listen[Route.PROXY])
        writer.close()
    assert gateway.prefaces[0] == b"SB1 proxy first.token\n"
    assert set(gateway.prefaces[1:]) == {b"SB1 close first.token\n"}


async def test_a_launch_that_missed_the_gateway_fails_though_it_is_closed(
    token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(egress_proxy, "ABSENT_SECONDS", 0.0)
    port, listen = free_port(), {Route.PROXY: free_port()}
    told = spec(port, token, listen=listen, close_seconds=5.0)
    async with gateway_that(end, port):
        serving = asyncio.create_task(egress_proxy.serve(told))
        assert await egress_proxy.wait_until_served(told) == 0
    reader, writer = await asyncio.open_connection(HOST, listen[Route.PROXY])
    writer.write(b"x")
    assert (await reader.read()).startswith(b"HTTP/1.1 502 Bad Gateway\r\n")
    writer.close()
    async with gateway_that(end, port) as gateway:
        os.kill(os.getpid(), signal.SIGTERM)
        assert await serving == 1
    assert gateway.prefaces == [b"SB1 close first.token\n"]


async def test_a_sidecar_that_never_reaches_the_gateway_does_not_listen(token: Path) -> None:
    told = spec(free_port(), token, listen={Route.PROXY: free_port()}, start_seconds=0.1)
    assert await egress_proxy.serve(told) == 1
    assert await egress_proxy.wait_until_served(told) == 1


async def test_sigterm_before_the_gateway_is_reached_still_closes_the_launch(token: Path) -> None:
    port = free_port()
    told = spec(port, token, start_seconds=60.0, close_seconds=5.0)
    serving = asyncio.create_task(egress_proxy.serve(told))
    await asyncio.sleep(0.05)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.05)
    async with gateway_that(end, port) as gateway:
        assert await serving == 0
    assert gateway.prefaces == [b"SB1 close first.token\n"]


def encoded(**changes: Any) -> str:
    raw = {
        "version": 1,
        "gateway": {"host": "10.96.7.7", "port": 8443},
        "token": "/work/token/token",
        "listen": {"proxy": 8080},
        "connections": 128,
        "start_seconds": 60,
        "close_seconds": 20,
    }
    return json.dumps(raw | changes)


def test_the_specification_is_read() -> None:
    path = Path("/work/token/token")
    assert decode(encoded()) == ProxySpec("10.96.7.7", 8443, path, {Route.PROXY: 8080}, 128, 60, 20)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"more": 1},
        {"gateway": {"host": "h"}},
        {"token": ""},
        {"listen": {"tunnel": 1}},
        {"listen": 8080},
        {"connections": "many"},
    ],
    ids=["version", "unknown field", "no port", "no token", "route", "no map", "number"],
)
def test_a_bad_specification_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        decode(encoded(**changes))


def test_the_program_waits_for_the_other_one() -> None:
    with socket.create_server((HOST, 0)) as served:
        listen = {"proxy": served.getsockname()[1]}
        argv = ["--spec", encoded(listen=listen, start_seconds=0.1), "--wait"]
        assert egress_proxy.main(argv) == 0
    assert egress_proxy.main(argv) == 1
