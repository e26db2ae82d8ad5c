"""Decisions of the proxy route (contract 11.3) and what becomes of each in the log."""

# ruff: noqa: E501 - tables of inputs

from __future__ import annotations

import asyncio
import socket

import pytest

from securebench.gateway.__main__ import open_sockets
from securebench.protocol.gateway import GatewayLimits
from support.proxies import LISTED, PUBLIC, status_of, statuses, world


def request(line: str, *headers: str, body: str = "") -> bytes:
    return "\r\n".join((line, *headers, "", body)).encode("latin-1")


DECISIONS = {
    "get": (f"GET http://{LISTED}/a?b=c HTTP/1.1", LISTED, 200, "", "/a?b=c"),
    "head": (f"HEAD http://{LISTED}/ HTTP/1.1", LISTED, 200, "", "/"),
    "delete": (f"DELETE http://{LISTED}/a HTTP/1.1", LISTED, 200, "", "/a"),
    "sub-domain": (f"GET http://a.b.{LISTED}/ HTTP/1.1", f"a.b.{LISTED}", 200, "", "/"),
    "no path": (f"GET http://{LISTED} HTTP/1.1", LISTED, 200, "", "/"),
    "only a query": (f"GET http://{LISTED}?q=1 HTTP/1.1", LISTED, 200, "", "/?q=1"),
    "upper case": (f"GET HTTP://{LISTED.upper()}/ HTTP/1.1", LISTED, 200, "", "/"),
    "trailing dot": (f"GET http://{LISTED}./ HTTP/1.1", LISTED, 200, "", "/"),
    "port 80": (f"GET http://{LISTED}:80/ HTTP/1.1", LISTED, 200, "", "/"),
    "port 443": (f"GET http://{LISTED}:443/ HTTP/1.1", f"{LISTED}:443", 200, "", "/"),
    "HTTP/1.0": (f"GET http://{LISTED}/ HTTP/1.0", LISTED, 200, "", "/"),
    "other port": (f"GET http://{LISTED}:8080/ HTTP/1.1", f"{LISTED}:8080", 403, "port", None),
    "not listed": ("GET http://other.org/ HTTP/1.1", "other.org", 403, "not_listed", None),
    "look-alike": (f"GET http://my{LISTED}/ HTTP/1.1", f"my{LISTED}", 403, "not_listed", None),
    "parent": ("GET http://example.com/ HTTP/1.1", "example.com", 403, "not_listed", None),
    "address": (f"GET http://{PUBLIC}/ HTTP/1.1", PUBLIC, 403, "address_literal", None),
    "address, v6": ("GET http://[2606::1]/ HTTP/1.1", "[2606::1]", 403, "address_literal", None),
    "origin form": ("GET / HTTP/1.1", LISTED, 400, "bad_request", None),
    "authority form": (f"GET {LISTED}:80 HTTP/1.1", LISTED, 400, "bad_request", None),
    "https": (f"GET https://{LISTED}/ HTTP/1.1", LISTED, 400, "bad_request", None),
    "other scheme": (f"GET ftp://{LISTED}/ HTTP/1.1", LISTED, 400, "bad_request", None),
    "user name": (f"GET http://me:secret@{LISTED}/ HTTP/1.1", LISTED, 400, "bad_request", None),
    "fragment": (f"GET http://{LISTED}/#a HTTP/1.1", LISTED, 400, "bad_request", None),
    "port 0": (f"GET http://{LISTED}:0/ HTTP/1.1", LISTED, 400, "bad_request", None),
    "OPTIONS": (f"OPTIONS http://{LISTED}/ HTTP/1.1", LISTED, 501, "method", None),
    "OPTIONS, star": ("OPTIONS * HTTP/1.1", LISTED, 501, "method", None),
    "TRACE": (f"TRACE http://{LISTED}/ HTTP/1.1", LISTED, 501, "method", None),
    "lower case": (f"get http://{LISTED}/ HTTP/1.1", LISTED, 501, "method", None),
}


@pytest.mark.parametrize("name", DECISIONS)
async def test_a_request_is_decided_by_its_url(name: str) -> None:
    line, host, want_status, want_reason, want_target = DECISIONS[name]
    async with world() as made:
        answer = await made.talk(request(line, f"Host: {host}", "Connection: close"))
        (decision,) = await made.log()
        targets = [one.target for one in made.origin.requests()]
    assert status_of(answer) == want_status
    assert targets == ([] if want_target is None else [want_target])
    assert decision["status"] == want_status
    assert decision["reason"] == want_reason
    assert decision["verdict"] == ("refused" if want_reason else "allowed")
    assert decision["method"] == line.split(" ")[0]
    assert "secret" not in str(decision)


HOSTS = {
    "missing": [],
    "missing in HTTP/1.0": [],
    "doubled": [LISTED, LISTED],
    "another one doubled": [LISTED, "other.org"],
    "another": ["other.org"],
    "listed, but another": [f"a.{LISTED}"],
    "another port": [f"{LISTED}:443"],
    "empty": [""],
    "an address": ["127.0.0.1"],
    "a list": [f"{LISTED}, other.org"],
    "with a user": [f"me@{LISTED}"],
    "with a path": [f"{LISTED}/a"],
    "beyond ASCII": [f"{LISTED}\xe4"],
}


@pytest.mark.parametrize("name", HOSTS)
async def test_the_host_field_names_the_host_of_the_url(name: str) -> None:
    """A-132."""
    version = "1.0" if "1.0" in name else "1.1"
    headers = [f"Host: {value}" for value in HOSTS[name]]
    async with world() as made:
        answer = await made.talk(request(f"GET http://{LISTED}/ HTTP/{version}", *headers))
        assert status_of(answer) == 400
        assert made.origin.dialled == []
        assert [decision["verdict"] for decision in await made.log()] == ["refused"]


@pytest.mark.parametrize("host", [LISTED, f"{LISTED}:80", f"{LISTED.upper()}.", f" {LISTED}\t"])
async def test_spellings_of_the_same_host_are_made_one(host: str) -> None:
    async with world() as made:
        answer = await made.talk(request(f"GET http://{LISTED}/ HTTP/1.1", f"Host: {host}"))
        assert status_of(answer) == 200
        assert [one.headers["host"] for one in made.origin.requests()] == [LISTED]


FORGED = (
    f"Forwarded: for=127.0.0.1;host={LISTED};proto=https",
    f"X-Forwarded-Host: {LISTED}",
    "X-Forwarded-For: 127.0.0.1",
    f"X-Original-URL: http://{LISTED}/",
    f"X-Rewrite-URL: http://{LISTED}/",
    f"X-Host: {LISTED}",
    f"Referer: http://{LISTED}/",
    "Proxy-Authorization: Bearer of-another-run",
    "Via: 1.1 gateway",
)


async def test_forged_fields_decide_nothing() -> None:
    """A-143."""
    async with world() as made:
        line = "GET http://other.org/ HTTP/1.1"
        plain = await made.talk(request(line, "Host: other.org"))
        assert status_of(plain) == 403
        for forged in FORGED:
            assert await made.talk(request(line, "Host: other.org", forged)) == plain
        assert await made.talk(request(line, "Host: other.org", *FORGED)) == plain
        assert made.origin.dialled == []


@pytest.mark.parametrize("address", ["10.0.0.1", "127.0.0.1", "169.254.169.254", "192.0.2.1"])
async def test_a_name_with_a_private_address_is_not_dialled(address: str) -> None:
    async with world(answers=(PUBLIC, address)) as made:
        answer = await made.talk(request(f"GET http://{LISTED}/ HTTP/1.1", f"Host: {LISTED}"))
        assert status_of(answer) == 403
        assert made.origin.dialled == []
        assert [one["reason"] for one in await made.log()] == ["address_not_public"]


async def test_a_name_without_an_address_is_answered_with_502() -> None:
    async with world(answers=()) as made:
        answer = await made.talk(request(f"GET http://{LISTED}/ HTTP/1.1", f"Host: {LISTED}"))
        assert status_of(answer) == 502
        assert [one["reason"] for one in await made.log()] == ["unresolved"]


async def test_the_checked_address_is_dialled_once_per_request() -> None:
    get = request(f"GET http://{LISTED}/ HTTP/1.1", f"Host: {LISTED}")
    async with world() as made:
        assert statuses(await made.talk(get + get)) == [200, 200]
        assert [(one.address, one.port) for one in made.origin.dialled] == [(PUBLIC, 80)] * 2
        assert made.launch.report.requests == 2


async def test_a_second_request_in_the_same_write_is_decided_anew() -> None:
    get = request(f"GET http://{LISTED}/a HTTP/1.1", f"Host: {LISTED}")
    evil = request("GET http://other.org/b HTTP/1.1", "Host: other.org")
    async with world() as made:
        answer = await made.talk(get + evil + get)
        log = await made.log()
        assert statuses(answer) == [200, 403, 200]
        assert [one.target for one in made.origin.requests()] == ["/a", "/a"]
        assert [one["verdict"] for one in log] == ["allowed", "refused", "allowed"]
        assert [one["host"] for one in log] == [LISTED, "other.org", LISTED]
        assert (made.launch.report.requests, made.launch.report.blocked) == (2, 1)


async def test_the_agent_keeps_its_connection_between_requests() -> None:
    async with world() as made, made.agent() as agent:
        for number in range(1, 4):
            await agent.send(request(f"GET http://{LISTED}/{number} HTTP/1.1", f"Host: {LISTED}"))
            await agent.until(b"hello")
            agent.received.clear()
        agent.writer.write_eof()
        assert await agent.rest() == b""
        assert [one.target for one in made.origin.requests()] == ["/1", "/2", "/3"]


async def test_bytes_are_counted_once_and_per_request() -> None:
    get = request(f"GET http://{LISTED}/a HTTP/1.1", f"Host: {LISTED}")
    async with world() as made:
        answer = await made.talk(get)
        (one,) = await made.log()
        assert (one["bytes_up"], one["bytes_down"]) == (len(get), len(answer))
        report = made.launch.report
        assert (report.bytes_up, report.bytes_down) == (len(get), len(answer))


async def test_an_agent_that_says_nothing_is_cut_without_a_decision() -> None:
    async with world(GatewayLimits(idle_seconds=0.1)) as made, made.agent() as agent:
        assert await agent.rest() == b""
        assert await made.log() == []


async def test_the_end_of_the_launch_is_recorded_for_what_was_open() -> None:
    async with world() as made, made.agent() as agent:
        asked = asyncio.Event()

        async def silent(peer) -> None:
            await peer.request()
            asked.set()
            await peer.rest()

        made.origin.handle = silent
        await agent.send(request(f"GET http://{LISTED}/ HTTP/1.1", f"Host: {LISTED}"))
        await asked.wait()
        for task in list(made.launch.connections):
            task.cancel()
        assert await agent.rest() == b""
        assert [(one["verdict"], one["reason"]) for one in await made.log()] == [("cut", "closed")]


CONNECTS = {
    "another host": (f"CONNECT {LISTED}:443 HTTP/1.1", ["Host: other.org:443"], 400),
    "a body": (f"CONNECT {LISTED}:443 HTTP/1.1", [f"Host: {LISTED}", "Content-Length: 5"], 400),
    "chunks": (f"CONNECT {LISTED}:443 HTTP/1.1", [f"Host: {LISTED}", "Transfer-Encoding: chunked"], 400),
    "no host field": (f"CONNECT {LISTED}:443 HTTP/1.1", [], 400),
    "not listed": ("CONNECT other.org:443 HTTP/1.1", ["Host: other.org:443"], 403),
    "a URL": (f"CONNECT http://{LISTED}/ HTTP/1.1", [f"Host: {LISTED}"], 400),
    "no host field, HTTP/1.0": (f"CONNECT {LISTED}:443 HTTP/1.0", [], 200),
    "no port in the field": (f"CONNECT {LISTED}:443 HTTP/1.1", [f"Host: {LISTED}"], 200),
}  # fmt: skip


@pytest.mark.parametrize("name", CONNECTS)
async def test_a_connect_is_read_as_strictly(name: str) -> None:
    line, headers, want = CONNECTS[name]
    async with world() as made:
        answer = await made.talk(request(line, *headers))
        assert status_of(answer) == want
        assert len(made.origin.dialled) == (want == 200)
        assert len(await made.log()) == 1


async def test_nothing_is_forwarded_after_a_connect_on_its_connection() -> None:
    get = request(f"GET http://{LISTED}/a HTTP/1.1", f"Host: {LISTED}")
    async with world() as made:
        answer = await made.talk(request("CONNECT other.org:443 HTTP/1.0") + get)
        assert statuses(answer) == [403]
        assert made.origin.dialled == []


async def test_small_pieces_of_an_answer_do_not_wait_for_each_other() -> None:
    delays = []

    async def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        delays.append(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 0)
        writer.close()

    first, *others = open_sockets(0)
    for unused in others:
        unused.close()
    async with await asyncio.start_server(connected, sock=first) as server:
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()
    assert delays == [False]
