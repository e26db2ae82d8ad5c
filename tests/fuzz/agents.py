"""Target: what an agent may send to the proxy route, down to what the origin then gets."""

# ruff: noqa: E501 - tables of inputs

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from fuzz.loop import Target
from securebench.gateway.dial import Dialer, Endpoint
from securebench.gateway.launches import ServedLaunch
from securebench.gateway.proxy import serve_proxy
from securebench.gateway.run_gateway import RunGateway
from securebench.gateway.streams import CHUNK_BYTES, AgentStream
from securebench.protocol.gateway import GatewayConfig, GatewayLimits, LaunchReport
from support.build import FakeClock

LISTED = "a.example"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
LIMITS = GatewayLimits()
CONFIG = GatewayConfig("sb-", "ns", "sa", "aud", (LISTED,), None, limits=LIMITS)

END = b"\r\n\r\n"
METHODS = {b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE"}
CHUNK = re.compile(rb"([0-9a-fA-F]+)\r\n")
FIELD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: ?[^\x00\r\n]*")


class Agent:
    """Sends the input in pieces, then ends; keeps what it gets."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._piece = 1 + sum(data) % 97
        self.received = bytearray()

    async def read(self, limit: int = CHUNK_BYTES) -> bytes:
        size = min(limit, self._piece)
        data, self._data = self._data[:size], self._data[size:]
        return data

    async def write(self, data: bytes) -> None:
        self.received += data

    async def end(self) -> None:
        pass

    async def close(self) -> None:
        pass


class Origin:
    """Answers when it has a whole request."""

    def __init__(self, place: Endpoint) -> None:
        self.place = place
        self.received = bytearray()
        self._answer = ANSWER
        self._is_complete = asyncio.Event()

    async def read(self, limit: int = CHUNK_BYTES) -> bytes:
        await self._is_complete.wait()
        data, self._answer = self._answer[:limit], self._answer[limit:]
        return data

    async def write(self, data: bytes) -> None:
        self.received += data
        if size_of_request(bytes(self.received)) is not None:
            self._is_complete.set()

    async def end(self) -> None:
        pass

    async def close(self) -> None:
        pass


def size_of_request(raw: bytes) -> int | None:
    """Return where the one request ends, None where it is not whole; no code of h11 or of ours."""
    head, found, _ = raw.partition(END)
    if not found:
        return None
    first, *lines = head.split(b"\r\n")
    method, target, version = first.split(b" ")
    assert method in METHODS, raw
    assert target.startswith(b"/"), raw
    assert version == b"HTTP/1.1", raw
    assert all(FIELD.fullmatch(line) for line in lines), raw
    fields = [line.partition(b":")[0].lower() for line in lines]
    assert fields.count(b"host") == 1, raw
    framing = [
        line
        for line in lines
        if line.lower().startswith((b"content-length:", b"transfer-encoding:"))
    ]
    assert len(framing) <= 1, raw
    begin = len(head) + len(END)
    if not framing:
        return begin
    name, _, value = framing[0].partition(b":")
    if name.lower() == b"content-length":
        end = begin + int(value)
        return end if len(raw) >= end else None
    assert value.strip().lower() == b"chunked", raw
    return end_of_chunks(raw, begin)


def end_of_chunks(raw: bytes, position: int) -> int | None:
    while (found := CHUNK.match(raw, position)) is not None:
        size = int(found[1], 16)
        position = found.end() + size
        if size == 0:
            end = raw.find(END, found.end() - 2)
            return None if end < 0 else end + len(END)
        if len(raw) < position + 2:
            return None
        assert raw[position : position + 2] == b"\r\n", raw
        position += 2
    assert CHUNK.match(raw[position:] + b"0\r\n") or raw[position:].endswith(b"\r"), raw
    return None


def check(data: bytes, _root: Path) -> None:
    agent, origins, launch = asyncio.run(serve(data))
    for origin in origins:
        raw = bytes(origin.received)
        assert origin.place.host == LISTED or origin.place.host.endswith(f".{LISTED}")
        assert origin.place.port in {80, 443}
        if raw and not is_tunnel(agent):
            assert size_of_request(raw) in {None, len(raw)}, raw
            assert host_of(raw) == origin.place.host
    report = launch.report
    assert report.requests + report.blocked >= len(origins)
    assert not agent.received or agent.received.startswith(b"HTTP/1.1 ")
    assert report.bytes_down == len(agent.received)


async def serve(data: bytes) -> tuple[Agent, list[Origin], ServedLaunch]:
    origins: list[Origin] = []

    async def resolve(_host: str) -> tuple[str, ...]:
        return ("93.184.216.34",)

    async def connect(place: Endpoint) -> Origin:
        origins.append(Origin(place))
        return origins[-1]

    launch = ServedLaunch(LaunchReport("sb-1", "pod-uid"), LIMITS, FakeClock())
    dialer = Dialer(10.0, resolve, connect)
    gateway = RunGateway(CONFIG, dialer, dialer, FakeClock())
    agent = Agent(data)
    await serve_proxy(AgentStream(agent, launch), launch, gateway)
    return agent, origins, launch


def is_tunnel(agent: Agent) -> bool:
    return b"Connection established" in agent.received


def host_of(raw: bytes) -> str:
    found = re.search(rb"\r\nhost: ?([^\r]*)\r\n", raw, re.IGNORECASE)
    return found[1].decode().partition(":")[0] if found else ""


def request(*lines: str, body: str = "") -> bytes:
    return "\r\n".join((*lines, "", body)).encode("latin-1")


GET = request("GET http://a.example/p?q HTTP/1.1", "Host: a.example")
SEEDS = (
    GET,
    GET + GET + request("GET http://b.example/ HTTP/1.1", "Host: b.example"),
    request("HEAD http://sub.a.example:80/ HTTP/1.1", "Host: sub.a.example:80", "Connection: close"),
    request("POST http://a.example/ HTTP/1.1", "Host: a.example", "Content-Length: 5", body="hello") + GET,
    request("PUT http://a.example/ HTTP/1.1", "Host: a.example", "Transfer-Encoding: chunked", "Trailer: x", body="5;e=v\r\nhello\r\n0\r\nX: y\r\n\r\n") + GET,
    request("POST http://a.example/ HTTP/1.1", "Host: a.example", "Expect: 100-continue", "Content-Length: 1", body="x"),
    request("GET http://a.example/ HTTP/1.1", "Host: a.example", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x"),
    request("GET http://A.EXAMPLE./ HTTP/1.0", "Host: a.example", "Proxy-Connection: keep-alive"),
    request("CONNECT a.example:443 HTTP/1.1", "Host: a.example:443", body="\x16\x03\x01\x00\x05hello"),
    request("GET http://a.example:443/ HTTP/1.1", "Host: a.example:443", "Connection: host, x-y", "X-Y: 1"),
    request("OPTIONS * HTTP/1.1", "Host: a.example"),
)  # fmt: skip
TOKENS = (
    *(b"\r\n", b"\r\n\r\n", b"\n", b"\r", b"\0", b"\t", b" ", b":", b"0\r\n\r\n", b"5\r\n", b" HTTP/1.1\r\n", b"HTTP/1.0"),
    *(b"Content-Length: 5\r\n", b"Content-Length: 0\r\n", b"Transfer-Encoding: chunked\r\n", b"Host: a.example\r\n", b"Host: b.example\r\n"),
    *(b"Transfer-Encoding : chunked\r\n", b"Connection: ", b"close", b"keep-alive", b"Upgrade: h2c\r\n", b"Expect: 100-continue\r\n"),
    *(b"http://a.example/", b"http://b.example/", b"https://", b"[::1]", b"127.0.0.1", b"a.example@b.example", b"%2e", b"xn--"),
    *(b"GET ", b"POST ", b"CONNECT ", b"PRI * HTTP/2.0", b"X: a\r\n b\r\n", b"ffffffffffffffff\r\n", b";ext", b"\xff"),
    GET,
)  # fmt: skip
AGENT = Target("agent", check, SEEDS, TOKENS, traced=("/securebench/gateway/",))
