"""The server name of a ClientHello (A-131)."""

# ruff: noqa: E501 - tables of inputs

import pytest

from securebench.gateway.decisions import Cause, RefusedError
from securebench.gateway.proxy import MAX_HELLO_BYTES, MAX_RECORDS, ClientHelloParser
from support.client_hello import BEGIN, NAME, extension, hello, message, record, sni, vector
from support.gateways import client_hello


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
