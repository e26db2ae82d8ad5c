"""The other side of a command in a Pod, as a scripted websocket."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from types import SimpleNamespace

import aiohttp

from securebench.cluster.podexec import run_exec

SUCCESS = b'{"metadata":{},"status":"Success"}'
CLOSED = SimpleNamespace(type=aiohttp.WSMsgType.CLOSED, data=None)


class Socket:
    """A websocket whose other side answers when stdin is closed, or at once without stdin."""

    def __init__(self, *answers, protocol="v5.channel.k8s.io", breaks=False):
        self.protocol = protocol
        self.sent = []
        self.stdin_closed = asyncio.Event()
        self.breaks = breaks
        self._answers = deque(answers)

    async def send_bytes(self, data):
        if self.breaks:
            raise ConnectionResetError
        self.sent.append(data)
        if data == b"\xff\x00":
            self.stdin_closed.set()

    async def receive(self):
        if not self._answers:
            return CLOSED
        return SimpleNamespace(type=aiohttp.WSMsgType.BINARY, data=self._answers.popleft())


class Cluster:
    def __init__(self, socket):
        self.socket = socket
        self.opened = None

    @asynccontextmanager
    async def websocket(self, path, query, protocol):
        self.opened = (path, query, protocol)
        yield self.socket


async def execute(socket, *, stdin=None, argv=("true",)):
    out = bytearray()

    async def stdout(piece):
        out.extend(piece)

    cluster = Cluster(socket)
    result = await run_exec(cluster, "pod-1", "operator", argv, stdin, stdout)
    return result, bytes(out), cluster.opened
