"""Sidecar and gateway together: what an agent says goes out, and the end is final."""

import asyncio
import json
import signal
import socket
import sys

import pytest

from securebench.gateway.proxy.proxy import serve_proxy
from securebench.protocol.gateway import LAUNCHES, LaunchReport, decode
from securebench.protocol.messages import VERSION
from securebench.protocol.sidecar import Route
from support.gateways import POD, client_hello, outside, serving, token

HEAD = b"CONNECT docs.dev:443 HTTP/1.1\r\nHost: docs.dev:443\r\n\r\n"


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


async def sidecar(folder, gateway_port, port):
    (folder / "token").write_text(token())
    spec = {
        "version": VERSION,
        "gateway": {"host": "127.0.0.1", "port": gateway_port},
        "token": str(folder / "token"),
        "listen": {"proxy": port},
        "connections": 8,
        "start_seconds": 20,
        "close_seconds": 20,
    }
    program = [sys.executable, "-m", "securebench.sandbox.egress_proxy", "--spec", json.dumps(spec)]
    return await asyncio.create_subprocess_exec(*program)


async def connected(port):
    async with asyncio.timeout(30):
        while True:
            try:
                return await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)


@pytest.mark.timeout(60)
async def test_a_tunnel_through_both_and_its_final_report(tmp_path):
    port = free_port()
    async with outside() as peer, serving(tmp_path, {Route.PROXY: serve_proxy}, peer=peer) as run:
        peer.reply = b"pong"
        program = await sidecar(tmp_path, run.port, port)
        try:
            reader, writer = await connected(port)
            writer.write(HEAD)
            answer = await reader.readuntil(b"\r\n\r\n")
            writer.write(client_hello())
            assert await reader.readexactly(4) == b"pong"
            program.send_signal(signal.SIGTERM)
            assert await program.wait() == 0
            writer.close()
        finally:
            if program.returncode is None:
                program.kill()
                await program.wait()
    assert answer.startswith(b"HTTP/1.1 200 ")
    report = decode(LaunchReport, (tmp_path / LAUNCHES / f"{POD}.json").read_bytes())
    assert (report.closed, report.requests, report.blocked) == (True, 1, 0)
    assert report.bytes_up > len(HEAD)
