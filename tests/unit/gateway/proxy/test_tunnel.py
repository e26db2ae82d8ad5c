"""Tunnels, and the name that a client says in its hello."""

import asyncio
import json

import pytest

from securebench.gateway.decisions import Cause, RefusedError
from securebench.gateway.proxy import MAX_HELLO_BYTES, MAX_RECORDS, ClientHelloParser, serve_tunnel
from support.client_hello import BEGIN, NAME, extension, hello, message, record, sni, vector
from support.gateways import PUBLIC, agent_of, client_hello, gateway, launch, outside

HELLO = client_hello()


async def tunnel(peer, someone, authority="docs.dev:443", said=HELLO, early=b"", **limits):
    """Serve one CONNECT of an agent that says something, ends and reads all that comes."""
    gate = gateway(peer, **limits)
    async with agent_of(someone) as (stream, reader, writer):
        writer.write(said)
        writer.write_eof()
        await serve_tunnel(stream, someone, gate, authority, early)
        await stream.close()
        return await reader.read()


def log(someone):
    changes = someone.take_changes()
    return [json.loads(line) for line in changes.lines.splitlines()]


async def test_a_tunnel_carries_both_directions_to_their_ends():
    someone = launch()
    async with outside() as peer:
        peer.reply = b"pong"
        answer = await tunnel(peer, someone)
    assert answer.startswith(b"HTTP/1.1 200 Connection established\r\n\r\npong")
    assert answer.endswith(b"bye")
    assert bytes(peer.received[0]) == HELLO
    assert (peer.asked, peer.dialled) == (["docs.dev"], [(PUBLIC, 443)])
    (entry,) = log(someone)
    want = {"route": "proxy", "method": "CONNECT", "host": "docs.dev", "port": 443,
            "verdict": "allowed", "reason": "", "bytes_up": len(HELLO), "status": 200}  # fmt: skip
    assert entry.items() >= want.items()
    assert entry["bytes_down"] == len(answer)
    assert (someone.report.requests, someone.report.blocked) == (1, 0)
    assert (someone.report.bytes_up, someone.report.bytes_down) == (len(HELLO), len(answer))


async def test_bytes_behind_the_head_come_first():
    async with outside() as peer:
        someone = launch()
        await tunnel(peer, someone, said=HELLO[50:] + b"tail", early=HELLO[:50])
    assert bytes(peer.received[0]) == HELLO + b"tail"
    assert log(someone)[0]["bytes_up"] == len(HELLO) + 4


@pytest.mark.parametrize(
    ("authority", "status", "reason"),
    [
        ("evil.example:443", 403, "not_listed"),
        ("docs.dev:22", 403, "port"),
        ("192.31.196.10:443", 403, "address_literal"),
        ("docs.dev:x", 400, "bad_request"),
    ],
)
async def test_a_refused_target_is_never_looked_up(authority, status, reason):
    someone = launch()
    async with outside() as peer:
        answer = await tunnel(peer, someone, authority, b"")
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert (peer.asked, peer.dialled) == ([], [])
    (entry,) = log(someone)
    assert (entry["verdict"], entry["reason"], entry["status"]) == ("refused", reason, status)
    assert (someone.report.requests, someone.report.blocked) == (0, 1)


@pytest.mark.parametrize(
    "answers",
    [["10.0.0.1"], [PUBLIC, "169.254.169.254"], ["::ffff:127.0.0.1"], [PUBLIC, "203.0.113.9"]],
)
async def test_one_bad_address_refuses_the_name(answers):
    someone = launch()
    async with outside({"docs.dev": answers}) as peer:
        answer = await tunnel(peer, someone, said=b"")
    assert answer.startswith(b"HTTP/1.1 403 ")
    assert peer.dialled == []
    assert log(someone)[0]["reason"] == "address_not_public"


@pytest.mark.parametrize("answers", [[], OSError("no such name")])
async def test_a_name_without_an_address_is_a_bad_gateway(answers):
    someone = launch()
    async with outside({"docs.dev": answers}) as peer:
        answer = await tunnel(peer, someone, said=b"")
    assert answer.startswith(b"HTTP/1.1 502 ")
    assert log(someone)[0]["reason"] == "unresolved"


NOT_THIS_HOST = {
    "other name": (client_hello("evil.example"), "sni_mismatch"),
    "name below": (client_hello("api.docs.dev"), "sni_mismatch"),
    "no name": (client_hello(None), "no_server_name"),
    "no TLS": (b"GET / HTTP/1.1\r\nHost: docs.dev\r\n\r\n", "no_client_hello"),
    "nothing": (b"", "no_client_hello"),
    "half a hello": (HELLO[:100], "no_client_hello"),
}


@pytest.mark.parametrize(("said", "reason"), NOT_THIS_HOST.values(), ids=NOT_THIS_HOST)
async def test_no_byte_goes_out_before_the_hello_names_the_host(said, reason):
    someone = launch()
    async with outside() as peer:
        answer = await tunnel(peer, someone, said=said)
        await peer.ended.wait()
    assert answer == b"HTTP/1.1 200 Connection established\r\n\r\n"
    assert peer.received == [b""]
    (entry,) = log(someone)
    assert (entry["verdict"], entry["reason"]) == ("refused", reason)
    assert (someone.report.requests, someone.report.blocked) == (0, 1)


async def test_an_agent_without_a_hello_is_not_waited_for():
    someone = launch()
    async with outside() as peer, agent_of(someone) as (stream, _, _):
        await serve_tunnel(stream, someone, gateway(peer, connect_seconds=0.1), "docs.dev", b"")
    assert log(someone)[0]["reason"] == "no_client_hello"


async def test_a_silent_tunnel_is_cut():
    someone = launch()
    async with outside() as peer, agent_of(someone) as (stream, _, writer):
        writer.write(HELLO)
        await serve_tunnel(stream, someone, gateway(peer, idle_seconds=0.1), "docs.dev", b"")
    (entry,) = log(someone)
    assert (entry["verdict"], entry["reason"]) == ("cut", "idle")
    assert someone.report.requests == 1


async def test_bytes_in_one_direction_keep_a_tunnel_open():
    someone = launch()
    async with outside() as peer, agent_of(someone) as (stream, _, writer):
        writer.write(HELLO)
        task = asyncio.create_task(
            serve_tunnel(stream, someone, gateway(peer, idle_seconds=1.0), "docs.dev", b"")
        )
        for _ in range(8):
            await asyncio.sleep(0.15)
            writer.write(b"x")
        assert not task.done()
        writer.write_eof()
        await task
    assert log(someone)[0]["verdict"] == "allowed"


async def test_the_byte_limit_of_a_launch_cuts():
    someone = launch(bytes=len(HELLO) + 1000)
    async with outside() as peer:
        await tunnel(peer, someone, said=HELLO + bytes(200_000))
    (entry,) = log(someone)
    assert (entry["verdict"], entry["reason"]) == ("cut", "byte_limit")
    assert len(peer.received[0]) <= len(HELLO) + 1000


async def test_a_slow_reader_holds_the_sender_back():
    someone = launch()
    async with outside() as peer, agent_of(someone) as (stream, _, writer):
        peer.reply = bytes(64 * 1024**2)
        writer.write(HELLO)
        task = asyncio.create_task(
            serve_tunnel(stream, someone, gateway(peer, idle_seconds=0.5), "docs.dev", b"")
        )
        writer.transport.pause_reading()
        await task
    assert log(someone)[0]["reason"] == "idle"
    assert someone.report.bytes_down < 32 * 1024**2


async def test_a_tunnel_that_is_cut_by_the_end_of_its_launch_is_recorded():
    someone = launch()
    async with outside() as peer, agent_of(someone) as (stream, reader, writer):
        writer.write(HELLO)
        task = asyncio.create_task(serve_tunnel(stream, someone, gateway(peer), "docs.dev", b""))
        await reader.readuntil(b"\r\n\r\n")
        await peer.begun.wait()
        task.cancel()
        await asyncio.wait([task])
    (entry,) = log(someone)
    assert (entry["verdict"], entry["reason"], entry["status"]) == ("cut", "closed", 200)


async def test_an_agent_that_breaks_off_is_recorded():
    someone = launch()
    async with outside() as peer, agent_of(someone) as (stream, reader, writer):
        peer.reply = bytes(1000)
        writer.write(HELLO)
        task = asyncio.create_task(serve_tunnel(stream, someone, gateway(peer), "docs.dev", b""))
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()
        await task
    assert log(someone)[0]["verdict"] == "allowed"


# ruff: noqa: E501 - tables of inputs


@pytest.mark.parametrize("name", ["docs.dev", "DOCS.dev", "a.b.docs.dev"])
def test_a_real_client_names_its_server(name):
    assert ClientHelloParser().feed(client_hello(name)) == name.lower()


@pytest.mark.parametrize("size", [1, 2, 7, 100])
def test_pieces_of_any_size_are_put_together(size):
    data, reader = client_hello(), ClientHelloParser()
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert [reader.feed(piece) for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert reader.feed(pieces[-1]) == "docs.dev"


@pytest.mark.parametrize("size", [10, 50, 400])
def test_a_hello_may_be_split_over_records(size):
    data = message(BEGIN + vector(NAME + extension(21, bytes(300))))
    records = b"".join(record(data[at : at + size]) for at in range(0, len(data), size))
    assert ClientHelloParser().feed(records) == "docs.dev"


def test_what_follows_the_hello_is_not_looked_at():
    assert ClientHelloParser().feed(hello(NAME) + b"\x17anything") == "docs.dev"


def test_a_name_in_the_second_record_counts():
    data = message(BEGIN + vector(extension(21, bytes(100)) + sni(b"evil.example")))
    assert ClientHelloParser().feed(record(data[:60]) + record(data[60:])) == "evil.example"


REFUSED = {
    "plain HTTP": (b"GET / HTTP/1.1\r\n", Cause.NO_HELLO),
    "SSH": (b"SSH-2.0-x\r\n", Cause.NO_HELLO),
    "SSL 2": (b"\x80\x2e\x01\x03\x01", Cause.NO_HELLO),
    "alert": (record(b"\x01\x00", kind=21), Cause.NO_HELLO),
    "application data": (record(b"x", kind=23), Cause.NO_HELLO),
    "other version": (record(message(BEGIN), major=2), Cause.NO_HELLO),
    "empty record": (record(b""), Cause.NO_HELLO),
    "large record": (b"\x16\x03\x01\x40\x01", Cause.NO_HELLO),
    "server hello": (record(message(BEGIN, kind=2)), Cause.NO_HELLO),
    "large message": (record(b"\x01" + (MAX_HELLO_BYTES - 3).to_bytes(3, "big")), Cause.NO_HELLO),
    "empty message": (record(message(b"")), Cause.NO_HELLO),
    "more than the message": (record(message(BEGIN + vector(NAME)) + b"x"), Cause.NO_HELLO),
    "cut message": (record(message(BEGIN[:20])), Cause.NO_HELLO),
    "cut extensions": (record(message(BEGIN + vector(NAME)[:-1])), Cause.NO_HELLO),
    "bytes after the extensions": (record(message(BEGIN + vector(NAME) + b"x")), Cause.NO_HELLO),
    "two name extensions": (hello(NAME, sni(b"evil.example")), Cause.NO_HELLO),
    "two names": (hello(sni(b"docs.dev", b"evil.example")), Cause.NO_HELLO),
    "name of another kind": (hello(sni(b"docs.dev", kind=1)), Cause.NO_HELLO),
    "bytes after the list": (hello(extension(0, vector(b"\x00" + vector(b"d")) + b"x")), Cause.NO_HELLO),
    "empty list": (hello(extension(0, vector(b""))), Cause.NO_HELLO),
    "empty name": (hello(sni(b"")), Cause.NO_SERVER_NAME),
    "no name": (hello(extension(10, b"\x00")), Cause.NO_SERVER_NAME),
    "no extensions": (record(message(BEGIN)), Cause.NO_SERVER_NAME),
    "NUL in the name": (hello(sni(b"docs.dev\x00.evil.example")), Cause.NO_SERVER_NAME),
    "encrypted hello": (hello(NAME, extension(0xFE0D, bytes(8))), Cause.ENCRYPTED_HELLO),
    "encrypted hello, draft": (hello(NAME, extension(0xFE09)), Cause.ENCRYPTED_HELLO),
    "encrypted name": (hello(extension(0xFFCE, bytes(8))), Cause.ENCRYPTED_HELLO),
}  # fmt: skip


@pytest.mark.parametrize(("data", "cause"), REFUSED.values(), ids=REFUSED)
def test_anything_else_is_refused(data, cause):
    with pytest.raises(RefusedError) as caught:
        ClientHelloParser().feed(data)
    assert caught.value.cause is cause


def test_the_first_wrong_byte_is_enough():
    with pytest.raises(RefusedError):
        ClientHelloParser().feed(b"G")


def test_a_hello_in_too_many_records_is_refused():
    reader, data = ClientHelloParser(), message(BEGIN + vector(NAME + extension(21, bytes(300))))
    for at in range(MAX_RECORDS):
        assert reader.feed(record(data[at : at + 1])) is None
    with pytest.raises(RefusedError):
        reader.feed(record(data[MAX_RECORDS : MAX_RECORDS + 1]))
