"""The web servers outside: two names on one address, over HTTP and HTTPS, with WebSockets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

from aiohttp import WSMsgType, web

from outside import journal

BODY_SHOWN = 4096
"""Of a request's body in the log; a marker further behind is not found."""
PIECE = 16 * 1024
SECOND_PIECE_SECONDS = 0.2

Handler = Callable[[web.Request], Coroutine[Any, Any, web.StreamResponse]]


def note_server_names(context: ssl.SSLContext, server: str) -> None:
    """Write down the server name of every TLS hello, also of those that are given up."""

    def note(_socket: Any, name: str | None, _context: ssl.SSLContext) -> None:
        journal.write("tls", server=server, name=name or "")

    context.sni_callback = note


async def answer(request: web.Request) -> web.StreamResponse:
    """Write the request down and answer with what was received."""
    body = await request.read()
    _note(request, body)
    if request.path.startswith("/status/"):
        return web.Response(status=int(request.path.rsplit("/", 1)[1]), text="as asked\n")
    if request.path == "/redirect":
        return web.Response(status=302, headers={"Location": request.query["to"]})
    received = {
        "method": request.method,
        "host": request.host,
        "path": request.raw_path,
        "headers": [[name, value] for name, value in request.headers.items()],
        "body": body[:BODY_SHOWN].decode("latin-1"),
        "size": len(body),
    }
    return web.json_response(received)


async def many_bytes(request: web.Request) -> web.StreamResponse:
    """Send as many bytes as the path says, at once or (``?slow``) with pauses."""
    _note(request, b"")
    response = web.StreamResponse()
    await response.prepare(request)
    left = int(request.match_info["size"])
    while left > 0:
        await response.write(b"x" * min(PIECE, left))
        left -= PIECE
        if "slow" in request.query:
            await asyncio.sleep(SECOND_PIECE_SECONDS)
    return response


async def echo(request: web.Request) -> web.StreamResponse:
    """Send every WebSocket message back."""
    _note(request, b"")
    socket = web.WebSocketResponse()
    await socket.prepare(request)
    async for message in socket:
        if message.type is WSMsgType.TEXT:
            journal.write("http", peer=request.remote, name=request.host, socket=message.data)
            await socket.send_str(message.data)
        elif message.type is WSMsgType.BINARY:
            await socket.send_bytes(message.data)
    return socket


async def start(address: str, context: ssl.SSLContext) -> None:
    """Listen on the ports 80 and 443 of an address."""
    note_server_names(context, address)
    app = web.Application(client_max_size=64 * 1024 * 1024)
    app.router.add_get("/bytes/{size:[0-9]+}", many_bytes)
    app.router.add_get("/socket", echo)
    app.router.add_route("*", "/{path:.*}", answer)
    await listen(app, address, {80: None, 443: context})


async def listen(
    app: web.Application, address: str, ports: dict[int, ssl.SSLContext | None]
) -> None:
    """Serve an application on ports of one address."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
    await runner.setup()
    for port, context in ports.items():
        site = web.TCPSite(runner, address, port, ssl_context=context, reuse_port=True)
        await site.start()


def _note(request: web.Request, body: bytes) -> None:
    journal.write(
        "http",
        peer=request.remote,
        scheme=request.scheme,
        name=request.host,
        method=request.method,
        path=request.raw_path,
        size=len(body),
        body=body[:BODY_SHOWN].decode("latin-1"),
    )
