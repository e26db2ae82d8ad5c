"""A real registry (distribution, Debian's package docker-registry) on the loopback."""

from __future__ import annotations

import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import yaml

from support.monitoring import free_port

START_SECONDS = 30


@contextmanager
def registry(folder: Path, auth: Mapping[str, object] | None = None) -> Iterator[str]:
    """Run a registry that keeps its data in a folder, and return its host.

    Args:
        folder: For its files.
        auth: Part of its configuration; without it, everyone may push.
    """
    host = f"127.0.0.1:{free_port()}"
    server = subprocess.Popen(
        command(folder, host, auth), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        await_ready(server, host)
        yield host
    finally:
        server.terminate()
        server.wait(timeout=30)


def command(folder: Path, host: str, auth: Mapping[str, object] | None = None) -> Sequence[str]:
    """Write the configuration and return the command that starts the registry."""
    config = folder / "registry.yaml"
    body: dict[str, object] = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": host},
    }
    if auth:
        body["auth"] = auth
    config.write_text(yaml.safe_dump(body), encoding="utf-8")
    return ("docker-registry", "serve", str(config))


def await_ready(server: subprocess.Popen[bytes], host: str) -> None:
    """Wait until it answers."""
    deadline = time.monotonic() + START_SECONDS
    while not _answers(host):
        assert server.poll() is None, "the registry has ended"
        assert time.monotonic() < deadline, "the registry does not answer"
        time.sleep(0.05)


def _answers(host: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{host}/v2/", timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code == HTTPStatus.UNAUTHORIZED
    except OSError:
        return False
