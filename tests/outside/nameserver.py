"""The authoritative name server outside: fixed names, scripted answers, a log of every question.

A name ``<marker>.<script>.answers.allowed.test`` answers as its script says, by letters: each
stands for an address of ADDRESSES, letters side by side for one answer with several addresses,
and a hyphen parts the answers to successive questions for the same name and type; the last one
stays. So ``p-l`` is public first and link-local from then on, ``ps`` is both in one answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import struct
from collections import defaultdict
from typing import NamedTuple

from outside import journal, places

A, CNAME, SOA, TXT, AAAA = 1, 5, 6, 16, 28
TYPE_NAMES = {A: "A", CNAME: "CNAME", SOA: "SOA", TXT: "TXT", AAAA: "AAAA"}
NO_ERROR, SERVER_FAILURE, NO_SUCH_NAME, REFUSED = 0, 2, 3, 5
UDP_BYTES = 512
TTL = 0

ADDRESSES = {
    "p": places.WEB,
    "q": places.SECOND,
    "u": places.UNREACHABLE,
    "d": places.TEST_NETS[0],
    "l": places.METADATA,
    "n": "172.29.0.2",  # the node
    "s": "10.96.0.1",  # the API server's service
    "o": "127.0.0.1",
    "z": "0.0.0.0",  # noqa: S104
    "6": "::1",
    "m": "::ffff:169.254.169.254",
    "f": "fd00::1",
    "k": "fe80::1",
    "x": "64:ff9b::a9fe:a9fe",
}
"""What a letter of a script stands for; the last five are answers to questions for AAAA."""

FIXED = {
    "allowed.test": (places.WEB,),
    "other.test": (places.WEB,),
    places.DOCS: (places.WEB,),
    "www.allowed.test": (places.WEB,),
    places.FILES: (places.WEB,),
    places.PLAIN: (places.ORIGIN,),
    "gone.allowed.test": (places.UNREACHABLE,),
    "silent.allowed.test": (places.SILENT,),
    "second-try.allowed.test": (places.UNREACHABLE, places.WEB),
    "empty.allowed.test": (),
    "many.allowed.test": tuple(f"192.31.196.{number}" for number in range(100, 160)),
    places.INSIDE: (places.CLUSTER_SERVICE,),
    places.OPENAI: (places.PROVIDER,),
    places.ANTHROPIC: (places.PROVIDER,),
}
ALIASES = {"alias.allowed.test": places.DOCS, "inward.allowed.test": f"alias.l.{places.ANSWERS}"}
BROKEN = "broken.allowed.test"
"""The server fails."""
IGNORED = "ignored.allowed.test"
"""The server does not answer."""
ZONES = ("allowed.test", "other.test", places.ATTACKER_ZONE, "openai.com", "anthropic.com")


class Question(NamedTuple):
    """What was asked: the name in lower case, without a dot at its end."""

    number: int
    name: str
    type: int
    wire: bytes


class Answer(NamedTuple):
    """What is said: a code, and records as name, type and data."""

    code: int
    records: tuple[tuple[str, int, bytes], ...] = ()


class Zone:
    """All names, with the count of questions that the scripts need."""

    def __init__(self) -> None:
        self._asked: dict[tuple[str, int], int] = defaultdict(int)

    def answer(self, question: Question) -> Answer | None:
        """Return the answer, or None where none is sent."""
        name = question.name
        if name == IGNORED:
            return None
        if name == BROKEN:
            return Answer(SERVER_FAILURE)
        if name in ALIASES:
            rest = self.answer(question._replace(name=ALIASES[name])) or Answer(NO_ERROR)
            return Answer(rest.code, ((name, CNAME, encode(ALIASES[name])), *rest.records))
        addresses = self._addresses(question)
        if addresses is None:
            known = any(name == zone or name.endswith(f".{zone}") for zone in ZONES)
            return Answer(NO_SUCH_NAME if known else REFUSED)
        return Answer(NO_ERROR, records(question, addresses))

    def _addresses(self, question: Question) -> tuple[str, ...] | None:
        name = question.name
        if name.endswith(f".{places.ANSWERS}"):
            return self._scripted(question)
        if name == places.ATTACKER_ZONE or name.endswith(f".{places.ATTACKER_ZONE}"):
            return (places.ATTACKER,)
        return FIXED.get(name)

    def _scripted(self, question: Question) -> tuple[str, ...] | None:
        steps = question.name.removesuffix(f".{places.ANSWERS}").split(".")[-1].split("-")
        if not all(letter in ADDRESSES for step in steps for letter in step):
            return None
        step = min(self._asked[question.name, question.type], len(steps) - 1)
        self._asked[question.name, question.type] += 1
        return tuple(ADDRESSES[letter] for letter in steps[step])


def records(question: Question, addresses: tuple[str, ...]) -> tuple[tuple[str, int, bytes], ...]:
    """Return the addresses of the kind that was asked for."""
    packed = [ipaddress.ip_address(address) for address in addresses]
    version = {A: 4, AAAA: 6}.get(question.type)
    return tuple(
        (question.name, question.type, each.packed) for each in packed if each.version == version
    )


def encode(name: str) -> bytes:
    """Return a name as it stands in a message."""
    return b"".join(bytes([len(label)]) + label.encode() for label in name.split(".")) + b"\0"


def parse(message: bytes) -> Question:
    """Return the first question of a message.

    Raises:
        ValueError: It is no question.
    """
    if len(message) < 17 or message[2] & 0x80 or message[4:6] == b"\0\0":
        raise ValueError("no question")
    labels, at = [], 12
    try:
        while size := message[at]:
            labels.append(message[at + 1 : at + 1 + size].decode("latin-1").lower())
            at += size + 1
        (kind,) = struct.unpack_from("!H", message, at + 1)
    except (IndexError, struct.error) as error:
        raise ValueError("cut short") from error
    number = int.from_bytes(message[:2], "big")
    return Question(number, ".".join(labels), kind, message[12 : at + 5])


def render(question: Question, answer: Answer, limit: int) -> bytes:
    """Return the answer's message; without records and with the mark for TCP where too long."""
    body = b"".join(
        encode(name) + struct.pack("!HHIH", kind, 1, TTL, len(data)) + data
        for name, kind, data in answer.records
    )
    is_cut = 12 + len(question.wire) + len(body) > limit
    flags = 0x8400 | (0x0200 if is_cut else 0) | answer.code
    count = 0 if is_cut else len(answer.records)
    head = struct.pack("!HHHHHH", question.number, flags, 1, count, 0, 0)
    return head + question.wire + (b"" if is_cut else body)


def reply(zone: Zone, message: bytes, peer: str, limit: int) -> bytes | None:
    """Return what is sent for a message, and write the question down."""
    try:
        question = parse(message)
    except ValueError:
        return None
    answer = zone.answer(question)
    journal.write(
        "dns",
        peer=peer,
        name=question.name,
        type=TYPE_NAMES.get(question.type, str(question.type)),
        transport="udp" if limit == UDP_BYTES else "tcp",
        answers=[]
        if answer is None
        else [_readable(kind, data) for _, kind, data in answer.records],
    )
    return None if answer is None else render(question, answer, limit)


def _readable(kind: int, data: bytes) -> str:
    return "alias" if kind == CNAME else str(ipaddress.ip_address(data))


class Datagrams(asyncio.DatagramProtocol):
    """UDP."""

    def __init__(self, zone: Zone) -> None:
        self._zone = zone

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        """Keep the transport."""
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Answer one question."""
        sent = reply(self._zone, data, addr[0], UDP_BYTES)
        if sent is not None:
            self._transport.sendto(sent, addr)


async def serve_stream(
    zone: Zone, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    """Answer the questions of one TCP connection."""
    with contextlib.suppress(asyncio.IncompleteReadError, OSError), contextlib.closing(writer):
        while True:
            size = int.from_bytes(await reader.readexactly(2), "big")
            message = await reader.readexactly(size)
            peer = writer.get_extra_info("peername")[0]
            sent = reply(zone, message, peer, 65535)
            if sent is None:
                return
            writer.write(len(sent).to_bytes(2, "big") + sent)
            await writer.drain()


async def start(address: str = places.RESOLVER, port: int = 53) -> None:
    """Listen, over UDP and TCP."""
    zone = Zone()
    loop = asyncio.get_running_loop()
    await loop.create_datagram_endpoint(
        lambda: Datagrams(zone), local_addr=(address, port), reuse_port=True
    )
    await asyncio.start_server(
        lambda reader, writer: serve_stream(zone, reader, writer), address, port, reuse_port=True
    )
