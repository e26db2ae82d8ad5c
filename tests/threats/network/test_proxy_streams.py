"""F7: what is sent through the gateway is for the target that it allowed, and for no other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import h11
import pytest

from securebench.gateway import proxy
from securebench.gateway.http1 import end_to_end
from securebench.gateway.launches import Identity, ServedLaunch
from securebench.gateway.proxy import _Tunnel
from securebench.gateway.run_gateway import RunGateway
from securebench.gateway.server import Admission
from securebench.gateway.streams import AgentStream, pump
from securebench.gateway.targets import url_target
from support.client_hello import (
    BEGIN,
    NAME,
    extension,
    hello,
    message,
    record,
    sni,
    vector,
)
from support.gateways import POD, POD_UID, claims, client_hello
from threats.network.loopback_gateway import LISTED, connect, get, preface, status, way

pytestmark = pytest.mark.short
HELLO = client_hello(LISTED)
OTHER = "evil.example"

# the name in the TLS hello

SPLIT = message(BEGIN + vector(extension(21, bytes(100)) + sni(OTHER.encode())))
HELLOS: Mapping[str, bytes] = {
    "other name": client_hello(OTHER),
    "name below": client_hello(f"other.{LISTED}"),
    "no name": client_hello(None),
    "other name in the second record": record(SPLIT[:60]) + record(SPLIT[60:]),
    "both names": hello(sni(LISTED.encode(), OTHER.encode())),
    "two extensions": hello(NAME, sni(OTHER.encode())),
    "encrypted hello": hello(NAME, extension(0xFE0D, bytes(8))),
    "encrypted name": hello(extension(0xFFCE, bytes(8))),
    "plain HTTP": f"GET / HTTP/1.1\r\nHost: {OTHER}\r\n\r\n".encode(),
    "SSH": b"SSH-2.0-OpenSSH\r\n",
}


@pytest.mark.parametrize("kind", HELLOS)
async def test_a_131_attack(tmp_path: Path, kind: str) -> None:
    async with way(tmp_path) as out:
        await out.say(connect(f"{LISTED}:443") + HELLOS[kind])

        assert out.sent() == b""
        (line,) = await out.log()
        assert line["verdict"] == "refused"
        names = {"sni_mismatch", "no_server_name", "encrypted_client_hello", "no_client_hello"}
        assert line["reason"] in names


async def unread(tunnel: _Tunnel) -> bytes:
    """Return the agent's first bytes, whatever they are."""
    return await tunnel._agent.read()


@pytest.mark.parametrize("kind", HELLOS)
async def test_a_131_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(_Tunnel, "_hello", unread)
    async with way(tmp_path) as out:
        await out.say(connect(f"{LISTED}:443") + HELLOS[kind])

        assert out.sent() == HELLOS[kind]


@pytest.mark.parametrize("name", [LISTED, LISTED.upper()])
async def test_a_131_honest(tmp_path: Path, name: str) -> None:
    async with way(tmp_path) as out:
        await out.say(connect(f"{LISTED}:443") + client_hello(name) + b"more")

        assert out.sent() == client_hello_of(out.sent()) + b"more"


def client_hello_of(data: bytes) -> bytes:
    """Return the first record of a stream."""
    return data[: 5 + int.from_bytes(data[3:5], "big")]


# request line and Host field

HOSTS = {
    "other": get(f"http://{LISTED}/", host=OTHER),
    "missing": get(f"http://{LISTED}/", host=""),
    "doubled": get(f"http://{LISTED}/", f"Host: {LISTED}"),
    "two": get(f"http://{LISTED}/", f"Host: {OTHER}"),
    "other port": get(f"http://{LISTED}/", host=f"{LISTED}:443"),
    "a name below": get(f"http://{LISTED}/", host=f"a.{LISTED}"),
    "a list": get(f"http://{LISTED}/", host=f"{LISTED}, {OTHER}"),
    "listed, URL is not": get(f"http://{OTHER}/"),
    "https": get(f"https://{LISTED}/"),
    "origin form": get("/"),
}


@pytest.mark.parametrize("kind", HOSTS)
async def test_a_132_attack(tmp_path: Path, kind: str) -> None:
    async with way(tmp_path) as out:
        assert status(await out.say(HOSTS[kind])) == 400
        assert out.origin.dialled == []


async def test_a_132_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gateway that decides by the request line and hands the Host field on."""
    monkeypatch.setattr(proxy, "require_host", lambda *_: None)
    monkeypatch.setattr(proxy, "origin_headers", lambda head, _: end_to_end(head.headers))
    async with way(tmp_path) as out:
        assert status(await out.say(HOSTS["other"])) == 200
        assert f"host: {OTHER}\r\n".encode() in out.sent().lower()


@pytest.mark.parametrize("host", [LISTED, f"{LISTED.upper()}.", f"{LISTED}:80"])
async def test_a_132_honest(tmp_path: Path, host: str) -> None:
    async with way(tmp_path) as out:
        assert status(await out.say(get(f"http://{LISTED}/a", host=host))) == 200
        assert f"host: {LISTED}\r\n".encode() in out.sent().lower()


# a second request inside the first

HIDDEN = f"GET /hidden HTTP/1.1\r\nHost: {OTHER}\r\n\r\n".encode()


def post(*headers: str, body: bytes = HIDDEN) -> bytes:
    lines = (f"POST http://{LISTED}/ HTTP/1.1", f"Host: {LISTED}", *headers, "", "")
    return "\r\n".join(lines).encode("latin-1") + body


CHUNKED = "Transfer-Encoding: chunked"
LENGTH = f"Content-Length: {len(HIDDEN)}"
CONFLICTS: Mapping[str, bytes] = {
    "length and chunked": post("Content-Length: 5", CHUNKED, body=b"0\r\n\r\n" + HIDDEN),
    "chunked and length": post(CHUNKED, "Content-Length: 5", body=b"0\r\n\r\n" + HIDDEN),
    "two lengths": post("Content-Length: 0", LENGTH),
    "list of lengths": post(f"Content-Length: 0, {len(HIDDEN)}"),
    "signed length": post(f"Content-Length: +{len(HIDDEN)}"),
    "negative length": post("Content-Length: -1"),
    "length in hexadecimal": post("Content-Length: 0x0"),
    "length with blanks": post("Content-Length: 0 1"),
    "other coding": post("Transfer-Encoding: identity"),
    "coding after chunked": post("Transfer-Encoding: chunked, identity"),
    "coding that looks alike": post("Transfer-Encoding: xchunked", body=b"0\r\n\r\n" + HIDDEN),
    "two codings": post(CHUNKED, CHUNKED, body=b"0\r\n\r\n" + HIDDEN),
    "vertical tab": post("Transfer-Encoding: \x0bchunked", body=b"0\r\n\r\n" + HIDDEN),
    "blank before the colon": post("Transfer-Encoding : chunked", body=b"0\r\n\r\n" + HIDDEN),
    "folded line": post("X: a", " Transfer-Encoding: chunked", body=b"0\r\n\r\n" + HIDDEN),
    "NUL in a field": post("X: a\x00b"),
    "bare carriage return": post(f"X: a\rTransfer-Encoding: chunked\r{LENGTH}"),
    "no colon": post("Transfer-Encoding chunked"),
    "chunked in HTTP/1.0": post(CHUNKED).replace(b"HTTP/1.1", b"HTTP/1.0", 1),
    "another version": post(LENGTH).replace(b"HTTP/1.1", b"HTTP/1.2", 1),
    "two blanks": post(LENGTH).replace(b"POST ", b"POST  ", 1),
    "tab in the line": post(LENGTH).replace(b"POST ", b"POST\t", 1),
    "body of a CONNECT": post(LENGTH).replace(
        f"POST http://{LISTED}/".encode(), f"CONNECT {LISTED}:443".encode(), 1
    ),
}
NO_URL = {"two blanks", "tab in the line", "body of a CONNECT"}
"""Conflicts that the naive gateway of the twin cannot read either."""
CHUNKS: Mapping[str, bytes] = {
    "sign": b"+0\r\n\r\n",
    "prefix": b"0x0\r\n\r\n",
    "blank": b" 0\r\n\r\n",
    "line feed": b"0\n\n",
    "overflow": b"1" + b"0" * 16 + b"\r\n\r\n",
    "negative": b"-1\r\n\r\n",
    "wrong end": b"1\r\naXX0\r\n\r\n",
    "nothing": b"\r\n\r\n",
}


async def naive(agent: AgentStream, launch: ServedLaunch, gateway: RunGateway) -> None:
    """Decide the first request line and carry every byte after it as it stands."""
    data = await agent.read()
    target = url_target(data.split(b" ", 2)[1].decode()).target
    if gateway.is_listed(target.host):
        origin = await gateway.dial(launch, *target)
        try:
            await origin.write(data)
            await pump(agent, origin, 2)
        finally:
            await origin.close()


@pytest.mark.parametrize("kind", CONFLICTS)
async def test_a_140_attack(tmp_path: Path, kind: str) -> None:
    async with way(tmp_path) as out:
        answer = await out.say(CONFLICTS[kind])

        assert status(answer) in {400, 505}
        assert answer.count(b"HTTP/1.1 ") == 1
        assert out.origin.dialled == []


@pytest.mark.parametrize("kind", CHUNKS)
async def test_a_140_attack_by_chunks(tmp_path: Path, kind: str) -> None:
    """The origin may have seen the beginning of the request; what is hidden it never sees."""
    async with way(tmp_path) as out:
        answer = await out.say(post(CHUNKED, body=CHUNKS[kind] + HIDDEN))

        assert len(out.origin.received) <= 1
        assert requests(out.sent()) == 1
        assert answer.count(b"HTTP/1.1 ") <= 1


def requests(data: bytes) -> int:
    """Return how many requests an origin reads from its bytes."""
    origin, count = h11.Connection(h11.SERVER), 0
    origin.receive_data(data)
    while isinstance(event := origin.next_event(), h11.Request | h11.Data | h11.EndOfMessage):
        count += isinstance(event, h11.Request)
        if isinstance(event, h11.EndOfMessage) and origin.trailing_data[0]:
            return count + requests(origin.trailing_data[0])
    return count


async def test_a_140_attack_by_pipelining(tmp_path: Path) -> None:
    first = post("Content-Length: 0", body=b"")
    second = get(f"http://{OTHER}/hidden", host=OTHER)
    async with way(tmp_path) as out:
        answer = await out.say(first + second)

        assert [status(part) for part in parts(answer)] == [200, 403]
        assert len(out.origin.dialled) == 1
        assert b"/hidden" not in out.sent()


def parts(answer: bytes) -> list[bytes]:
    return [b"HTTP/1.1 " + part for part in answer.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in CONFLICTS
        if kind not in {"two blanks", "tab in the line", "body of a CONNECT"}
    ],
)
async def test_a_140_twin(tmp_path: Path, kind: str) -> None:
    async with way(tmp_path, route=naive) as out:
        await out.say(CONFLICTS[kind])

        assert b"/hidden" in out.sent()


async def test_a_140_honest(tmp_path: Path) -> None:
    chunked = post(CHUNKED, body=b"5\r\nhello\r\n0\r\n\r\n")
    async with way(tmp_path) as out:
        answer = await out.say(post("Content-Length: 5", body=b"hello") + chunked)

        assert [status(part) for part in parts(answer)] == [200, 200]
        assert [bytes(each).count(b"hello") for each in out.origin.received] == [1, 1]


# who asks

FORGED = (
    f"Forwarded: for=127.0.0.1;host={LISTED};proto=https",
    f"X-Forwarded-Host: {LISTED}",
    "X-Forwarded-For: 127.0.0.1",
    f"X-Original-URL: http://{LISTED}/",
    f"X-Rewrite-URL: http://{LISTED}/",
    f"X-Host: {LISTED}",
    "Proxy-Authorization: Bearer of-another-run",
    "Via: 1.1 gateway",
    f"SB1: proxy {LISTED}",
)
BOUND = claims()["kubernetes.io"]
FOREIGN: Mapping[str, dict[str, object]] = {
    "audience of another run": {"aud": ["securebench-gateway-another"]},
    "Pod of another run": {"pod": "sb-ffffffffffff-0-1-1"},
    "another namespace": {"kubernetes.io": {**BOUND, "namespace": "other"}},
    "another account": {"sub": "system:serviceaccount:bench:default"},
    "expired": {"exp": 1_767_225_600},
}


@pytest.mark.parametrize("forged", FORGED)
async def test_a_143_attack_by_a_field(tmp_path: Path, forged: str) -> None:
    async with way(tmp_path) as out:
        plain = await out.say(get(f"http://{OTHER}/", host=OTHER))

        assert status(plain) == 403
        assert await out.say(get(f"http://{OTHER}/", forged, host=OTHER)) == plain
        assert out.origin.dialled == []


@pytest.mark.parametrize("kind", FOREIGN)
async def test_a_143_attack_by_a_token(tmp_path: Path, kind: str) -> None:
    async with way(tmp_path) as out:
        answer = await out.say(get(f"http://{LISTED}/"), said=preface(**FOREIGN[kind]))

        assert answer == b"NO token\n"
        assert out.origin.dialled == []


async def test_a_143_attack_by_a_relay(tmp_path: Path) -> None:
    """The token of a launch is worth nothing at another address."""
    async with way(tmp_path) as out:
        assert status(await out.say(get(f"http://{LISTED}/"))) == 200

        assert await out.say(get(f"http://{LISTED}/"), source="127.0.0.2") == b"NO address\n"
        assert len(out.origin.dialled) == 1


async def test_a_143_twin_of_a_relay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServedLaunch, "admit", lambda *_: None)
    async with way(tmp_path) as out:
        assert status(await out.say(get(f"http://{LISTED}/"))) == 200
        assert status(await out.say(get(f"http://{LISTED}/"), source="127.0.0.2")) == 200


def anybody(_: Admission, __: object) -> Identity:
    return Identity(POD, POD_UID)


async def test_a_143_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Admission, "_of_this_run", anybody)
    foreign = preface(**FOREIGN["Pod of another run"])
    async with way(tmp_path) as out:
        assert status(await out.say(get(f"http://{LISTED}/"), said=foreign)) == 200


async def test_a_143_honest(tmp_path: Path) -> None:
    async with way(tmp_path) as out:
        for _ in range(3):
            assert status(await out.say(get(f"http://{LISTED}/", *FORGED))) == 200
