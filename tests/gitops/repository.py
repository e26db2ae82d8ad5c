"""A repository of suites, and the git server that Flux fetches it from."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.parser import BytesHeaderParser
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from support.release import ROOT, call

SUITES = "benchmarks/suites"
SUITE = f"{SUITES}/nightly/suite.yaml"
AUTHOR = ("-c", "user.name=A team", "-c", "user.email=team@example.org")


class Repository:
    """A clone in which somebody works on the suites of this repository.

    Args:
        folder: Where it is made. It does not exist yet.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.copytree(ROOT / SUITES, folder / SUITES)
        self._git("init", "--quiet", "--initial-branch=main")

    def text(self, path: str) -> str:
        """Return a file; empty if there is none."""
        file = self.folder / path
        return file.read_text(encoding="utf-8") if file.exists() else ""

    def write(self, path: str, text: str) -> None:
        """Write a file."""
        (self.folder / path).write_text(text, encoding="utf-8")

    def suite(self) -> dict[str, Any]:
        """Return the spec of the suite."""
        spec: dict[str, Any] = yaml.safe_load(self.text(SUITE))["spec"]
        return spec

    def write_suite(self, spec: Mapping[str, Any]) -> None:
        """Change the spec of the suite."""
        whole = {**yaml.safe_load(self.text(SUITE)), "spec": dict(spec)}
        self.write(SUITE, yaml.safe_dump(whole, sort_keys=False))

    def commit(self, message: str) -> str:
        """Commit everything and return the commit's digest."""
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", message)
        return self._git("rev-parse", "HEAD").strip()

    def _git(self, *words: str) -> str:
        return call("git", "-C", str(self.folder), *AUTHOR, *words).decode()


@contextmanager
def served(repository: Repository) -> Iterator[str]:
    """Serve a repository on the loopback, and return its URL."""

    class Handler(_GitHandler):
        folder = repository.folder

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/{repository.folder.name}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _GitHandler(BaseHTTPRequestHandler):
    """Answers by ``git http-backend``, git's own server of its smart protocol."""

    folder: Path

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers["Content-Length"])))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Print nothing for a request."""

    def _answer(self, body: bytes) -> None:
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=self._variables(), stdout=-1, check=True
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = BytesHeaderParser().parsebytes(head)
        status = fields.get("Status", str(HTTPStatus.OK.value))
        self.send_response(int(status.split()[0]))
        for name, value in fields.items():
            if name != "Status":
                self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _variables(self) -> Mapping[str, str]:
        """Return the variables of CGI."""
        path, _, query = self.path.partition("?")
        return {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.folder.parent),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
