"""Commands in containers, with binary streams and back-pressure.

The subprotocol is v5.channel.k8s.io (API servers since 1.30): unlike v4 it can close stdin while
the command goes on, without which a tar cannot be sent. Every message starts with its channel.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple, cast

import aiohttp

from securebench.cluster.wire import classify, decode
from securebench.core.errors import PermanentClusterError, TransientClusterError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from securebench.cluster.client import ApiCluster
    from securebench.cluster.port import Raw

Source = AsyncIterator[bytes]
Sink = Callable[[bytes], Awaitable[None]]

_PROTOCOL = "v5.channel.k8s.io"
_STDIN, _STDOUT, _STDERR, _ERROR = range(4)
_CLOSE = 255
_FRAME_BYTES = 32 * 1024
"""Of stdin in one message, as much as kubectl sends."""

_STDERR_TAIL_BYTES = 64 * 1024


class ExecTarget(NamedTuple):
    """Where a command runs."""

    pod: str
    container: str


class PodStreams(NamedTuple):
    """What a command reads and where its output goes.

    Args:
        stdin: Its input, ended by the iterator's end; None for no stdin.
        stdout: Awaited for every piece, so that a slow reader slows the command down.
        stderr: The same for stderr.
    """

    stdin: Source | None
    stdout: Sink
    stderr: Sink


class PodExecResult(NamedTuple):
    """How a command ended.

    Args:
        exit_code: Its exit code.
        stderr: The last 64 KiB of its stderr.
    """

    exit_code: int
    stderr: bytes


async def exec_stream(
    cluster: ApiCluster, target: ExecTarget, argv: Sequence[str], streams: PodStreams
) -> int:
    """Run a command in a container and return its exit code.

    A command with stdin must read it to its end. One that ends before leaves the node's stream
    blocked, and then the exit code never comes (seen with Kubernetes 1.36 and containerd 2.4, and
    with kubectl too): bound the call with ``asyncio.timeout``.

    Raises:
        TransientClusterError: No connection, or it ended before the exit code came; the command
            may have run or still run.
        PermanentClusterError: The server or the container runtime refused.
    """
    query = [("command", word) for word in argv]
    query += [("container", target.container), ("stdout", "true"), ("stderr", "true")]
    if streams.stdin is not None:
        query.append(("stdin", "true"))
    async with cluster.websocket(f"pods/{target.pod}/exec", query, _PROTOCOL) as socket:
        if socket.protocol != _PROTOCOL:
            raise PermanentClusterError(
                f"the API server does not speak {_PROTOCOL}; 1.30 or later is needed",
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
    """Run a command as ``exec_stream`` does and keep the end of its stderr."""
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
    """Send stdin and close it. A command that ends early ends this, which is no failure."""
    if stdin is None:
        return
    async for piece in stdin:
        for start in range(0, len(piece), _FRAME_BYTES):
            if not await _sent(socket, bytes([_STDIN]) + piece[start : start + _FRAME_BYTES]):
                return
    await _sent(socket, bytes([_CLOSE, _STDIN]))


async def _sent(socket: aiohttp.ClientWebSocketResponse, message: bytes) -> bool:
    """Send one message; False when the other side is gone, which the receiver judges."""
    try:
        await socket.send_bytes(message)
    except (aiohttp.ClientError, OSError):
        return False
    return True


async def _receive(socket: aiohttp.ClientWebSocketResponse, streams: PodStreams) -> int:
    """Hand on the output until the exit code comes.

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
    """Return the exit code that the last message carries.

    Args:
        status: A Status object.

    Raises:
        PermanentClusterError: The command could not be started.
        TransientClusterError: The answer cannot be read.
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
            f"the command could not be started: {answer.get('message')}", status=500
        )
    raise classify(500, answer)
