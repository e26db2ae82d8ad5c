"""Which addresses are dialled."""

import asyncio
import socket
import ssl
from ipaddress import ip_address, ip_network

import pytest

from securebench.gateway import dial as dial_module
from securebench.gateway.decisions import Cause, RefusedError, UnreachableError
from securebench.gateway.dial import (
    Dialer,
    Endpoint,
    SystemResolver,
    connect_socket,
    is_inside,
    is_public,
)
from securebench.run.pods.isolation import OUTSIDE
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


# ruff: noqa: E501, S104 - tables of inputs


ADDRESSES_PUBLIC = (
    "1.1.1.1", "93.184.216.34", "192.31.196.10", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1",
    "168.63.129.15", "168.63.129.17", "223.255.255.255", "2606:4700::1111", "2a00:1450:4001::1", "2001:200::1", "::ffff:1.1.1.1", "64:ff9b::101:101",
)  # fmt: skip
REFUSED = {
    "unspecified": ("0.0.0.0", "0.1.2.3", "::"),
    "loopback": ("127.0.0.1", "127.255.255.255", "::1"),
    "private": ("10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "fc00::1", "fd12::1"),
    "link-local": ("169.254.169.254", "fe80::1", "fe80::1%eth0", "2606:4700::1%eth0"),
    "site-local": ("fec0::1",),
    "shared": ("100.64.0.1", "100.127.255.255"),
    "documentation": ("192.0.2.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "3fff::1"),
    "benchmarking": ("198.18.0.1", "198.19.255.255", "2001:2::1"),
    "protocol": ("192.0.0.8", "192.0.0.170", "192.0.0.9", "192.88.99.1"),
    "host of a cloud": ("168.63.129.16",),
    "multicast": ("224.0.0.1", "232.1.1.1", "239.255.255.255", "ff02::1", "ff0e::1"),
    "reserved": ("240.0.0.1", "255.255.255.255", "4000::1", "5f00::1"),
    "mapped": (
        "::ffff:10.0.0.1",
        "::ffff:169.254.169.254",
        "::ffff:0:0",
        "::10.0.0.1",
        "::ffff:168.63.129.16",
    ),
    "nat64": (
        "64:ff9b::a00:1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b::a83f:8110",
    ),
    "tunnels": ("2002:a00:1::1", "2002:101:101::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2"),
    "discard": ("100::1",),
    "no address": ("", "docs.dev", "127.1", "010.0.0.1"),
}


@pytest.mark.parametrize("address", ADDRESSES_PUBLIC)
def test_the_public_internet_is_reached(address):
    assert is_public(address)


@pytest.mark.parametrize("address", [one for group in REFUSED.values() for one in group])
def test_nothing_else_is(address):
    assert not is_public(address)


def networks():
    """Return every network of the policy with addresses at its edges and just outside of it."""
    for outer, reserved in OUTSIDE.items():
        for text in (outer, *reserved):
            network = ip_network(text)
            first, last = int(network[0]), int(network[-1])
            for number in (first - 1, first, first + 1, last - 1, last, last + 1):
                if 0 <= number < 1 << network.max_prefixlen:
                    yield str(type(network[0])(number))


def is_open(address):
    parsed = ip_address(address)
    return any(
        parsed in ip_network(outer) and not any(parsed in ip_network(each) for each in reserved)
        for outer, reserved in OUTSIDE.items()
    )


PLAIN = [
    one for group in (ADDRESSES_PUBLIC, *REFUSED.values()) for one in group
    if one not in REFUSED["no address"] and "%" not in one and not one.startswith(("::ffff", "64:"))
]  # fmt: skip
"""Without the forms that the gateway translates to IPv4 before it dials."""


@pytest.mark.parametrize("address", sorted({*PLAIN, *networks()}))
def test_the_network_policy_opens_what_the_gateway_dials(address):
    assert is_open(address) == is_public(address)


INSIDE = (
    "10.96.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "fc00::1", "fd12::1", "::ffff:10.0.0.1",
    "64:ff9b::a00:1", *ADDRESSES_PUBLIC,
)  # fmt: skip
METADATA = ("100.100.100.200", "fd00:ec2::254", "fd20:ce::254", "::ffff:100.100.100.200")
NEVER_INSIDE = (
    *METADATA,
    *(
        address
        for kind, addresses in REFUSED.items()
        if kind not in {"private", "shared", "mapped", "nat64"}
        for address in addresses
    ),
    "::ffff:169.254.169.254", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "fd12::1%eth0",
    "::ffff:168.63.129.16", "64:ff9b::a83f:8110",
)  # fmt: skip


@pytest.mark.parametrize("address", INSIDE)
def test_a_listed_provider_may_be_in_the_cluster(address):
    assert is_inside(address)


@pytest.mark.parametrize("address", NEVER_INSIDE)
def test_no_list_leads_to_a_node_or_its_metadata(address):
    assert not is_inside(address)
