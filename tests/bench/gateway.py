"""Cost of egress: one origin, reached directly, through tunnels and as plain HTTP.

``python tests/bench/gateway.py`` starts an origin, a gateway and a sidecar as processes of their
own on the loopback, and prints one table and one JSON object. Tokens are signed by a key made here;
only names and addresses of the outside are made up. No cluster is needed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import signal
import socket
import ssl
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from unittest import mock

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from rich.console import Console
from rich.table import Table

from securebench.clock import Clock
from securebench.gateway import __main__ as program
from securebench.gateway.dial import Dialer, Endpoint, connect_socket
from securebench.gateway.run_gateway import RunGateway
from securebench.gateway.streams import Stream
from securebench.protocol.gateway import (
    CONFIG_FILE,
    KEYS_FILE,
    GatewayConfig,
    GatewayLimits,
    encode,
)

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.supervise_build import built

HOST = "origin.example.com"
PUBLIC = "93.184.216.34"
LOOPBACK = "127.0.0.1"
READY = "ready"
TOKEN = "token"
START_SECONDS = 60.0
LONGEST_SECONDS = 600.0

MANY = 1 << 40
LIMITS = GatewayLimits(
    connections=4096, all_connections=4096, connections_per_second=1e6, bytes=MANY
)
CONFIG = GatewayConfig("sb-bench-", "bench", "harness", "bench", (HOST,), None, LIMITS)

MEGABYTE = 1024 * 1024
BLOCK = bytes(64 * 1024)
OPENING = 32
"""Connections that are opened at once; the gateway takes 64 of an address in the handshake."""


class Peer(NamedTuple):
    """A connection to the origin, ready for its commands."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def ask(self, command: bytes) -> bytes:
        self.writer.write(command)
        await self.writer.drain()
        return await self.reader.readexactly(1)

    async def close(self) -> None:
        self.writer.close()
        with suppress(OSError):
            await self.writer.wait_closed()


class Places(NamedTuple):
    """Where everything listens, and the processes that are watched."""

    origin: int
    sidecar: int
    processes: dict[str, int]


# The origin


async def serve_origin(ready: Path) -> None:
    server = await asyncio.start_server(answer, LOOPBACK, 0, backlog=2048)
    await asyncio.to_thread(ready.write_text, str(server.sockets[0].getsockname()[1]))
    async with server:
        await server.serve_forever()


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Skip a ClientHello, then obey: D and U with a size, P; or answer one GET."""
    with suppress(OSError, asyncio.IncompleteReadError):
        first = await reader.readexactly(1)
        if first == b"\x16":
            header = await reader.readexactly(4)
            await reader.readexactly(int.from_bytes(header[2:]))
            first = await reader.readexactly(1)
        while first:
            line = first + await reader.readuntil(b"\n")
            await obey(line, reader, writer)
            first = await reader.read(1)
    writer.close()


async def obey(line: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    if line.startswith(b"GET /"):
        await reader.readuntil(b"\r\n\r\n")
        size = int(line.split(b" ")[1][1:])
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        await pour(writer, size)
        return
    if line.startswith(b"D"):
        await pour(writer, int(line[1:]))
    elif line.startswith(b"U"):
        await swallow(reader, int(line[1:]))
    writer.write(b"k")
    await writer.drain()


async def pour(writer: asyncio.StreamWriter, size: int) -> None:
    while size > 0:
        writer.write(BLOCK[:size])
        size -= len(BLOCK)
        await writer.drain()


async def swallow(reader: asyncio.StreamReader, size: int) -> None:
    while size > 0:
        data = await reader.read(min(size, len(BLOCK)))
        if not data:
            raise ConnectionResetError("the sender ended too early")
        size -= len(data)


# The gateway: the real server, its admission and its records; only the outside is made up


def serve_gateway(folder: Path, origin: int) -> int:
    """Be the gateway of a run, whose outside is the origin."""

    async def resolve(_host: str) -> tuple[str, ...]:
        return (PUBLIC,)

    async def connect(place: Endpoint) -> Stream:
        return await connect_socket(place._replace(address=LOOPBACK, port=origin))

    def make(config: GatewayConfig, clock: Clock) -> RunGateway:
        dialer = Dialer(config.limits.connect_seconds, resolve, connect)
        return RunGateway(config, dialer, dialer, clock)

    with mock.patch.object(program, "make_gateway", make):
        return program.main([str(folder)], port=0, ready=folder / READY)


def write_run(folder: Path, config: GatewayConfig = CONFIG) -> None:
    """Write the gateway's configuration and a launch's token."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
    keys = {"keys": [{**public, "kid": "bench", "alg": "ES256", "use": "sig"}]}
    (folder / KEYS_FILE).write_text(json.dumps(keys))
    (folder / CONFIG_FILE).write_bytes(encode(config))
    bound = {
        "namespace": CONFIG.namespace,
        "pod": {"name": f"{CONFIG.pod_prefix}1", "uid": "1"},
        "serviceaccount": {"name": CONFIG.service_account, "uid": "1"},
    }
    claims = {
        "aud": [CONFIG.audience],
        "exp": int(time.time()) + 3600,
        "sub": f"system:serviceaccount:{CONFIG.namespace}:{CONFIG.service_account}",
        "kubernetes.io": bound,
    }
    token = jwt.encode(claims, key, algorithm="ES256", headers={"kid": "bench"})
    (folder / TOKEN).write_text(token)


# Processes


@contextmanager
def process(*words: str) -> Iterator[subprocess.Popen[bytes]]:
    started = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        yield started
    finally:
        started.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            started.wait(30)
        started.kill()
        started.wait()


def port_of(ready: Path) -> int:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if ready.exists() and (text := ready.read_text()):
            return int(text)
        time.sleep(0.05)
    raise SystemExit(f"{ready} did not appear within {START_SECONDS:g} seconds")


def wait_for(port: int) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        with suppress(OSError), socket.create_connection((LOOPBACK, port)):
            return
        time.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port} after {START_SECONDS:g} seconds")


@contextmanager
def world(folder: Path) -> Iterator[Places]:
    write_run(folder)
    with process(sys.executable, __file__, "--origin", str(folder / "origin")) as origin:
        outside = port_of(folder / "origin")
        words = (sys.executable, __file__, "--gateway", str(folder), str(outside))
        with process(*words) as gateway:
            spec = sidecar_spec(folder, port_of(folder / READY))
            listen = spec["listen"]
            assert isinstance(listen, dict)
            told = (str(built()), "egress-proxy", "--spec", json.dumps(spec))
            with process(*told) as sidecar:
                watched = {"gateway": gateway.pid, "sidecar": sidecar.pid, "origin": origin.pid}
                yield Places(outside, listen["proxy"], watched)


def sidecar_spec(folder: Path, gateway: int, route: str = "proxy") -> dict[str, object]:
    return {
        "version": 1,
        "gateway": {"host": LOOPBACK, "port": gateway},
        "token": str(folder / TOKEN),
        "listen": {route: free_port()},
        "connections": LIMITS.connections,
        "start_seconds": START_SECONDS,
        "close_seconds": 10,
    }


def free_port() -> int:
    (opened,) = program.open_sockets(0)[:1]
    port: int = opened.getsockname()[1]
    opened.close()
    return port


def memory_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


# Ways to the origin


def client_hello() -> bytes:
    sent = ssl.MemoryBIO()
    context = ssl.create_default_context()
    client = context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname=HOST)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


HELLO = client_hello()


async def direct(places: Places) -> Peer:
    return Peer(*await asyncio.open_connection(LOOPBACK, places.origin))


async def tunnel(places: Places) -> Peer:
    """Open a tunnel; what follows the ClientHello is the gateway's to carry, not to read."""
    peer = Peer(*await asyncio.open_connection(LOOPBACK, places.sidecar))
    peer.writer.write(f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n".encode())
    head = await peer.reader.readuntil(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise SystemExit(f"the gateway answered {head!r}")
    peer.writer.write(HELLO)
    return peer


WAYS = {"direct": direct, "tunnel": tunnel}


@asynccontextmanager
async def opened(places: Places, way: str, count: int) -> AsyncIterator[list[Peer]]:
    gate = asyncio.Semaphore(OPENING)

    async def one() -> Peer:
        async with gate:
            peer = await WAYS[way](places)
            await peer.ask(b"P\n")
            return peer

    peers = await asyncio.gather(*(one() for _ in range(count)))
    try:
        yield peers
    finally:
        await asyncio.gather(*(peer.close() for peer in peers))


# Measurements


async def throughput(places: Places, way: str, count: int, size: int) -> dict[str, float]:
    """Return MB/s down and up, over all connections together."""
    async with opened(places, way, count) as peers:
        share = size // count
        began = time.perf_counter()
        await asyncio.gather(*(download(peer, share) for peer in peers))
        down = time.perf_counter() - began
        began = time.perf_counter()
        await asyncio.gather(*(upload(peer, share) for peer in peers))
        up = time.perf_counter() - began
    return {"down": size / MEGABYTE / down, "up": size / MEGABYTE / up}


async def download(peer: Peer, size: int) -> None:
    peer.writer.write(b"D%d\n" % size)
    await swallow(peer.reader, size)
    assert await peer.reader.readexactly(1) == b"k"


async def upload(peer: Peer, size: int) -> None:
    peer.writer.write(b"U%d\n" % size)
    await pour(peer.writer, size)
    assert await peer.reader.readexactly(1) == b"k"


async def plain(places: Places, way: str, size: int) -> float:
    """Return the seconds of one GET of so many bytes on a connection of its own."""
    port, url = places.origin, f"/{size}"
    if way != "direct":
        port, url = places.sidecar, f"http://{HOST}/{size}"
    began = time.perf_counter()
    peer = Peer(*await asyncio.open_connection(LOOPBACK, port))
    peer.writer.write(f"GET {url} HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
    head = await peer.reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    await swallow(peer.reader, size)
    seconds = time.perf_counter() - began
    await peer.close()
    return seconds


async def handshakes(places: Places, way: str, count: int) -> list[float]:
    """Return the seconds from connecting to the origin's first byte."""
    found = []
    for _ in range(count):
        began = time.perf_counter()
        peer = await WAYS[way](places)
        await peer.ask(b"P\n")
        found.append(time.perf_counter() - began)
        await peer.close()
    return found


async def round_trips(places: Places, way: str, count: int) -> list[float]:
    """Return the seconds of one byte there and back on an open connection."""
    found = []
    async with opened(places, way, 1) as (peer,):
        for _ in range(count):
            began = time.perf_counter()
            await peer.ask(b"P\n")
            found.append(time.perf_counter() - began)
    return found


async def crowd(places: Places, count: int) -> dict[str, float]:
    """Return what so many open tunnels cost, and how long one byte on each takes together."""
    before = {name: memory_kib(pid) for name, pid in places.processes.items()}
    began = time.perf_counter()
    async with opened(places, "tunnel", count) as peers:
        opening = time.perf_counter() - began
        after = {name: memory_kib(pid) for name, pid in places.processes.items()}
        began = time.perf_counter()
        await asyncio.gather(*(peer.ask(b"P\n") for peer in peers))
        asking = time.perf_counter() - began
    return {
        "connections": count,
        "open s": opening,
        "one byte on each s": asking,
        "gateway KiB per connection": (after["gateway"] - before["gateway"]) / count,
        "sidecar KiB per connection": (after["sidecar"] - before["sidecar"]) / count,
        "gateway MiB": after["gateway"] / 1024,
        "sidecar MiB": after["sidecar"] / 1024,
    }


def spread(name: str, seconds: Sequence[float]) -> dict[str, float]:
    return {
        f"{name} ms (median)": statistics.median(seconds) * 1000,
        f"{name} ms (p95)": statistics.quantiles(seconds, n=20)[-1] * 1000,
    }


async def measured(places: Places, megabytes: int, connections: int) -> dict[str, dict[str, float]]:
    size = megabytes * MEGABYTE
    found: dict[str, dict[str, float]] = {}
    for way in WAYS:
        entry = found[way] = {}
        entry |= spread("connect", await handshakes(places, way, 200))
        entry |= spread("round trip", await round_trips(places, way, 1000))
        entry |= spread("GET of 1 KiB", [await plain(places, way, 1024) for _ in range(200)])
        for count in (1, 8):
            rate = await throughput(places, way, count, size)
            entry[f"{count} down MB/s"], entry[f"{count} up MB/s"] = rate["down"], rate["up"]
        entry["GET MB/s"] = megabytes / await plain(places, way, size)
    found["crowd"] = await crowd(places, connections)
    return found


def report(found: dict[str, dict[str, float]]) -> None:
    console = Console()
    table = Table("figure", "direct", "through the gateway", "cost")
    for name, before in found["direct"].items():
        after = found["tunnel"][name]
        cost = f"{after - before:+.2f} ms" if " ms " in name else f"{after / before:.0%}"
        table.add_row(name, f"{before:.2f}", f"{after:.2f}", cost)
    for name, value in found["crowd"].items():
        table.add_row(f"crowd: {name}", "", f"{value:.2f}", "")
    console.print(table)
    rounded = {
        name: {key: round(value, 3) for key, value in entry.items()}
        for name, entry in found.items()
    }
    print(json.dumps(rounded))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--connections", type=int, default=1000)
    parser.add_argument("--origin", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--gateway", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if given.origin:
        asyncio.run(serve_origin(given.origin))
    elif given.gateway:
        sys.exit(serve_gateway(Path(given.gateway[0]), int(given.gateway[1])))
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the processes, too
        with TemporaryDirectory() as folder, world(Path(folder)) as places:
            wait_for(places.sidecar)
            todo = measured(places, given.megabytes, given.connections)
            report(asyncio.run(asyncio.wait_for(todo, LONGEST_SECONDS)))


if __name__ == "__main__":
    main()
