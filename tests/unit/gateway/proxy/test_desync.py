"""A-140: hostile framing; the origin sees one request or none, whatever the agent sends."""

# ruff: noqa: E501 - tables of inputs

from __future__ import annotations

from contextlib import suppress

import pytest

from support.proxies import LISTED, status_of, world

LINE = f"POST http://{LISTED}/first HTTP/1.1\r\n"
HOST = f"Host: {LISTED}\r\n"
SMUGGLED = f"GET http://{LISTED}/smuggled HTTP/1.1\r\nHost: other.org\r\n\r\n"
LONG = "x" * 70_000


def post(*headers: str, body: str = SMUGGLED) -> str:
    return LINE + HOST + "".join(f"{header}\r\n" for header in headers) + "\r\n" + body


REFUSED = {
    "length and chunks": post("Content-Length: 5", "Transfer-Encoding: chunked", body="0\r\n\r\n" + SMUGGLED),
    "chunks and length": post("Transfer-Encoding: chunked", "Content-Length: 5", body="0\r\n\r\n" + SMUGGLED),
    "two lengths": post("Content-Length: 0", "Content-Length: 60"),
    "two equal lengths": post("Content-Length: 0", "Content-Length: 0"),
    "a list of lengths": post("Content-Length: 0, 60"),
    "a list of equal lengths": post("Content-Length: 0, 0"),
    "length with a sign": post("Content-Length: +0"),
    "negative length": post("Content-Length: -1"),
    "hexadecimal length": post("Content-Length: 0x0"),
    "length with an underscore": post("Content-Length: 1_0"),
    "length with a blank": post("Content-Length: 1 0"),
    "empty length": post("Content-Length:"),
    "length in other digits": post("Content-Length: \xb2"),
    "length beyond all bounds": post("Content-Length: " + "9" * 40),
    "two codings": post("Transfer-Encoding: chunked", "Transfer-Encoding: identity", body="0\r\n\r\n"),
    "chunked twice": post("Transfer-Encoding: chunked", "Transfer-Encoding: chunked", body="0\r\n\r\n"),
    "a list of codings": post("Transfer-Encoding: gzip, chunked", body="0\r\n\r\n"),
    "chunked in a list": post("Transfer-Encoding: chunked, chunked", body="0\r\n\r\n"),
    "chunked is not last": post("Transfer-Encoding: chunked, identity", body="0\r\n\r\n"),
    "coding with a parameter": post("Transfer-Encoding: chunked;q=1", body="0\r\n\r\n"),
    "coding in quotes": post('Transfer-Encoding: "chunked"', body="0\r\n\r\n"),
    "misspelt coding": post("Transfer-Encoding: xchunked", body="0\r\n\r\n"),
    "vertical tab before the coding": post("Transfer-Encoding: \x0bchunked", body="0\r\n\r\n"),
    "coding in HTTP/1.0": post("Transfer-Encoding: chunked", body="0\r\n\r\n").replace("HTTP/1.1", "HTTP/1.0", 1),
    "blank before the colon": post("Transfer-Encoding : chunked", body="0\r\n\r\n"),
    "tab before the colon": post("Content-Length\t: 0"),
    "NUL in the name": post("Content-Length\0: 0"),
    "NUL in the value": post("X: a\0b"),
    "folded value": post("X: a", " b"),
    "folded coding": post("Transfer-Encoding:", " chunked", body="0\r\n\r\n"),
    "folded first line": LINE + " X: y\r\n" + HOST + "\r\n",
    "no colon": post("Content-Length 0"),
    "empty name": post(": 0"),
    "bare line feed after a header": post("X: a\nContent-Length: 60"),
    "bare line feeds only": post("Content-Length: 0").replace("\r\n", "\n"),
    "bare line feed ends the head": LINE + HOST + "\n" + SMUGGLED,
    "bare carriage return": post("X: a\rContent-Length: 60"),
    "carriage return before the colon": post("Content-Length\r: 0"),
    "form feed": post("X: a\x0cb"),
    "delete": post("X: a\x7fb"),
    "name beyond ASCII": post("Content-L\xe9ngth: 0"),
    "name with a bracket": post("Content-Length(: 0"),
    "blank before the first line": " " + post("Content-Length: 0"),
    "line before the first line": "\r\n" + post("Content-Length: 0"),
    "two blanks in the first line": post().replace("POST ", "POST  ", 1),
    "tab in the first line": post().replace("POST ", "POST\t", 1),
    "blank in the URL": post().replace("/first", "/fir st", 1),
    "line feed in the URL": post().replace("/first", "/fir\nst", 1),
    "URL beyond ASCII": post().replace("/first", "/f\xefrst", 1),
    "no version": post().replace(" HTTP/1.1", "", 1),
    "HTTP/0.9": post().replace("HTTP/1.1", "HTTP/0.9", 1),
    "HTTP/1.2": post().replace("HTTP/1.1", "HTTP/1.2", 1),
    "HTTP/2.0": post().replace("HTTP/1.1", "HTTP/2.0", 1),
    "preface of HTTP/2": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "lower-case version": post().replace("HTTP/1.1", "http/1.1", 1),
    "text behind the version": post().replace("HTTP/1.1", "HTTP/1.1 x", 1),
    "TLS": "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "unknown expectation": post("Expect: 200-ok", "Content-Length: 0"),
    "long header": post(f"X: {LONG}"),
    "long first line": post().replace("/first", f"/{LONG}", 1),
    "many headers": post(*(f"X-{number}: {number}" for number in range(9000))),
    "long header without an end": LINE + HOST + f"X: {LONG}",
    "two hosts": post("Host: other.org", "Content-Length: 0"),
    "folded host": LINE + "Host:\r\n " + LISTED + "\r\n\r\n",
    "host with a blank before the colon": LINE + f"Host : {LISTED}\r\n\r\n",
    "host hidden in another name": LINE + f"X-Host: {LISTED}\r\n\r\n",
}  # fmt: skip

BROKEN_BODIES = {
    "chunk size with a sign": "+5\r\nhello\r\n0\r\n\r\n",
    "negative chunk size": "-1\r\n\r\n",
    "chunk size with a prefix": "0x5\r\nhello\r\n0\r\n\r\n",
    "chunk size beyond 64 bits": "f" * 30 + "\r\n",
    "empty chunk size": "\r\nhello\r\n0\r\n\r\n",
    "chunk size with a blank": " 5\r\nhello\r\n0\r\n\r\n",
    "chunk longer than its size": "5\r\nhello!\r\n0\r\n\r\n",
    "chunk shorter than its size": "6\r\nhello\r\n0\r\n\r\n",
    "chunk size before a bare line feed": "5\nhello\r\n0\r\n\r\n",
    "no line end after a chunk": "5\r\nhello0\r\n\r\n",
    "bare line feed after a chunk": "5\r\nhello\n0\r\n\r\n",
    "the end without its empty line": "5\r\nhello\r\n0\r\n",
    "no end": "5\r\nhello\r\n",
    "trailer with a blank before the colon": "0\r\nX : y\r\n\r\n",
    "trailer without a colon": "0\r\nContent-Length\r\n\r\n",
    "trailer with NUL": "0\r\nX: \0\r\n\r\n",
    "long chunk extension": "5;" + LONG * 3 + "\r\nhello\r\n0\r\n\r\n",
}
"""A chunked body is read after its request was allowed; the origin never gets its end."""

ONE = {
    "chunks hide a request": (post("Transfer-Encoding: chunked", body=f"{len(SMUGGLED):x}\r\n{SMUGGLED}\r\n0\r\n\r\n"), SMUGGLED),
    "length hides a request": (post(f"Content-Length: {len(SMUGGLED)}"), SMUGGLED),
    "chunk extension": (post("Transfer-Encoding: chunked", body="5;a=b\r\nhello\r\n0\r\n\r\n"), "hello"),
    "leading zeros": (post("Content-Length: 0005", body="hello"), "hello"),
    "upper-case coding": (post("TRANSFER-ENCODING: CHUNKED", body="5\r\nhello\r\n0\r\n\r\n"), "hello"),
    "framing in trailers": (post("Transfer-Encoding: chunked", body="0\r\nContent-Length: 60\r\nHost: other.org\r\n\r\n"), ""),
    "connection names the length": (post("Connection: close, content-length", "Content-Length: 5", body="hello"), "hello"),
    "connection names the host": (post("Connection: close, host", "Content-Length: 5", body="hello"), "hello"),
    "upgrade to HTTP/2": (post("Connection: Upgrade, HTTP2-Settings, close", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__", "Content-Length: 5", body="hello"), "hello"),
    "bytes after the end of an HTTP/1.0 request": (post("Content-Length: 5", body="hello" + SMUGGLED).replace("HTTP/1.1", "HTTP/1.0", 1), "hello"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
async def test_what_two_parsers_read_in_two_ways_is_refused(name: str) -> None:
    async with world() as made:
        answer = await made.talk(REFUSED[name].encode("latin-1"))
        assert status_of(answer) in {400, 417, 431}
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"connection: close" in answer.lower()
        assert made.origin.dialled == []
        assert [one["verdict"] for one in await made.log()] == ["refused"]


@pytest.mark.parametrize("name", BROKEN_BODIES)
async def test_a_broken_body_never_becomes_a_request(name: str) -> None:
    data = post("Transfer-Encoding: chunked", body=BROKEN_BODIES[name] + SMUGGLED)
    async with world() as made:

        async def wait(peer) -> None:
            with suppress(OSError):
                await peer.rest()

        made.origin.handle = wait
        answer = await made.talk(data.encode("latin-1"))
        assert status_of(answer) in {400, 431}
        assert answer.count(b"HTTP/1.1 ") == 1
        assert [one["verdict"] for one in await made.log()] == ["cut"]
        assert len(made.origin.raw) == 1
        raw = bytes(made.origin.raw[0])
        assert b"smuggled" not in raw
        assert not raw.endswith(b"0\r\n\r\n")


@pytest.mark.parametrize("name", ONE)
async def test_what_is_forwarded_is_one_request(name: str) -> None:
    data, want_body = ONE[name]
    async with world() as made:
        answer = await made.talk(data.encode("latin-1"))
        (request,) = [one for one in made.origin.requests() if one.target == "/first"]
        assert status_of(answer) == 200
        assert request.body == want_body.encode()
        assert request.headers["host"] == LISTED
        assert request.trailers == {}
        assert [one.target for one in made.origin.requests()] == ["/first"]
        framing = {"content-length", "transfer-encoding"} & set(request.headers)
        assert len(framing) == 1
        assert "upgrade" not in request.headers
        assert request.headers["connection"] == "close"
