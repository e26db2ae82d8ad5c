"""A real registry (distribution, Debian's package docker-registry) on the loopback."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path

import yaml

from support.servers import free_port, serving


@contextmanager
def registry(folder: Path, auth: Mapping[str, object] | None = None) -> Iterator[str]:
    """Run a registry that keeps its data in a folder, and return its host.

    Args:
        folder: For its files.
        auth: Part of its configuration; without it, everyone may push.
    """
    host = f"127.0.0.1:{free_port()}"
    with serving(command(folder, host, auth), lambda: _answers(host)):
        yield host


def command(folder: Path, host: str, auth: Mapping[str, object] | None = None) -> Sequence[str]:
    """Write the configuration and return the command that starts the registry."""
    config = folder / "registry.yaml"
    body: dict[str, object] = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": host},
        "log": {"level": "error", "accesslog": {"disabled": True}},
    }
    if auth:
        body["auth"] = auth
    config.write_text(yaml.safe_dump(body), encoding="utf-8")
    return ("docker-registry", "serve", str(config))


def _answers(host: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{host}/v2/", timeout=5):
            return True
    except urllib.error.HTTPError as error:
        return error.code == HTTPStatus.UNAUTHORIZED
    except OSError:
        return False
