"""A whole gateway on the loopback, a harness Pod's way through it, and what came out."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from securebench.gateway.dial import Resolve
from securebench.gateway.proxy import serve_proxy
from securebench.gateway.server import Handler
from securebench.protocol.gateway import LAUNCHES, Route
from support.gateways import POD, Outside, Running, config, outside, serving, token

LISTED = "docs.dev"
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@dataclass(frozen=True, slots=True)
class Way:
    """The egress of a launch of a run that lists ``docs.dev``.

    Attributes:
        origin: Stands for every server outside; keeps look-ups, dialled addresses and bytes.
        gateway: Listens.
        folder: Where it writes.
    """

    origin: Outside
    gateway: Running
    folder: Path

    async def say(
        self, data: bytes, *, said: bytes | None = None, source: str = "127.0.0.1"
    ) -> bytes:
        """Send bytes as an agent does and return all that comes back.

        Args:
            data: Of the agent.
            said: The sidecar's first line, where it is another than this launch's.
            source: Address of the Pod.
        """
        line, reader, writer = await self.gateway.knock(said=said, source=source)
        if line == b"OK\n":
            writer.write(data)
            writer.write_eof()
            line = await reader.read()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        return bytes(line)

    async def log(self) -> Sequence[Mapping[str, object]]:
        """Return the lines of the launch's log."""
        await self.gateway.launches.flush_all()
        lines = (self.folder / LAUNCHES / f"{POD}.jsonl").read_bytes().splitlines()
        return [json.loads(line) for line in lines]

    def sent(self) -> bytes:
        """Return everything that went out, of all connections."""
        return b"".join(bytes(each) for each in self.origin.received)


@asynccontextmanager
async def way(
    folder: Path,
    answers: Mapping[str, object] | None = None,
    domains: Sequence[str] = (LISTED,),
    zone: Resolve | None = None,
    route: Handler = serve_proxy,
    **limits: float,
) -> AsyncIterator[Way]:
    """Open a gateway; every public address leads to one recording server.

    Args:
        folder: For its keys and reports.
        answers: Addresses by name; other names have one public address.
        domains: Those of the run.
        zone: Looks names up instead.
        route: Serves the connections; a twin has another.
        limits: Of ``GatewayLimits``.
    """
    async with outside(dict(answers or {})) as origin:
        origin.reply = ANSWER
        origin.resolve = zone or origin.resolve
        settings = config(domains, None, "", **{"connect_seconds": 2, **limits})
        routes = {Route.PROXY: route}
        async with serving(folder, routes, settings, origin) as running:
            yield Way(origin, running, folder)


def preface(**changes: object) -> bytes:
    """Return the first line of a sidecar whose token says something else than this launch's."""
    return f"SB1 proxy {token(**changes)}\n".encode()


def connect(authority: str) -> bytes:
    """Return a CONNECT for a target, as clients of HTTP/1.0 send it: without a Host field."""
    return f"CONNECT {authority} HTTP/1.0\r\n\r\n".encode("latin-1")


def get(url: str, *headers: str, host: str = LISTED) -> bytes:
    """Return a plain request."""
    fields = ([f"Host: {host}"] if host else []) + list(headers)
    lines = (f"GET {url} HTTP/1.1", *fields, "Connection: close", "", "")
    return "\r\n".join(lines).encode("latin-1")


def status(answer: bytes) -> int:
    """Return the status of the first answer, 0 where none came."""
    words = answer.split(b" ", 2)
    return int(words[1]) if answer.startswith(b"HTTP/1.1 ") else 0
