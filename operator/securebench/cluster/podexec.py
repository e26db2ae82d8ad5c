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


class ExecTarget(NamedTuple):
    """The container that a command runs in."""

    pod: str
    container: str


class PodStreams(NamedTuple):
    """Standard streams of a command.

    Args:
        stdin: Input; closed when the iterator ends. None for no stdin.
        stdout: Awaited for every chunk, so that a slow reader applies back-pressure.
        stderr: The same for stderr.
    """

    stdin: Source | None
    stdout: Sink
    stderr: Sink


class PodExecResult(NamedTuple):
    """Exit code of a command, and the last 64 KiB of its stderr."""

    exit_code: int
    stderr: bytes


async def exec_stream(
    cluster: ApiCluster, target: ExecTarget, argv: Sequence[str], streams: PodStreams
) -> int:
    """Execute a command in a container and return its exit code.

    A command with stdin must read all of it. If it exits earlier, the node's stream blocks and the
    exit code never arrives (seen with Kubernetes 1.36 and containerd 2.4, also with kubectl), so
    bound the call with ``asyncio.timeout``.

    Raises:
        TransientClusterError: No connection, or it ended before the exit code arrived; the command
            may have run, or still be running.
        PermanentClusterError: The API server or the container runtime rejected the request.
    """
    query = [("command", word) for word in argv]
    query += [("container", target.container), ("stdout", "true"), ("stderr", "true")]
    if streams.stdin is not None:
        query.append(("stdin", "true"))
    async with cluster.websocket(f"pods/{target.pod}/exec", query, _PROTOCOL) as socket:
        if socket.protocol != _PROTOCOL:
            raise PermanentClusterError(
                f"the API server does not support {_PROTOCOL}; Kubernetes 1.30 or later is needed",
                status=101,
            )
        return await _both_ways(socket, streams)


async def run_exec(
    cluster: ApiCluster,
    pod: str,
    container: str,
    argv: Sequence[str],
    stdin: Source | None,
    stdout: Sink,
) -> PodExecResult:
    """Execute a command like ``exec_stream``, and keep the tail of its stderr."""
    tail = bytearray()

    async def keep(piece: bytes) -> None:
        tail.extend(piece)
        del tail[:-_STDERR_TAIL_BYTES]

    streams = PodStreams(stdin, stdout, keep)
    code = await exec_stream(cluster, ExecTarget(pod, container), argv, streams)
    return PodExecResult(code, bytes(tail))


async def _both_ways(socket: aiohttp.ClientWebSocketResponse, streams: PodStreams) -> int:
    try:
        async with asyncio.TaskGroup() as group:
            sender = group.create_task(_send(socket, streams.stdin))
            code = await _receive(socket, streams)
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


async def _receive(socket: aiohttp.ClientWebSocketResponse, streams: PodStreams) -> int:
    """Forward the output until the exit code arrives.

    The server sends the status last, after both streams have ended.
    """
    sinks: Mapping[int, Sink] = {_STDOUT: streams.stdout, _STDERR: streams.stderr}
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
