"""One look-up, every address checked, a checked address dialled (A-133)."""

import asyncio
import socket
import ssl

import pytest

from securebench.gateway import dial as dial_module
from securebench.gateway.decisions import Cause, RefusedError, UnreachableError
from securebench.gateway.dial import Dialer, Endpoint, SystemResolver, connect_socket
from support.gateways import PUBLIC, listening

SECOND = "192.31.196.11"


class Network:
    def __init__(self, answers=(PUBLIC,), deaf=(), silent=()):
        self.answers = list(answers)
        self.deaf, self.silent = deaf, silent
        self.asked, self.places = [], []

    async def resolve(self, host):
        self.asked.append(host)
        return self.answers.pop(0) if isinstance(self.answers[0], list) else self.answers

    async def connect(self, place):
        self.places.append(place)
        if place.address in self.silent:
            await asyncio.Event().wait()
        if place.address in self.deaf:
            raise ConnectionRefusedError
        return place.address


async def dial(network, seconds=5.0, tls=None):
    dialer = Dialer(seconds, network.resolve, network.connect)
    return await dialer.dial(asyncio.Semaphore(1), "docs.dev", 443, tls)


async def test_the_checked_address_is_dialled_with_the_name_for_tls():
    network, tls = Network(), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    assert await dial(network, tls=tls) == PUBLIC
    assert network.places == [Endpoint(PUBLIC, 443, "docs.dev", tls)]


async def test_a_name_is_looked_up_once_per_connection():
    network = Network([[PUBLIC], ["10.0.0.1"]])
    assert await dial(network) == PUBLIC
    assert network.asked == ["docs.dev"]
    with pytest.raises(RefusedError) as caught:
        await dial(network)
    assert (caught.value.cause, caught.value.status) == (Cause.NOT_PUBLIC, 403)
    assert len(network.places) == 1


async def test_the_next_checked_address_is_tried():
    network = Network([PUBLIC, SECOND], deaf=[PUBLIC])
    assert await dial(network) == SECOND


async def test_a_silent_address_leaves_time_for_the_next():
    network = Network([PUBLIC, SECOND], silent=[PUBLIC])
    assert await dial(network, 0.2) == SECOND


@pytest.mark.parametrize("how", ["deaf", "silent"])
async def test_no_connection_is_a_bad_gateway(how):
    with pytest.raises(UnreachableError) as caught:
        await dial(Network(**{how: [PUBLIC]}), 0.1)
    assert (caught.value.cause, caught.value.status) == (Cause.UNREACHABLE, 502)


async def test_a_resolver_that_does_not_answer_is_charged_to_its_launch():
    lookups, answer = asyncio.Semaphore(1), asyncio.Event()

    async def slow(_):
        await answer.wait()
        raise OSError

    dialer = Dialer(0.05, slow, Network().connect)
    for _ in range(2):
        with pytest.raises(UnreachableError):
            await dialer.dial(lookups, "docs.dev", 443, None)
    assert lookups.locked()
    answer.set()
    async with asyncio.timeout(1):
        await lookups.acquire()


async def test_the_system_resolver_asks_for_the_whole_name(monkeypatch):
    asked = []

    def getaddrinfo(host, _port, type):  # noqa: A002 - as in the library
        asked.append((host, type))
        return [(0, 0, 0, "", (address, 0)) for address in (PUBLIC, SECOND, PUBLIC)]

    monkeypatch.setattr(dial_module.socket, "getaddrinfo", getaddrinfo)
    assert await SystemResolver()("docs.dev") == [PUBLIC, SECOND]
    assert asked == [("docs.dev.", socket.SOCK_STREAM)]


async def test_a_socket_carries_bytes_and_half_closes():
    async def serve(reader, writer):
        writer.write((await reader.read()).upper())
        writer.close()

    async with listening(serve) as port:
        stream = await connect_socket(Endpoint("127.0.0.1", port, "docs.dev", None))
        await stream.write(b"abc")
        await stream.end()
        assert (await stream.read(), await stream.read()) == (b"ABC", b"")
        await stream.close()
        await stream.close()


async def test_tls_without_a_certificate_of_the_host_is_unreachable():
    async def serve(_reader, writer):
        writer.write(b"no TLS at all")

    async def resolve(_):
        return [PUBLIC]

    async with listening(serve) as port:

        async def connect(place):
            return await connect_socket(place._replace(address="127.0.0.1", port=port))

        with pytest.raises(UnreachableError):
            await Dialer(2, resolve, connect).dial(
                asyncio.Semaphore(1), "docs.dev", 443, ssl.create_default_context()
            )
