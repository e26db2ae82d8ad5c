"""Execute commands in containers, with binary streams and back-pressure.

The subprotocol is v5.channel.k8s.io (Kubernetes 1.30): unlike v4 it can close stdin while the
command continues, which sending a tar requires. The first byte of each message is its channel.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, NamedTuple, cast

import aiohttp

from securebench.cluster.client import classify, decode
from securebench.errors import PermanentClusterError, TransientClusterError
from securebench.sizes import KIB

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from securebench.cluster.client import ApiCluster
    from securebench.cluster.port import Raw

Source = AsyncIterator[bytes]
Sink = Callable[[bytes], Awaitable[None]]

_PROTOCOL = "v5.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _ERROR = range(4)
_CLOSE = 255
_FRAME_BYTES = 32 * KIB
"""Maximum stdin data per message, the same as kubectl's."""

_STDERR_TAIL_BYTES = 64 * KIB


class PodExecResult(NamedTuple):
    """Exit code of a command, and the last 64 KiB of its stderr."""

    exit_code: int
    stderr: bytes


async def run_exec(
    cluster: ApiCluster,
    pod: str,
    container: str,
    argv: Sequence[str],
    stdin: Source | None,
    stdout: Sink,
) -> PodExecResult:
    """Execute a command in a container, and keep the tail of its stderr.

    A command with stdin must read all of it. If it exits earlier, the node's stream blocks and the
    exit code never arrives (seen with Kubernetes 1.36 and containerd 2.4, also with kubectl), so
    bound the call with ``asyncio.timeout``.

    Args:
        stdin: Input; closed when the iterator ends. None for no stdin.
        stdout: Awaited for every chunk, so that a slow reader applies back-pressure.

    Raises:
        TransientClusterError: No connection, or it ended before the exit code arrived; the command
            may have run, or still be running.
        PermanentClusterError: The API server or the container runtime rejected the request.
    """
    tail = bytearray()

    async def keep(piece: bytes) -> None:
        tail.extend(piece)
        del tail[:-_STDERR_TAIL_BYTES]

    query = [("command", word) for word in argv]
    query += [("container", container), ("stdout", "true"), ("stderr", "true")]
    if stdin is not None:
        query.append(("stdin", "true"))
    async with cluster.websocket(f"pods/{pod}/exec", query, _PROTOCOL) as socket:
        if socket.protocol != _PROTOCOL:
            raise PermanentClusterError(
                f"the API server does not support {_PROTOCOL}; Kubernetes 1.30 or later is needed",
                status=101,
            )
        code = await _both_ways(socket, stdin, {_STDOUT: stdout, _STDERR: keep})
    return PodExecResult(code, bytes(tail))


async def _both_ways(
    socket: aiohttp.ClientWebSocketResponse, stdin: Source | None, sinks: Mapping[int, Sink]
) -> int:
    try:
        async with asyncio.TaskGroup() as group:
            sender = group.create_task(_send(socket, stdin))
            code = await _receive(socket, sinks)
            sender.cancel()
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return code


async def _send(socket: aiohttp.ClientWebSocketResponse, stdin: Source | None) -> None:
    """Send stdin and close it; if the command exits early, stop without an error."""
    if stdin is None:
        return
    async for piece in stdin:
        for start in range(0, len(piece), _FRAME_BYTES):
            if not await _sent(socket, bytes([_STDIN]) + piece[start : start + _FRAME_BYTES]):
                return
    await _sent(socket, bytes([_CLOSE, _STDIN]))


async def _sent(socket: aiohttp.ClientWebSocketResponse, message: bytes) -> bool:
    """Send one message; False if the peer is gone, which the receiver then reports."""
    try:
        await socket.send_bytes(message)
    except (aiohttp.ClientError, OSError):
        return False
    return True


async def _receive(socket: aiohttp.ClientWebSocketResponse, sinks: Mapping[int, Sink]) -> int:
    """Forward the output until the exit code arrives.

    The server sends the status last, after both streams have ended.
    """
    while True:
        message = await socket.receive()
        if message.type is not aiohttp.WSMsgType.BINARY:
            raise TransientClusterError("the connection ended before the command's exit code came")
        data = cast("bytes", message.data)
        channel, payload = data[0] if data else _CLOSE, data[1:]
        if channel == _ERROR:
            return exit_code(payload)
        if payload and channel in sinks:
            await sinks[channel](payload)


def exit_code(status: bytes) -> int:
    """Return the exit code from the Status object in the last message.

    Raises:
        PermanentClusterError: The command could not be started.
        TransientClusterError: The message cannot be parsed.
    """
    answer = decode(status)
    if answer.get("status") == "Success":
        return 0
    if answer.get("reason") == "NonZeroExitCode":
        details = cast("Raw", answer.get("details", {}))
        for cause in cast("Sequence[Mapping[str, str]]", details.get("causes", ())):
            if cause.get("reason") == "ExitCode":
                return int(cause["message"])
    if answer.get("reason") == "InternalError":
        raise PermanentClusterError(
            f"the command could not be started: {answer.get('message')}",
            status=HTTPStatus.INTERNAL_SERVER_ERROR,
        )
    raise classify(HTTPStatus.INTERNAL_SERVER_ERROR, answer)
