"""Byte streams with back-pressure, and bidirectional copying between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Protocol, Self

from securebench.gateway.decisions import Cause, CutError
from securebench.sizes import KIB

CHUNK_BYTES = 64 * KIB
"""Maximum size of one read, and of a stream's read buffer."""

_UNREAD_SECONDS = 2.0
"""How long the rest of a rejected request is drained, so that the agent can read the response."""
_LINGER_SECONDS = 10.0
"""How long a closed connection may take to send buffered data."""


class Stream(Protocol):
    """A bidirectional connection; its methods raise OSError when it breaks."""

    async def read(self, limit: int = CHUNK_BYTES) -> bytes:
        """Return 1 to ``limit`` bytes, or none at end of file."""
        ...

    async def write(self, data: bytes) -> None:
        """Send data; return once little of it is still buffered here."""
        ...

    async def end(self) -> None:
        """Half-close: no more writes, but reads continue. Not available with TLS."""
        ...

    async def close(self) -> None:
        """Close both directions; idempotent, never raises."""
        ...


class Traffic(Protocol):
    """Counts the bytes of a launch against its limit."""

    def count_up(self, size_bytes: int) -> None:
        """Count bytes received from the agent.

        Raises:
            CutError: The launch's byte limit is exceeded.
        """
        ...

    def count_down(self, size_bytes: int) -> None:
        """Count bytes to be sent to the agent.

        Raises:
            CutError: The launch's byte limit is exceeded.
        """
        ...


class SocketStream:
    """A stream on top of asyncio's reader and writer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        writer.transport.set_write_buffer_limits(high=CHUNK_BYTES)

    async def read(self, limit: int = CHUNK_BYTES) -> bytes:
        """Return 1 to ``limit`` bytes, or none at end of file."""
        return await self._reader.read(limit)

    async def write(self, data: bytes) -> None:
        """Write, and wait until little is still buffered."""
        self._writer.write(data)
        await self._writer.drain()

    async def end(self) -> None:
        """Half-close if the transport supports it."""
        if self._writer.can_write_eof():
            self._writer.write_eof()

    async def close(self) -> None:
        """Close; buffered data is still sent for at most ``_LINGER_SECONDS``."""
        transport = self._writer.transport
        if not transport.is_closing():
            self._writer.close()
            asyncio.get_running_loop().call_later(_LINGER_SECONDS, transport.abort)


class AgentStream:
    """The agent's connection; every byte counts against the limit of its launch.

    Args:
        stream: Positioned after the preface.
        traffic: Counter of the launch.
    """

    def __init__(self, stream: Stream, traffic: Traffic) -> None:
        self._stream = stream
        self._traffic = traffic
        self._ahead = b""
        self.bytes_up = 0
        self.bytes_down = 0

    def unread(self, data: bytes) -> None:
        """Push bytes back, to be returned by the next read; they are not counted again."""
        self._ahead = data + self._ahead

    async def read(self, limit: int = CHUNK_BYTES) -> bytes:
        """Return 1 to ``limit`` bytes from the agent, or none at end of file.

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
    """Drain before closing: closing with unread data resets the connection, losing the response."""
    with suppress(OSError, CutError, TimeoutError):
        async with asyncio.timeout(_UNREAD_SECONDS):
            await agent.end()
            while await agent.read():
                pass


async def while_there(agent: AgentStream, work: Coroutine[None, None, None]) -> bool:
    """Run the work until it ends or the agent disconnects; return whether it ended.

    Raises:
        CutError: The agent sent data meanwhile that exceeds the launch's byte limit.
        Exception: Whatever the work raises.
    """
    watching = asyncio.ensure_future(_has_left(agent))
    working = asyncio.ensure_future(work)
    both = {watching, working}
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        if not working.done() and watching.result():
            return False
        await working
    finally:
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)
    return True


async def _has_left(agent: AgentStream) -> bool:
    """Wait for the agent: return True if it closed the connection, False if it sent data."""
    try:
        data = await agent.read()
    except OSError:
        return True
    agent.unread(data)
    return not data


class IdleLimit:
    """Cancels its body if ``touch`` is not called for ``seconds``, and raises CutError.

    Use as ``async with IdleLimit(seconds) as idle``.
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
        """Reset the timer."""
        if not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time() + self._seconds)


async def pump(agent: Stream, outside: Stream, idle_seconds: float) -> None:
    """Copy in both directions until both sides have ended; an end is passed on as a half-close.

    Raises:
        CutError: The connection was idle for too long, or the byte limit is reached.
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
