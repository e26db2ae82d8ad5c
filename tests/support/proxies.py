"""The proxy route between a real agent's socket and a real origin that writes down what it gets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import h11

from securebench.gateway.dial import Dialer, Endpoint, connect_socket
from securebench.gateway.launches import ServedLaunch
from securebench.gateway.proxy import serve_proxy
from securebench.gateway.run_gateway import RunGateway
from securebench.gateway.streams import CHUNK_BYTES, AgentStream, SocketStream, Stream
from securebench.protocol.gateway import GatewayConfig, GatewayLimits, LaunchReport
from support.build import FakeClock

LISTED = "allowed.example.com"
PUBLIC = "93.184.216.34"
PATIENCE_SECONDS = 4.0


class Seen(NamedTuple):
    """What an origin got over one connection, as h11 reads it."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes
    trailers: dict[str, str]


class Sockets:
    """Connections and the tasks that serve them."""

    def __init__(self) -> None:
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, writer: asyncio.StreamWriter) -> asyncio.Task[None]:
        """Take the connection that the current task serves; return the task."""
        task = asyncio.current_task()
        assert task is not None
        self._writers.append(writer)
        self._tasks.append(task)
        return task

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.transport.abort()
            with suppress(OSError):
                await writer.wait_closed()


@dataclass
class Origin:
    """A server that keeps every byte and answers each connection's first request.

    Attributes:
        answer: Sent after a whole request.
        handle: Takes over connections when it is set.
        raw: Bytes per connection.
        dialled: Where the gateway connected to.
    """

    answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
    handle: Callable[[Peer], Awaitable[None]] | None = None
    raw: list[bytearray] = field(default_factory=list)
    sockets: Sockets = field(default_factory=Sockets)
    dialled: list[Endpoint] = field(default_factory=list)

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.sockets.add(writer)
        received = bytearray()
        self.raw.append(received)
        peer = Peer(reader, writer, received)
        with suppress(OSError):
            if self.handle is not None:
                await self.handle(peer)
            else:
                await peer.request()
                await peer.send(self.answer)
                writer.write_eof()
                await peer.rest()
        writer.close()

    def requests(self) -> list[Seen]:
        """Return the requests of all connections; bytes that are no request are an error."""
        return [seen(bytes(raw)) for raw in self.raw]


class Peer:
    """A connection, from the point of view of a test."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        received: bytearray | None = None,
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.received = bytearray() if received is None else received

    async def read(self, size: int = CHUNK_BYTES) -> bytes:
        async with asyncio.timeout(PATIENCE_SECONDS):
            data = await self.reader.read(size)
        self.received += data
        return data

    async def until(self, text: bytes) -> bytes:
        """Return everything so far when it ends so."""
        while not self.received.endswith(text):
            assert await self.read(), bytes(self.received)
        return bytes(self.received)

    async def rest(self) -> bytes:
        """Return everything when the other side has ended."""
        while await self.read():
            pass
        return bytes(self.received)

    async def request(self) -> None:
        """Read until a whole request is there or the other side has ended."""
        http = h11.Connection(h11.SERVER)
        while not isinstance(event := http.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                http.receive_data(await self.read())
            elif isinstance(event, h11.ConnectionClosed):
                return

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


@dataclass
class World:
    """A run with one listed domain whose every name leads to one origin."""

    origin: Origin
    launch: ServedLaunch
    gateway: RunGateway
    agents: asyncio.Server | None = None

    @asynccontextmanager
    async def agent(self) -> AsyncIterator[Peer]:
        assert self.agents is not None
        reader, writer = await asyncio.open_connection(*self.agents.sockets[0].getsockname()[:2])
        try:
            yield Peer(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def talk(self, data: bytes) -> bytes:
        """Send bytes, end, and return everything that comes back."""
        async with self.agent() as agent:
            with suppress(OSError):
                await agent.send(data)
                agent.writer.write_eof()
            return await agent.rest()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = SocketStream(reader, writer)
        task = self.origin.sockets.add(writer)
        self.launch.connections.add(task)
        try:
            with suppress(OSError):
                await serve_proxy(AgentStream(stream, self.launch), self.launch, self.gateway)
        finally:
            self.launch.connections.discard(task)
            await stream.close()

    async def log(self) -> list[dict[str, object]]:
        """Return the decisions when no connection is left."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while self.launch.connections:
                await asyncio.wait(self.launch.connections)
        changes = self.launch.take_changes()
        return [json.loads(line) for line in changes[1].splitlines()] if changes else []


@asynccontextmanager
async def world(
    limits: GatewayLimits | None = None, answers: tuple[str, ...] = (PUBLIC,)
) -> AsyncIterator[World]:
    """Open a gateway's proxy route and its origin.

    Args:
        limits: Of the gateway.
        answers: Addresses that every name has.
    """
    origin = Origin()
    server = await asyncio.start_server(origin.connected, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def resolve(_host: str) -> tuple[str, ...]:
        return answers

    async def connect(place: Endpoint) -> Stream:
        origin.dialled.append(place)
        return await connect_socket(place._replace(address="127.0.0.1", port=port))

    limits = limits or GatewayLimits()
    config = GatewayConfig("sb-uid-h-", "ns", "harness", "audience", (LISTED,), None, limits=limits)
    launch = ServedLaunch(LaunchReport("sb-uid-h-1", "pod-uid"), limits, FakeClock())
    dialer = Dialer(2.0, resolve, connect)
    made = World(origin, launch, RunGateway(config, dialer, dialer, FakeClock()))
    made.agents = await asyncio.start_server(made.connected, "127.0.0.1", 0)
    async with server, made.agents:
        try:
            yield made
        finally:
            await origin.sockets.end()


def seen(raw: bytes) -> Seen:
    """Read bytes that must be exactly one request."""
    http = h11.Connection(h11.SERVER)
    http.receive_data(raw)
    head = http.next_event()
    assert isinstance(head, h11.Request), raw
    body = b""
    while isinstance(event := http.next_event(), h11.Data):
        body += event.data
    assert isinstance(event, h11.EndOfMessage), (event, raw)
    assert http.trailing_data[0] == b"", raw
    return Seen(
        head.method.decode(),
        head.target.decode(),
        {name.decode(): value.decode("latin-1") for name, value in head.headers},
        body,
        {name.decode(): value.decode("latin-1") for name, value in event.headers},
    )


def status_of(answer: bytes) -> int:
    """Return the status of the first answer, 0 where there is none."""
    return int(answer.split(b" ", 2)[1]) if answer else 0


def statuses(answer: bytes) -> list[int]:
    """Return the statuses of all answers, for bodies that hold no status line."""
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]
