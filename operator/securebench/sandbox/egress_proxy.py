"""The sidecar ``egress-proxy``: carries an agent's bytes to the run's gateway and decides nothing.

``python3 -I -m securebench.sandbox.egress_proxy --spec JSON`` listens on the Pod's loopback. When
the harness has ended the kubelet sends SIGTERM; the gateway is told so, and the exit code is 0 when
it has written its report and was there for every connection, else 1: then the launch says nothing
about the agent. With ``--wait`` it only waits until the other one listens.
"""

from __future__ import annotations

import signal

if __name__ == "__main__":
    # First of all: as PID 1, a SIGTERM that arrives before there is a handler would be lost.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

import argparse
import asyncio
import contextlib
import functools
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from securebench.core.errors import SpecError
from securebench.protocol.sidecar import Route
from securebench.protocol.specs import decode_object, require_fields, require_version, section, text
from securebench.sandbox.dial import (
    CHUNK_BYTES,
    AbsentError,
    GatewayRefusedError,
    GatewayStream,
    GatewayUnreachableError,
    cut,
    dial,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

LOOPBACK = "127.0.0.1"

ANSWERED_SHARE = 2
"""Connections above the limit are answered up to so many times the limit; more are cut at once, so
that a flood costs no memory."""

FIRST_SECONDS = 600.0
"""For the agent's first byte: what it opens in advance is not sent on."""

FINISH_SECONDS = 60.0
"""For a peer to take the last bytes, which are few."""

DRAIN_SECONDS = 1.0
DRAIN_BYTES = 256 * 1024
"""Read and dropped after an answer of ours, so that the answer arrives."""

RETRY_SECONDS = 0.2
"""Between tries to reach the gateway."""

ABSENT_SECONDS = 10.0
"""For a gateway to come back, of each connection; clients wait about as long for a proxy."""

LOG_LINES = 1000
"""Kept of one sidecar; the gateway's own log is the one that counts."""


class ProxySpec(NamedTuple):
    """What to do.

    Attributes:
        host: Numeric address of the gateway.
        port: Its port.
        token: File with the launch's token; the kubelet replaces it from time to time.
        listen: Port on the loopback by route.
        connections: Open at once.
        start_seconds: For reaching the gateway at first.
        close_seconds: For telling it that the harness has ended.
    """

    host: str
    port: int
    token: Path
    listen: dict[Route, int]
    connections: int
    start_seconds: float
    close_seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM, or wait for the one that serves; return the exit code.

    Raises:
        SpecError: The specification is not of this version.
    """
    parser = argparse.ArgumentParser(prog="securebench.sandbox.egress_proxy")
    parser.add_argument("--spec", required=True)
    parser.add_argument("--wait", action="store_true")
    given = parser.parse_args(arguments)
    spec = decode(given.spec)
    return asyncio.run(wait_until_served(spec) if given.wait else serve(spec))


def decode(argument: str) -> ProxySpec:
    """Return the specification of a command line.

    Raises:
        SpecError: It is not exactly of this version's form.
    """
    raw: Any = decode_object(argument)
    require_version(raw)
    names = ["gateway", "token", "listen", "connections", "start_seconds", "close_seconds"]
    require_fields(raw, ["version", *names])
    gateway: Any = section(raw, "gateway", ["host", "port"])
    try:
        listen = {Route(name): int(port) for name, port in raw["listen"].items()}
        return ProxySpec(
            text(gateway, "host"),
            int(gateway["port"]),
            Path(text(raw, "token")),
            listen,
            int(raw["connections"]),
            float(raw["start_seconds"]),
            float(raw["close_seconds"]),
        )
    except (AttributeError, TypeError, ValueError) as error:
        raise SpecError(f"a field has a wrong value: {error}") from error


async def serve(spec: ProxySpec) -> int:
    """Carry connections until SIGTERM, then end the launch; return the exit code."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    stopped = asyncio.create_task(stop.wait())
    reached = asyncio.create_task(_reach(spec))
    await asyncio.wait({stopped, reached}, return_when=asyncio.FIRST_COMPLETED)
    if not stop.is_set() and not await reached:
        _say(f"the gateway did not accept a connection within {spec.start_seconds:g} seconds")
        return 1
    carrier = Carrier(spec)
    if not stop.is_set():
        async with carrier:
            await stopped
    reached.cancel()
    is_closed = await close_launch(spec)
    if carrier.has_missed:
        _say("a connection of the agent stayed without the gateway: the launch does not count")
    return 0 if is_closed and not carrier.has_missed else 1


async def wait_until_served(spec: ProxySpec) -> int:
    """Return 0 when every port of the sidecar accepts connections, 1 when it takes too long."""
    ports = spec.listen.values()
    tries = [_accepts(LOOPBACK, port, 2 * spec.start_seconds) for port in ports]
    return 0 if all(await asyncio.gather(*tries)) else 1


async def close_launch(spec: ProxySpec) -> bool:
    """Tell the gateway that the harness has ended; return whether it wrote its report.

    It is told again until it says so: an answer may be lost, a gateway may just be replaced.
    """
    problem = "no answer"
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(spec.close_seconds):
            while True:
                try:
                    stream = await dial(spec.host, spec.port, spec.token, Route.CLOSE)
                except (GatewayRefusedError, GatewayUnreachableError) as error:
                    problem = str(error)
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    cut(stream)
                    _say("the gateway closed the launch")
                    return True
    _say(f"the gateway did not close the launch in time: {problem}")
    return False


class Carrier:
    """Listens and carries; leaving its context ends every connection.

    Args:
        spec: Ports, gateway and bounds.

    Attributes:
        has_missed: Whether the gateway was not there for a connection. No agent brings this about:
            refusals, limits and slow answers are none of it.
    """

    def __init__(self, spec: ProxySpec) -> None:
        self.has_missed = False
        self._spec = spec
        self._servers: list[asyncio.Server] = []
        self._carrying: set[asyncio.Task[None]] = set()
        self._lines = 0

    async def __aenter__(self) -> Self:
        """Listen on every port."""
        for route, port in self._spec.listen.items():
            accept = functools.partial(self._accept, route)
            server = await asyncio.start_server(accept, LOOPBACK, port, limit=CHUNK_BYTES)
            self._servers.append(server)
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening and cut what is still open: nobody is left to read it."""
        for server in self._servers:
            server.close()
        for task in self._carrying:
            task.cancel()
        await asyncio.gather(*self._carrying, return_exceptions=True)

    def _accept(
        self, route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        if len(self._carrying) >= ANSWERED_SHARE * self._spec.connections:
            writer.transport.abort()
            return
        task = asyncio.create_task(self._carry(route, GatewayStream(reader, writer)))
        self._carrying.add(task)
        task.add_done_callback(self._carrying.discard)

    async def _carry(self, route: Route, agent: GatewayStream) -> None:
        try:
            result = await self._through(route, agent)
            await _finish(agent)
        except OSError as error:
            result = f"broken: {type(error).__name__}"
        finally:
            cut(agent)
        self._log(f"{route.value}: {result}")

    async def _through(self, route: Route, agent: GatewayStream) -> str:
        if len(self._carrying) > self._spec.connections:
            await _answer(agent, "503 Service Unavailable", "too many connections are open")
            return "too many connections"
        first = await _first_bytes(agent)
        if not first:
            return "nothing was sent"
        try:
            gateway = await self._gateway(route)
        except GatewayRefusedError as error:
            await _answer(agent, "403 Forbidden", f"the gateway refused: {error}")
            return f"refused: {error}"
        except GatewayUnreachableError as error:
            await _answer(agent, "502 Bad Gateway", f"the gateway cannot be reached: {error}")
            return f"gateway unreachable: {error}"
        try:
            gateway.writer.write(first)
            up, down = await _both_ways(agent, gateway)
            await _finish(gateway)
        finally:
            cut(gateway)
        return f"done, {up + len(first)} bytes up, {down} bytes down"

    async def _gateway(self, route: Route) -> GatewayStream:
        """Return an accepted connection; a gateway that is not there is tried again for a while.

        A connection that ends before it comes back is missed too: the agent did not wait so long.
        """
        spec, loop = self._spec, asyncio.get_running_loop()
        give_up = loop.time() + ABSENT_SECONDS
        is_absent = False
        try:
            while True:
                try:
                    stream = await dial(spec.host, spec.port, spec.token, route)
                except AbsentError:
                    is_absent = True
                    if loop.time() >= give_up:
                        raise
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    is_absent = False
                    return stream
        except GatewayRefusedError:
            is_absent = False
            raise
        finally:
            self.has_missed |= is_absent

    def _log(self, line: str) -> None:
        self._lines += 1
        if self._lines <= LOG_LINES:
            _say(line)
        elif self._lines == LOG_LINES + 1:
            _say("further connections are not listed")


async def _both_ways(agent: GatewayStream, gateway: GatewayStream) -> tuple[int, int]:
    """Carry until both directions have ended; the end of one is passed on, the other goes on.

    Raises:
        OSError: One of the two broke; the other must see it.
    """
    up = asyncio.create_task(_pump(agent.reader, gateway.writer))
    down = asyncio.create_task(_pump(gateway.reader, agent.writer))
    try:
        return await asyncio.gather(up, down)
    finally:
        up.cancel()
        down.cancel()
        await asyncio.gather(up, down, return_exceptions=True)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    count = 0
    while data := await reader.read(CHUNK_BYTES):
        writer.write(data)
        await writer.drain()
        count += len(data)
    writer.write_eof()
    return count


async def _first_bytes(agent: GatewayStream) -> bytes:
    try:
        async with asyncio.timeout(FIRST_SECONDS):
            return await agent.reader.read(CHUNK_BYTES)
    except TimeoutError:
        return b""


async def _answer(agent: GatewayStream, status: str, message: str) -> None:
    """Answer in place of the gateway, and let the agent read it before the connection ends."""
    body = f"securebench: {message}\n".encode("ascii", "replace")
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/plain\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    agent.writer.write(head.encode("ascii") + body)
    dropped = 0
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(DRAIN_SECONDS):
            await agent.writer.drain()
            agent.writer.write_eof()
            while dropped < DRAIN_BYTES and (data := await agent.reader.read(CHUNK_BYTES)):
                dropped += len(data)


async def _reach(spec: ProxySpec) -> bool:
    return await _accepts(spec.host, spec.port, spec.start_seconds)


async def _accepts(host: str, port: int, seconds: float) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while True:
                try:
                    _, writer = await asyncio.open_connection(host, port)
                except OSError:
                    await asyncio.sleep(RETRY_SECONDS)
                else:
                    writer.close()
                    return True
    return False


async def _finish(stream: GatewayStream) -> None:
    """Close when all that was written has been sent; a peer that reads nothing is given up."""
    stream.writer.close()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(FINISH_SECONDS):
            await stream.writer.wait_closed()


def _say(line: str) -> None:
    sys.stdout.write(f"egress-proxy: {line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
