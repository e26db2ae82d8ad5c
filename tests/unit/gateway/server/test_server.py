"""Preface, admission, limits and CLOSE, on real connections."""

import asyncio
import json

import pytest

from securebench.gateway import server as server_module
from securebench.protocol.gateway import (
    LAUNCHES,
    PREFACE_BYTES,
    LaunchReport,
    RelayReport,
    Route,
    decode,
)
from support.gateways import (
    POD,
    POD_UID,
    PROVIDER,
    config,
    serving,
    token,
)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(server_module, "REFUSAL_SECONDS", 0.01)
    monkeypatch.setattr(server_module, "PREFACE_SECONDS", 0.5)


class Echo:
    """A route that sends back what it gets."""

    def __init__(self):
        self.begun = 0
        self.ended = 0

    async def __call__(self, agent, _launch, _gateway):
        self.begun += 1
        try:
            while data := await agent.read():
                await agent.write(data)
        finally:
            self.ended += 1


@pytest.fixture
def echo():
    return Echo()


@pytest.fixture
def routes(echo):
    return {Route.PROXY: echo}


def report_of(folder):
    return decode(LaunchReport, (folder / LAUNCHES / f"{POD}.json").read_bytes())


async def test_an_accepted_connection_is_the_agents_own(tmp_path, routes):
    async with serving(tmp_path, routes) as run:
        line, reader, writer = await run.knock()
        assert line == b"OK\n"
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"hello"
        writer.write_eof()
        assert await reader.read() == b""
        await run.launches.flush_all()
    assert report_of(tmp_path) == LaunchReport(
        POD, POD_UID, address="127.0.0.1", bytes_up=5, bytes_down=5
    )


async def test_bytes_that_come_with_the_preface_are_not_lost(tmp_path, routes):
    async with serving(tmp_path, routes) as run:
        line, reader, _ = await run.knock(said=f"SB1 proxy {token()}\nearly".encode())
        assert (line, await reader.readexactly(5)) == (b"OK\n", b"early")


STRANGE = {
    "no preface": b"GET / HTTP/1.1\r\n\r\n",
    "other version": b"SB2 proxy x\n",
    "other route": b"SB1 other x\n",
    "two words": b"SB1 proxy\n",
    "four words": b"SB1 proxy x y\n",
    "not ASCII": b"SB1 proxy \xff\n",
    "too long": b"SB1 proxy " + b"x" * PREFACE_BYTES + b"\n",
    "much too long": b"SB1 proxy " + b"x" * 70_000 + b"\n",
    "bare newline": b"\n",
}


@pytest.mark.parametrize("said", STRANGE.values(), ids=STRANGE)
async def test_a_strange_preface_is_refused(tmp_path, routes, said):
    async with serving(tmp_path, routes) as run:
        line, reader, _ = await run.knock(said=said)
        assert line == b"NO bad_request\n"
        assert await reader.read() == b""
        await run.launches.flush_all()
    assert list((tmp_path / LAUNCHES).iterdir()) == []


async def test_a_preface_is_not_waited_for_without_end(tmp_path, routes):
    async with serving(tmp_path, routes) as run:
        line = await run.answer(said=b"SB1 pro")
        assert line == b""


async def test_a_wrong_token_is_refused(tmp_path, routes, echo):
    async with serving(tmp_path, routes) as run:
        said = f"SB1 proxy {token(aud=['other'])}\n".encode()
        line = await run.answer(said=said)
    assert (line, echo.begun) == (b"NO token\n", 0)


async def test_a_token_is_good_from_one_address_only(tmp_path, routes):
    async with serving(tmp_path, routes) as run:
        first = await run.answer()
        second = await run.answer(source="127.0.0.2")
        third = await run.answer("close", source="127.0.0.2")
    assert (first, second, third) == (b"OK\n", b"NO address\n", b"NO address\n")


async def test_another_pod_of_the_same_name_is_refused(tmp_path, routes):
    async with serving(tmp_path, routes) as run:
        await run.close()
        line = await run.close(uid="99999999-0000-0000-0000-000000000000")
    assert line == b"NO token\n"


@pytest.mark.parametrize("route", ["proxy", "provider"])
async def test_a_route_that_the_run_does_not_have_is_refused(tmp_path, route):
    async with serving(tmp_path, {}) as run:
        line = await run.answer(route)
        await run.close()
    assert line == b"NO route\n"
    assert report_of(tmp_path).blocked == (route == "proxy")


async def test_a_launch_has_so_many_connections_at_once(tmp_path, routes):
    async with serving(tmp_path, routes, config(connections=2)) as run:
        held = [await run.knock() for _ in range(3)]
        assert [line for line, _, _ in held] == [b"OK\n", b"OK\n", b"NO connections\n"]
        held[0][2].write_eof()
        assert await held[0][1].read() == b""
        again = await run.knock()
        assert again[0] == b"OK\n"


async def test_a_run_has_so_many_connections_at_once(tmp_path, routes):
    async with serving(tmp_path, routes, config(all_connections=1)) as run:
        first = await run.answer()
        second = await run.answer()
    assert (first, second) == (b"OK\n", b"")


async def test_connections_of_one_address_that_say_nothing_are_bounded(
    tmp_path, routes, monkeypatch
):
    monkeypatch.setattr(server_module, "UNAUTHENTICATED_CONNECTIONS", 2)
    async with serving(tmp_path, routes) as run:
        for _ in range(2):
            await run.connect()
        assert await run.answer() == b""
        other = await run.answer(source="127.0.0.2")
        assert other == b"OK\n"


async def test_new_connections_above_the_rate_wait(tmp_path, routes):
    settings = config(connections_per_second=10.0, connections=100)
    async with serving(tmp_path, routes, settings) as run:
        begun = asyncio.get_running_loop().time()
        for _ in range(43):
            line = await run.answer()
            assert line == b"OK\n"
        assert asyncio.get_running_loop().time() - begun > 0.2


async def test_a_launch_that_used_up_its_bytes_is_refused(tmp_path, routes):
    async with serving(tmp_path, routes, config(bytes=10)) as run:
        _, reader, one = await run.knock()
        one.write(b"12345")
        await reader.readexactly(5)
        line = await run.answer()
    assert line == b"NO byte_limit\n"


async def test_close_cuts_and_leaves_final_numbers(tmp_path, routes, echo):
    async with serving(tmp_path, routes) as run:
        _, reader, writer = await run.knock()
        writer.write(b"abc")
        await reader.readexactly(3)
        assert await run.close() == b"OK\n"
        assert (echo.begun, echo.ended) == (1, 1)
        assert report_of(tmp_path) == LaunchReport(
            POD, POD_UID, address="127.0.0.1", closed=True, bytes_up=3, bytes_down=3
        )
        assert await reader.read() == b""


async def test_nothing_follows_a_close_but_a_close(tmp_path, routes, echo):
    async with serving(tmp_path, routes) as run:
        assert await run.close() == b"OK\n"
        line = await run.answer()
        assert line == b"NO closed\n"
        assert await run.close() == b"OK\n"
    assert echo.begun == 0
    assert report_of(tmp_path).blocked == 0


async def test_a_close_that_the_disk_does_not_take_is_not_acknowledged(
    tmp_path, routes, monkeypatch
):
    def full(*_):
        raise OSError(28, "No space left on device")

    async with serving(tmp_path, routes) as run:
        with monkeypatch.context() as patch:
            patch.setattr("securebench.gateway.launches.write_launch", full)
            assert await run.close() == b""
        assert await run.close() == b"OK\n"
    assert report_of(tmp_path).closed


async def test_a_restart_goes_on_with_what_was_counted(tmp_path, routes):
    async with serving(tmp_path, routes, config(bytes=10)) as run:
        _, reader, writer = await run.knock()
        writer.write(b"12345")
        await reader.readexactly(5)
        await run.launches.flush_all()
    async with serving(tmp_path, routes, config(bytes=10)) as run:
        used_up = await run.answer()
        elsewhere = await run.answer(source="127.0.0.2")
        await run.close()
    assert (used_up, elsewhere) == (b"NO byte_limit\n", b"NO address\n")
    async with serving(tmp_path, routes) as run:
        closed = await run.answer()
    assert closed == b"NO closed\n"


async def test_a_run_with_a_provider_reports_on_it_always(tmp_path, routes):
    async with serving(tmp_path, routes, config(provider=PROVIDER)) as run:
        await run.close()
    assert report_of(tmp_path).relay == RelayReport()


async def test_the_end_of_the_gateway_cuts_and_forgets_nothing(tmp_path, routes, echo):
    async with serving(tmp_path, routes) as run:
        _, reader, writer = await run.knock()
        writer.write(b"12345")
        await reader.readexactly(5)
        await run.server.end()
        assert (echo.ended, await reader.read()) == (1, b"")
        await run.launches.flush_all()
    found = report_of(tmp_path)
    assert (found.bytes_up, found.bytes_down, found.closed) == (5, 5, False)


async def test_refusals_of_a_known_launch_are_in_its_log(tmp_path):
    async with serving(tmp_path, {}) as run:
        await run.answer("provider")
        await run.close()
    (line,) = (tmp_path / LAUNCHES / f"{POD}.jsonl").read_text().splitlines()
    want = {"route": "provider", "verdict": "refused", "reason": "route", "host": "", "port": 0}
    assert json.loads(line).items() >= want.items()


async def test_refused_connections_of_one_pod_leave_room_for_others(tmp_path, routes, monkeypatch):
    monkeypatch.setattr(server_module, "UNAUTHENTICATED_CONNECTIONS", 3)
    monkeypatch.setattr(server_module, "REFUSAL_SECONDS", 60.0)
    settings = config(connections=1, all_connections=6)
    async with serving(tmp_path, routes, settings) as run:
        assert await run.answer() == b"OK\n"
        for _ in range(8):
            _, writer = await run.connect()
            writer.write(f"SB1 proxy {token()}\n".encode())
        said = f"SB1 proxy {token(pod=POD + 'x', uid='other')}\n".encode()
        assert await run.answer(said=said, source="127.0.0.2") == b"OK\n"
