"""What the gateway adds to calls of a model, and its CPU: many agents at once, one provider.

``python -m bench.provider_calls`` starts a provider with TLS, a gateway and a sidecar as processes
of their own on the loopback. Agents call the provider directly, then through both, each on a
connection of its own that it keeps. The provider answers late, as a model does; an agent asks again
soon after an answer. Prints one table and one JSON object. No cluster is needed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import ssl
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import aiohttp
from aiohttp import web
from rich.console import Console
from rich.table import Table

from bench import gateway
from bench.gateway import CONFIG, HOST, LOOPBACK, READY, process
from outside.authority import ensure_authority, server_context
from outside.model_wire import OPENAI, Step
from securebench.protocol.gateway import GatewayConfig, ProviderConfig
from support.supervise_build import built

KEY = "sk-bench-0123456789abcdef"
ROUTE = "provider"
BODY_BYTES = 50_000
"""Of a call: codex sends 38 to 55 kB at its first step."""
THINK_SECONDS = (0.1, 1.0)
"""Between an answer and the next call: the agent runs a command."""
TICKS = os.sysconf("SC_CLK_TCK")


class Chosen(NamedTuple):
    """How much is measured.

    Attributes:
        agents: At once.
        calls: Of each agent.
        delays: Seconds after which the provider answers, at least and at most.
    """

    agents: int
    calls: int
    delays: tuple[float, float]


class Place(NamedTuple):
    """Where calls go.

    Attributes:
        url: Of the interface.
        tls: Trusts the provider; None for plain HTTP.
    """

    url: str
    tls: ssl.SSLContext | None


def body(number: int) -> dict[str, object]:
    """Return the body of a call, of which its length matters and little else."""
    text = "word " * (BODY_BYTES // 5)
    message = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    return {"model": f"bench-{number}", "input": [message], "stream": True, "store": False}


async def serve_provider(ready: Path, delays: tuple[float, float]) -> None:
    """Answer calls late, until the process is ended."""
    chance = random.Random(0)  # noqa: S311

    async def answer(request: web.Request) -> web.StreamResponse:
        asked = json.loads(await request.read())
        seconds = chance.uniform(*delays)
        await asyncio.sleep(seconds)
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "x-request-id": str(seconds)}
        )
        await response.prepare(request)
        for name, data in OPENAI.events(asked, Step("true")):
            await response.write(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode())
        return response

    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_post(OPENAI.path, answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, LOOPBACK, 0, ssl_context=server_context("bench", (HOST,)))
    await site.start()
    port = runner.addresses[0][1]
    await asyncio.to_thread(ready.write_text, str(port))
    await asyncio.Event().wait()


def configuration(folder: Path, authority: str) -> GatewayConfig:
    """Return the configuration of a gateway that leads to the provider alone."""
    key = folder / "key"
    key.write_text(KEY)
    provider = ProviderConfig(name="openai", host=HOST, key_file=str(key), ca=authority)
    return replace(CONFIG, domains=(), provider=provider)


@contextmanager
def world(folder: Path, chosen: Chosen) -> Iterator[tuple[dict[str, Place], int]]:
    """Start everything; yield the ways to the provider and the gateway's process id."""
    authority = ensure_authority().pem
    gateway.write_run(folder, configuration(folder, authority))
    words = [sys.executable, "-m", "bench.provider_calls", "--delays", *map(str, chosen.delays)]
    with process(*words, "--provider", str(folder / ROUTE)):
        port = gateway.port_of(folder / ROUTE)
        words = [sys.executable, "-m", "bench.gateway", "--gateway", str(folder), str(port)]
        with process(*words) as served:
            spec = gateway.sidecar_spec(folder, gateway.port_of(folder / READY), ROUTE)
            listen = spec["listen"]
            assert isinstance(listen, dict)
            with process(str(built()), "egress-proxy", "--spec", json.dumps(spec)):
                gateway.wait_for(listen[ROUTE])
                tls = ssl.create_default_context(cadata=authority)
                yield (
                    {
                        "direct": Place(f"https://{HOST}:{port}{OPENAI.path}", tls),
                        "gateway": Place(f"http://{HOST}:{listen[ROUTE]}{OPENAI.path}", None),
                    },
                    served.pid,
                )


class Loopback(aiohttp.abc.AbstractResolver):
    """Finds every name here."""

    async def resolve(
        self, host: str, port: int = 0, family: int = 0
    ) -> list[aiohttp.abc.ResolveResult]:
        """Return the loopback."""
        return [
            aiohttp.abc.ResolveResult(
                hostname=host, host=LOOPBACK, port=port, family=family, proto=0, flags=0
            )
        ]

    async def close(self) -> None:
        """Close nothing."""


async def agent(place: Place, number: int, calls: int) -> list[float]:
    """Return the seconds of each call beyond those that the provider waited."""
    chance, found = random.Random(number), []  # noqa: S311
    connector = aiohttp.TCPConnector(resolver=Loopback(), ssl=place.tls or True)
    async with aiohttp.ClientSession(connector=connector) as session:
        for _ in range(calls):
            await asyncio.sleep(chance.uniform(*THINK_SECONDS))
            headers, began = {"Authorization": f"Bearer {KEY}"}, time.perf_counter()
            async with session.post(place.url, json=body(number), headers=headers) as answer:
                text = await answer.text()
                if answer.status != 200 or "response.completed" not in text:
                    raise SystemExit(f"answered {answer.status}: {text[:200]}")
                seconds = time.perf_counter() - began
                found.append(seconds - float(answer.headers["x-request-id"]))
    return found


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


async def measure(place: Place, pid: int, chosen: Chosen) -> dict[str, float]:
    """Let all agents make their calls."""
    before = cpu_seconds(pid)
    each = await asyncio.gather(
        *(agent(place, number, chosen.calls) for number in range(chosen.agents))
    )
    used = cpu_seconds(pid) - before
    values = [seconds * 1000 for calls in each for seconds in calls]
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    return {
        "ms (median)": cuts[49],
        "ms (p95)": cuts[94],
        "ms (p99)": cuts[98],
        "gateway CPU ms per call": used * 1000 / len(values),
    }


def report(found: dict[str, dict[str, float]], chosen: Chosen) -> None:
    """Print the figures."""
    table = Table("figure", *found, title=f"{chosen.agents} agents, {chosen.calls} calls of each")
    for name in found["direct"]:
        table.add_row(name, *(f"{each[name]:.2f}" for each in found.values()))
    Console().print(table)
    print(json.dumps(found))


def main() -> None:
    """Measure, or be one of the processes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--agents", type=int, default=60)
    parser.add_argument("--calls", type=int, default=20, help="of each agent")
    parser.add_argument("--delays", type=float, nargs=2, default=(2.0, 8.0), help="seconds")
    parser.add_argument("--provider", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    chosen = Chosen(given.agents, given.calls, tuple(given.delays))
    if given.provider:
        asyncio.run(serve_provider(given.provider, chosen.delays))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # ends the processes, too
    with TemporaryDirectory() as folder, world(Path(folder), chosen) as (places, pid):
        found = {way: asyncio.run(measure(place, pid, chosen)) for way, place in places.items()}
    report(found, chosen)


if __name__ == "__main__":
    main()
