"""Plain listeners: the lenient origin, and those that catch what should never have been dialled."""

from __future__ import annotations

import asyncio
import contextlib
import functools

from outside import journal

HEAD_BYTES = 64 * 1024
FIRST_SECONDS = 5.0
"""How long a caught connection may take to say something."""
CAUGHT = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\nConnection: close\r\n\r\noutside\n"

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def serve_origin(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read requests as leniently as any server does, and write each of them down.

    A bare line feed ends a line, a name is cut at its blanks, and of several lengths the last
    wins: what this server believes to be a second request, some server would.
    """
    peer = writer.get_extra_info("peername")[0]
    number = 0
    with contextlib.suppress(OSError, EOFError, ValueError, asyncio.LimitOverrunError):
        while True:
            head = await _head(reader)
            body = await _body(reader, head)
            number += 1
            text = head.decode("latin-1")
            journal.write(
                "origin",
                peer=peer,
                request=number,
                line=text.split("\n", 1)[0].strip(),
                head=text,
                body=body[:4096].decode("latin-1"),
            )
            said = b"request %d\n" % number
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))
            await writer.drain()
    writer.close()


async def _head(reader: asyncio.StreamReader) -> bytes:
    lines = b""
    while not lines.endswith((b"\n\r\n", b"\n\n")):
        line = await reader.readline()
        if not line:
            raise EOFError
        lines += line
        if lines in {b"\r\n", b"\n"}:
            lines = b""
        if len(lines) > HEAD_BYTES:
            raise ValueError("too long")
    return lines


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    fields: dict[bytes, bytes] = {}
    for line in head.splitlines()[1:]:
        name, _, value = line.partition(b":")
        fields[name.strip().lower()] = value.strip().lower()
    if b"chunked" in fields.get(b"transfer-encoding", b""):
        return await _chunks(reader)
    return await reader.readexactly(int(fields.get(b"content-length", b"0")))


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readline()).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readline()
    while (await reader.readline()).strip():
        pass
    return body


async def catch(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Write a connection down, with the first bytes that come over it."""
    peer, local = writer.get_extra_info("peername"), writer.get_extra_info("sockname")
    said = b""
    with contextlib.suppress(OSError, TimeoutError), contextlib.closing(writer):
        journal.write("connect", peer=peer[0], address=local[0], port=local[1], protocol="tcp")
        async with asyncio.timeout(FIRST_SECONDS):
            said = await reader.read(4096)
        if said:
            text = said.decode("latin-1")
            journal.write("connect", peer=peer[0], address=local[0], port=local[1], said=text)
        writer.write(CAUGHT)
        await writer.drain()


class CaughtDatagrams(asyncio.DatagramProtocol):
    """Writes datagrams down and answers them."""

    def __init__(self, port: int) -> None:
        self._port = port

    def connection_made(self, transport: asyncio.DatagramTransport) -> None:  # type: ignore[override]
        """Keep the transport."""
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Write one datagram down."""
        text = data[:4096].decode("latin-1")
        journal.write("connect", peer=addr[0], port=self._port, protocol="udp", said=text)
        self._transport.sendto(b"outside\n", addr)


async def start_origin(address: str) -> None:
    """Listen on port 80 of an address."""
    await asyncio.start_server(serve_origin, address, 80, reuse_port=True)


async def start_catching(address: str, ports: tuple[int, ...]) -> None:
    """Catch what comes to these ports, over TCP and UDP."""
    loop = asyncio.get_running_loop()
    for port in ports:
        await asyncio.start_server(catch, address, port, reuse_port=True)
        await loop.create_datagram_endpoint(
            functools.partial(CaughtDatagrams, port), local_addr=(address, port), reuse_port=True
        )
