"""Serves HTTP to one reader at a time, so that connections cost the operator no threads."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

if TYPE_CHECKING:
    from socket import socket
    from socketserver import BaseServer
    from wsgiref.types import WSGIApplication

SILENCE_SECONDS = 2.0
"""How long a reader may keep silent before its connection is closed; kubelets and scrapers
ask at once."""


class _Handler(WSGIRequestHandler):
    timeout = SILENCE_SECONDS

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base's name
        """Say nothing: whoever may connect could fill the log."""


class _Server(WSGIServer):
    def handle_error(self, request: socket | tuple[bytes, socket], client_address: object) -> None:
        """Drop a connection that failed; its reader knows."""


def serve(name: str, port: int, application: WSGIApplication) -> BaseServer:
    """Serve an application on a port of every address, by one thread.

    Further connections wait in the kernel's short queue; beyond it they are not accepted.

    Args:
        name: Name of the thread.
        port: 0 for any free one.
        application: What answers.

    Returns:
        The server; it lives as long as the process unless it is shut down.
    """
    server = make_server("", port, application, _Server, _Handler)
    Thread(target=server.serve_forever, name=name, daemon=True).start()
    return server
