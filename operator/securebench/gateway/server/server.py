"""Accept connections of sidecars: preface, admission, limits, then the route's handler."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import NamedTuple

from securebench.gateway.net.causes import Cause, GatewayError, RefusedError
from securebench.gateway.net.streams import AgentStream, SocketStream
from securebench.gateway.server.admission import Admission
from securebench.gateway.server.context import RunGateway
from securebench.gateway.server.decisions import Decision, Verdict
from securebench.gateway.server.launch import ServedLaunch
from securebench.gateway.server.registry import Launches
from securebench.protocol.sidecar import ACCEPTED, MAGIC, PREFACE_BYTES, REFUSED, Route

Handler = Callable[[AgentStream, ServedLaunch, RunGateway], Awaitable[None]]
"""Serves one connection of a route."""

PREFACE_SECONDS = 5.0
"""Time limit for the sidecar's first line."""
REFUSAL_SECONDS = 0.5
"""Delay before a refusal is sent, so that clients do not retry in a tight loop."""
UNAUTHENTICATED_CONNECTIONS = 64
"""Maximum unauthenticated connections of one address."""


class Preface(NamedTuple):
    """The sidecar's first line."""

    route: Route
    token: str


class Server:
    """Serves the connections of a run.

    Args:
        admission: Authenticates connections.
        launches: All launches of the run.
        routes: Handlers of the routes that the run has.
    """

    def __init__(
        self,
        gateway: RunGateway,
        admission: Admission,
        launches: Launches,
        routes: Mapping[Route, Handler],
    ) -> None:
        self._gateway = gateway
        self._admission = admission
        self._launches = launches
        self._routes = routes
        self._open: set[asyncio.Task[None]] = set()
        self._unauthenticated: Counter[str] = Counter()

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end and close it; for ``asyncio.start_server``."""
        if len(self._open) >= self._gateway.config.limits.all_connections:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._connected(reader, writer))
        self._open.add(task)
        task.add_done_callback(partial(self._connection_done, writer))

    async def end(self) -> None:
        """Close all connections and return once each is logged."""
        await _cut(self._open)

    def _connection_done(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        self._open.discard(task)
        writer.close()  # a task that was cancelled before it started did not

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = SocketStream(reader, writer)
        try:
            address = _peer(writer)
            if self._unauthenticated[address] < UNAUTHENTICATED_CONNECTIONS:
                await self._serve(reader, stream, address)
        except (GatewayError, OSError):
            pass  # already logged where it was decided, or the connection is gone
        finally:
            await stream.close()

    async def _serve(
        self, reader: asyncio.StreamReader, stream: SocketStream, address: str
    ) -> None:
        # A connection counts as unauthenticated until it is served or its refusal was sent, so that
        # one Pod cannot use up the connections of the others.
        self._unauthenticated[address] += 1
        try:
            preface, launch = await self._admitted(reader, address)
        except RefusedError as error:
            await _refuse(stream, error.cause)
            return
        finally:
            self._unauthenticated -= Counter([address])
        if preface.route is Route.CLOSE:
            await self._close(launch, stream)
            return
        launch.connections.add(_this_task())
        try:
            await self._carry(preface.route, launch, stream)
        finally:
            launch.connections.discard(_this_task())

    async def _admitted(
        self, reader: asyncio.StreamReader, address: str
    ) -> tuple[Preface, ServedLaunch]:
        async with asyncio.timeout(PREFACE_SECONDS):
            preface = await _preface(reader)
        launch = self._launches.of(self._admission.identity(preface.token))
        launch.admit(address)
        if preface.route is not Route.CLOSE:
            self._require_room(preface.route, launch)
        return preface, launch

    def _require_room(self, route: Route, launch: ServedLaunch) -> None:
        """Refuse a connection beyond the launch's limits; log it unless the report is final."""
        cause = self._problem(route, launch)
        if cause is None:
            return
        if cause is not Cause.CLOSED:
            launch.record(Decision(route, "", "", 0, Verdict.REFUSED, cause))
        raise RefusedError(f"Pod {launch.identity.pod} may not open another connection.", cause)

    def _problem(self, route: Route, launch: ServedLaunch) -> Cause | None:
        if launch.is_closing:
            return Cause.CLOSED
        if route not in self._routes:
            return Cause.ROUTE
        if len(launch.connections) >= self._gateway.config.limits.connections:
            return Cause.CONNECTIONS
        return None if launch.bytes_left else Cause.BYTES

    async def _carry(self, route: Route, launch: ServedLaunch, stream: SocketStream) -> None:
        await asyncio.sleep(launch.bucket.reserve())
        await stream.write(ACCEPTED)
        await self._routes[route](AgentStream(stream, launch), launch, self._gateway)

    async def _close(self, launch: ServedLaunch, stream: SocketStream) -> None:
        """End a launch: close its connections, flush, answer; idempotent."""
        launch.is_closing = True
        await _cut(launch.connections)
        launch.end()
        await self._launches.flush(launch)
        await stream.write(ACCEPTED)


async def _preface(reader: asyncio.StreamReader) -> Preface:
    try:
        line = await reader.readuntil(b"\n")
        magic, route, token = line[:-1].decode("ascii").split(" ")
        if magic == MAGIC and len(line) <= PREFACE_BYTES:
            return Preface(Route(route), token)
    except (ValueError, EOFError, asyncio.LimitOverrunError):
        pass
    raise RefusedError("The connection does not begin with a sidecar's preface.", Cause.BAD_REQUEST)


async def _refuse(stream: SocketStream, cause: Cause) -> None:
    await asyncio.sleep(REFUSAL_SECONDS)
    await stream.write(REFUSED + cause.encode() + b"\n")


async def _cut(tasks: set[asyncio.Task[None]]) -> None:
    while open_tasks := [task for task in tasks if not task.done()]:
        for task in open_tasks:
            task.cancel()
        await asyncio.wait(open_tasks)


def _peer(writer: asyncio.StreamWriter) -> str:
    name = writer.get_extra_info("peername")
    if name is None:
        raise ConnectionResetError("the peer is gone")
    return str(name[0])


def _this_task() -> asyncio.Task[None]:
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 - only coroutines come here
    return task
