"""Sidecar and gateway together: what an agent says goes out, and the end is final."""

import asyncio
import contextlib
import json
import signal
import socket
from dataclasses import replace

import pytest

from securebench.gateway.proxy import serve_proxy
from securebench.protocol.gateway import LAUNCHES, PREFACE_BYTES, LaunchReport, Route, decode
from securebench.protocol.messages import VERSION
from securebench.run.pods.gateway import egress_sidecar
from support.gateways import POD, client_hello, outside, serving, token
from support.manifest_samples import PROVIDER, run_plan, text_task
from support.supervise_build import built

pytestmark = pytest.mark.timeout(60)

HEAD = b"CONNECT docs.dev:443 HTTP/1.1\r\nHost: docs.dev:443\r\n\r\n"


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def spec_of(folder, gateway_port, port, **changes):
    spec = {
        "version": VERSION,
        "gateway": {"host": "127.0.0.1", "port": gateway_port},
        "token": str(folder / "token"),
        "listen": {"proxy": port},
        "connections": 8,
        "start_seconds": 20,
        "close_seconds": 20,
    }
    return spec | changes


@contextlib.asynccontextmanager
async def sidecar(spec):
    """Yield the program; in the end it is gone."""
    words = [str(built()), "egress-proxy", "--spec", json.dumps(spec)]
    out = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec(*words, stdout=out, stderr=out)
    try:
        yield program
    finally:
        if program.returncode is None:
            program.kill()
        await program.communicate()


async def ended(program):
    """Return exit code and log of a program that was told to stop, or stops by itself."""
    out, _ = await program.communicate()
    return program.returncode, out.decode()


async def connected(port):
    async with asyncio.timeout(30):
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)


def report_of(folder):
    return decode(LaunchReport, (folder / LAUNCHES / f"{POD}.json").read_bytes())


async def test_a_tunnel_through_both_and_its_final_report(tmp_path):
    (tmp_path / "token").write_text(token())
    port = free_port()
    async with outside() as peer, serving(tmp_path, {Route.PROXY: serve_proxy}, peer=peer) as run:
        peer.reply = b"pong"
        async with sidecar(spec_of(tmp_path, run.port, port)) as program:
            reader, writer = await connected(port)
            writer.write(HEAD)
            answer = await reader.readuntil(b"\r\n\r\n")
            writer.write(client_hello())
            assert await reader.readexactly(4) == b"pong"
            program.send_signal(signal.SIGTERM)
            code, log = await ended(program)
            writer.close()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert (code, log) == (0, "egress-proxy: the gateway closed the launch\n")
    report = report_of(tmp_path)
    assert (report.closed, report.requests, report.blocked) == (True, 1, 0)
    assert report.bytes_up > len(HEAD)


@pytest.mark.parametrize(
    ("content", "want"),
    [
        (token(aud=["another"]), b"HTTP/1.1 403 Forbidden\r\n"),
        ("t" * PREFACE_BYTES, b"the token is too long"),
    ],
    ids=["another run's", "longer than a preface"],
)
async def test_without_a_token_of_the_run_nothing_passes_and_nothing_is_closed(
    tmp_path, content, want
):
    (tmp_path / "token").write_text(content)
    port = free_port()
    async with outside() as peer, serving(tmp_path, {Route.PROXY: serve_proxy}, peer=peer) as run:
        spec = spec_of(tmp_path, run.port, port, close_seconds=0.5)
        async with sidecar(spec) as program:
            reader, writer = await connected(port)
            writer.write(HEAD)
            assert want in await reader.read()
            writer.close()
            program.send_signal(signal.SIGTERM)
            code, log = await ended(program)
    assert code == 1
    assert "egress-proxy: the gateway did not close the launch in time: " in log
    assert peer.dialled == []


async def test_a_route_that_the_run_has_not_is_refused(tmp_path):
    (tmp_path / "token").write_text(token())
    port = free_port()
    async with serving(tmp_path, {Route.PROXY: serve_proxy}) as run:
        spec = spec_of(tmp_path, run.port, free_port(), listen={"provider": port})
        async with sidecar(spec):
            reader, writer = await connected(port)
            writer.write(b"POST /v1/responses HTTP/1.1\r\n\r\n")
            assert (await reader.read()).startswith(b"HTTP/1.1 403 Forbidden\r\n")
            writer.close()


async def test_without_a_gateway_it_ends_and_says_so(tmp_path):
    async with sidecar(spec_of(tmp_path, free_port(), free_port(), start_seconds=0.1)) as program:
        code, log = await ended(program)
    want = "egress-proxy: the gateway did not accept a connection within 0.1 seconds: dial tcp "
    assert (code, log[: len(want)]) == (1, want)


async def test_the_specification_of_a_manifest_is_understood():
    plan = run_plan(text_task())
    both = replace(plan, egress=replace(PROVIDER, domains=("a.test",)))
    *_, text = egress_sidecar(both, "127.0.0.1")["command"]
    nobody = {"gateway": {"host": "127.0.0.1", "port": free_port()}, "start_seconds": 0.1}
    async with sidecar(json.loads(text) | nobody) as program:
        code, _ = await ended(program)
    assert code == 1
    async with sidecar(json.loads(text) | {"version": 2}) as program:
        code, _ = await ended(program)
    assert code == 92
