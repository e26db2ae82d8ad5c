"""Byte streams with back-pressure, and the pump between two of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Protocol, Self

from securebench.gateway.net.causes import Cause, CutError

CHUNK_BYTES = 64 * 1024
"""Most that one read returns, and what a stream holds back before it stops reading."""

UNREAD_SECONDS = 2.0
"""How long the rest of an unread request is taken in, so that the agent can read its answer."""
LINGER_SECONDS = 10.0
"""How long a closed connection may take to send its last bytes."""


class Stream(Protocol):
    """Both directions of one connection; OSError when it broke."""

    async def read(self, limit: int = CHUNK_BYTES) -> bytes:
        """Return 1 to ``limit`` bytes, or nothing when the other side has ended."""
        ...

    async def write(self, data: bytes) -> None:
        """Return when the data is on its way and little of it waits here."""
        ...

    async def end(self) -> None:
        """Say that nothing more will be written; reading goes on. TLS has no such state."""
        ...

    async def close(self) -> None:
        """Give both directions up; never fails, and is possible more than once."""
        ...


class Traffic(Protocol):
    """What counts the bytes of a launch."""

    def count_up(self, size_bytes: int) -> None:
        """Count what came from the agent.

        Raises:
            CutError: It is more than the launch may send and receive.
        """
        ...

    def count_down(self, size_bytes: int) -> None:
        """Count what goes to the agent.

        Raises:
            CutError: It is more than the launch may send and receive.
        """
        ...


class SocketStream:
    """A stream of asyncio.

    Args:
        reader: Bytes that come in.
        writer: Where bytes go; its transport decides on half-closing.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        writer.transport.set_write_buffer_limits(high=CHUNK_BYTES)

    async def read(self, limit: int = CHUNK_BYTES) -> bytes:
        """Return 1 to ``limit`` bytes, or nothing at the end."""
        return await self._reader.read(limit)

    async def write(self, data: bytes) -> None:
        """Write and wait until little is left to send."""
        self._writer.write(data)
        await self._writer.drain()

    async def end(self) -> None:
        """Half-close where the transport can."""
        if self._writer.can_write_eof():
            self._writer.write_eof()

    async def close(self) -> None:
        """Close; what was written is still sent while the other side takes it, not for long."""
        transport = self._writer.transport
        if not transport.is_closing():
            self._writer.close()
            asyncio.get_running_loop().call_later(LINGER_SECONDS, transport.abort)


class AgentStream:
    """The agent's side of a connection; every byte counts against its launch.

    Args:
        stream: The connection after the preface.
        traffic: Counts for the launch.
    """

    def __init__(self, stream: Stream, traffic: Traffic) -> None:
        self._stream = stream
        self._traffic = traffic
        self._ahead = b""
        self.bytes_up = 0
        self.bytes_down = 0

    def unread(self, data: bytes) -> None:
        """Let the next read begin with bytes that were read before; they are not counted again."""
        self._ahead = data + self._ahead

    async def read(self, limit: int = CHUNK_BYTES) -> bytes:
        """Return 1 to ``limit`` bytes of the agent, or nothing at the end.

        Raises:
            CutError: The launch's byte limit is reached.
        """
        if self._ahead:
            data, self._ahead = self._ahead[:limit], self._ahead[limit:]
            return data
        data = await self._stream.read(limit)
        self.bytes_up += len(data)
        self._traffic.count_up(len(data))
        return data

    async def write(self, data: bytes) -> None:
        """Write to the agent.

        Raises:
            CutError: The launch's byte limit is reached; nothing was written.
        """
        self._traffic.count_down(len(data))
        self.bytes_down += len(data)
        await self._stream.write(data)

    async def end(self) -> None:
        """Half-close towards the agent."""
        await self._stream.end()

    async def close(self) -> None:
        """Close the agent's connection."""
        await self._stream.close()


async def linger(agent: AgentStream) -> None:
    """End orderly: a connection that is closed on unread bytes loses the answer before them."""
    with suppress(OSError, CutError, TimeoutError):
        async with asyncio.timeout(UNREAD_SECONDS):
            await agent.end()
            while await agent.read():
                pass


class IdleLimit:
    """Cuts what runs inside it when ``touch`` was not called for too long.

    Use as ``async with IdleLimit(seconds) as idle``; leaving it by the limit raises CutError.

    Args:
        seconds: Longest silence.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timeout = asyncio.timeout(seconds)

    async def __aenter__(self) -> Self:
        await self._timeout.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            await self._timeout.__aexit__(*error)  # type: ignore[arg-type]
        except TimeoutError:
            raise CutError(
                f"The connection was idle for {self._seconds:g} seconds.", Cause.IDLE
            ) from None

    def touch(self) -> None:
        """Begin to wait anew."""
        if not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._seconds)


async def pump(agent: Stream, outside: Stream, idle_seconds: float) -> None:
    """Copy both ways until both sides have ended; an end is passed on as a half-close.

    Raises:
        CutError: No byte came for so long, or the byte limit is reached.
        OSError: One side broke the connection.
    """
    async with IdleLimit(idle_seconds) as idle:
        await _both(_copy(agent, outside, idle.touch), _copy(outside, agent, idle.touch))


async def _copy(source: Stream, target: Stream, touch: Callable[[], None]) -> None:
    while data := await source.read():
        touch()
        await target.write(data)
        touch()
    with suppress(OSError):
        await target.end()


async def _both(*copies: Coroutine[None, None, None]) -> None:
    tasks = [asyncio.ensure_future(copy) for copy in copies]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
