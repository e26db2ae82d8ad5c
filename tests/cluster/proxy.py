"""A way to the API server that can be cut or run dry."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


class Proxy:
    """Forwards TCP connections from a port of this machine.

    Args:
        target: Host and port behind it.
        dry_after: Bytes from the client, over all connections, after which nothing is forwarded
            any more; None for no end.
    """

    def __init__(self, target: tuple[str, int], dry_after: int | None = None) -> None:
        self.is_dry = threading.Event()
        self._target = target
        self._left = dry_after
        self._ends: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = self._listen(0)
        self.port: int = self._listener.getsockname()[1]

    def cut(self) -> None:
        """Refuse new connections and break those that are open."""
        _close(self._listener)
        with self._lock:
            ends, self._ends = self._ends, set()
        for end in ends:
            _close(end)

    def mend(self) -> None:
        """Accept connections again on the same port."""
        self._listener = self._listen(self.port)

    def _listen(self, port: int) -> socket.socket:
        listener = socket.create_server(("127.0.0.1", port), reuse_port=True)
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()
        return listener

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listener.accept()
                far = socket.create_connection(self._target)
                with self._lock:
                    self._ends |= {near, far}
                for pair in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self._forward, args=pair, daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, is_client: bool) -> None:  # noqa: FBT001
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if is_client and not self._may_pass(len(data)):
                    self.is_dry.set()
                    return
                sink.sendall(data)
        _close(source)
        _close(sink)

    def _may_pass(self, size: int) -> bool:
        with self._lock:
            if self._left is None:
                return True
            self._left -= size
            return self._left > 0


@contextlib.contextmanager
def proxy(target: tuple[str, int], dry_after: int | None = None) -> Iterator[Proxy]:
    """Make a proxy that is gone afterwards."""
    made = Proxy(target, dry_after)
    try:
        yield made
    finally:
        made.cut()


def _close(end: socket.socket) -> None:
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
    end.close()
