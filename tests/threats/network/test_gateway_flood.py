"""F10, the gateway's part: one launch that opens connections without end does not stop another."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from securebench.gateway import server
from threats.network.loopback_gateway import LISTED, Way, get, preface, status, way

FLOOD = 300
AT_ONCE = 100
LAUNCH_LIMIT = 16
RUN_LIMIT = 160
NEIGHBOUR_SECONDS = 3.0
OTHER_POD = "127.0.0.2"
LIMITS = {"connections_per_second": 10_000.0, "all_connections": RUN_LIMIT}


async def admitted(out: Way, count: int) -> int:
    """Return how many of so many connections of one launch are let in; all stay open."""
    lines: list[bytes] = []
    for _ in range(0, count, AT_ONCE):
        lines += await asyncio.gather(*(out.gateway.answer() for _ in range(AT_ONCE)))
    return lines.count(b"OK\n")


async def silent(out: Way, count: int) -> None:
    """Open so many connections that say nothing."""
    await asyncio.gather(*(out.gateway.connect() for _ in range(count)))


async def neighbour(out: Way) -> int:
    """Return the status of another launch's request, 0 where it was refused. Its token is fresh."""
    other = preface(pod="sb-0f1e2d3caaaa-1-1-1", uid="99999999-2222-3333-4444-555555555555")
    async with asyncio.timeout(NEIGHBOUR_SECONDS):
        return status(await out.say(get(f"http://{LISTED}/"), said=other, source=OTHER_POD))


@pytest.mark.short
async def test_a_202_attack_on_the_gateway(tmp_path: Path) -> None:
    async with way(tmp_path, connections=LAUNCH_LIMIT, **LIMITS) as out:
        assert await admitted(out, FLOOD) == LAUNCH_LIMIT
        assert await neighbour(out) == 200


async def test_a_202_twin_of_the_gateway(tmp_path: Path) -> None:
    async with way(tmp_path, connections=RUN_LIMIT, **LIMITS) as out:
        assert await admitted(out, FLOOD) == RUN_LIMIT
        assert await neighbour(out) == 0


async def test_a_202_attack_by_silence(tmp_path: Path) -> None:
    async with way(tmp_path, connections=LAUNCH_LIMIT, **LIMITS) as out:
        await silent(out, FLOOD)
        assert await neighbour(out) == 200


async def test_a_202_twin_of_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "UNAUTHENTICATED_CONNECTIONS", FLOOD)
    async with way(tmp_path, connections=LAUNCH_LIMIT, **LIMITS) as out:
        await silent(out, FLOOD)
        assert await neighbour(out) == 0


async def test_a_202_attack_by_bytes(tmp_path: Path) -> None:
    """What a launch may carry in all is bounded, over all of its connections."""
    body = b"x" * 40_000
    request = get(f"http://{LISTED}/", f"Content-Length: {len(body)}").replace(b"GET", b"POST", 1)
    async with way(tmp_path, bytes=100_000, **LIMITS) as out:
        for _ in range(6):
            await out.say(request + body)

        assert len(out.sent()) <= 100_000
        assert await neighbour(out) == 200


async def test_a_202_honest_at_the_gateway(tmp_path: Path) -> None:
    async with way(tmp_path, connections=LAUNCH_LIMIT, **LIMITS) as out:
        request = get(f"http://{LISTED}/")
        answers = await asyncio.gather(*(out.say(request) for _ in range(LAUNCH_LIMIT)))

        assert [status(each) for each in answers] == [200] * LAUNCH_LIMIT
