import asyncio
import json
from collections import deque
from types import SimpleNamespace

import aiohttp
import pytest

from securebench.cluster.podexec import exit_code
from securebench.errors import PermanentClusterError, TransientClusterError
from support.exec_socket import SUCCESS, Socket, execute


def failure(code):
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return json.dumps(
        {"status": "Failure", "reason": "NonZeroExitCode", "details": {"causes": causes}}
    ).encode()


async def pieces(*parts):
    for part in parts:
        yield part


async def test_output_by_channel_and_exit_code():
    socket = Socket(b"\x01ab", b"\x02oops", b"\x01", b"\x01c", b"\x03" + failure(7))

    result, out, opened = await execute(socket, argv=["sh", "-c", "x y"])

    assert (result.exit_code, result.stderr, out) == (7, b"oops", b"abc")
    path, query, protocol = opened
    assert path == "pods/pod-1/exec"
    assert query == [
        ("command", "sh"),
        ("command", "-c"),
        ("command", "x y"),
        ("container", "operator"),
        ("stdout", "true"),
        ("stderr", "true"),
    ]
    assert protocol == "v5.channel.k8s.io"


async def test_stdin_is_sent_in_frames_and_then_closed():
    socket = Socket()
    waiting = deque([b"\x03" + SUCCESS])

    async def receive():
        await socket.stdin_closed.wait()
        return SimpleNamespace(type=aiohttp.WSMsgType.BINARY, data=waiting.popleft())

    socket.receive = receive
    result, _, opened = await execute(socket, stdin=pieces(b"a" * 40_000, b"", b"b"))

    assert result.exit_code == 0
    assert ("stdin", "true") in opened[1]
    assert [len(frame) for frame in socket.sent] == [32_769, 7_233, 2, 2]
    assert {frame[0] for frame in socket.sent[:-1]} == {0}
    assert b"".join(frame[1:] for frame in socket.sent[:-1]) == b"a" * 40_000 + b"b"


async def test_a_command_that_ends_before_its_stdin_is_no_failure():
    async def endless():
        while True:
            yield b"x"
            await asyncio.sleep(0)

    result, _, _ = await execute(Socket(b"\x03" + failure(3)), stdin=endless())

    assert result.exit_code == 3


async def test_a_broken_stdin_leaves_the_verdict_to_the_receiver():
    result, _, _ = await execute(Socket(b"\x03" + SUCCESS, breaks=True), stdin=pieces(b"x"))

    assert result.exit_code == 0


async def test_a_failing_source_ends_the_command():
    async def source():
        yield b"x"
        raise FileNotFoundError("pack.tar")

    socket = Socket()

    async def never():
        await asyncio.Event().wait()

    socket.receive = never
    with pytest.raises(FileNotFoundError):
        await execute(socket, stdin=source())


async def test_a_connection_without_an_exit_code():
    with pytest.raises(TransientClusterError, match="before the command's exit code"):
        await execute(Socket(b"\x01ab"))


async def test_an_old_server_is_refused():
    with pytest.raises(PermanentClusterError, match=r"1\.30"):
        await execute(Socket(protocol="v4.channel.k8s.io"))


async def test_of_a_long_stderr_the_end_is_kept():
    answers = [b"\x02" + bytes([65 + n]) * 40_000 for n in range(3)]

    result, _, _ = await execute(Socket(*answers, b"\x03" + SUCCESS))

    assert len(result.stderr) == 65_536
    assert result.stderr.endswith(b"C" * 40_000)


@pytest.mark.parametrize(
    ("status", "want"),
    [
        (
            {"status": "Failure", "reason": "InternalError", "message": "no sh"},
            PermanentClusterError,
        ),
        ({"status": "Failure", "message": "?"}, TransientClusterError),
        ({"status": "Failure", "reason": "NonZeroExitCode"}, TransientClusterError),
    ],
)
def test_statuses_without_an_exit_code(status, want):
    with pytest.raises(want):
        exit_code(json.dumps(status).encode())
