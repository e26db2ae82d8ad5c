"""API servers that are not there, or are not what the kubeconfig trusts."""

from __future__ import annotations

import json
import socket
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml

from support.certificates import new_authority


def kubeconfig(path: Path, server: str, **changes: str) -> Path:
    """Write a kubeconfig with one context, ``work``.

    Args:
        path: The file.
        server: Address of the API server.
        changes: ``namespace``: of the context.
    """
    context = {"cluster": "c", "user": "u", "namespace": changes.get("namespace", "bench")}
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "current-context": "work",
                "contexts": [{"name": "work", "context": context}],
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {"token": "not-secret"}}],
            }
        )
    )
    return path


def unused_port() -> int:
    """Return a port on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextmanager
def answering(answers: Sequence[tuple[int, str]]) -> Iterator[str]:
    """Serve answers in the clear, the last one for everything that follows; yield the address.

    Args:
        answers: Status with a JSON object, or with the message of a Status.
    """
    left = deque(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, text = left.popleft() if len(left) > 1 else left[0]
            body = text if text.startswith("{") else json.dumps({"message": text})
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_: object) -> None:  # type: ignore[override]
            pass

    with _served(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def with_unknown_authority(folder: Path) -> Iterator[str]:
    """Serve TLS with a certificate of an authority that nobody trusts, and yield the address."""
    context = new_authority().server_context(folder / "stranger.pem", ["127.0.0.1"])
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    with _served(server) as port:
        yield f"https://127.0.0.1:{port}"


@contextmanager
def _served(server: ThreadingHTTPServer) -> Iterator[int]:
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
