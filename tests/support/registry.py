"""A real registry (distribution, Debian's package docker-registry)."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from support.servers import free_port, serving

USER = "someone"
PASSWORD = "right"
HTPASSWD = f"{USER}:$2y$05$xJvMxoYNa7lFKjMjT3pMPuSxJ5cerWBHXNFniY.mA1fKaH2BgZ7jC"
"""The line of a registry's file of passwords for both."""


@contextmanager
def registry(
    folder: Path,
    auth: Mapping[str, object] | None = None,
    *,
    certificate: Path | None = None,
    address: str = "127.0.0.1",
    network: Path | None = None,
) -> Iterator[str]:
    """Run a registry that keeps its data in a folder, and return its host.

    Args:
        folder: For its files.
        auth: Part of its configuration; without it, everyone may push.
        certificate: File with certificate and key; without it there is no TLS.
        address: On which it listens.
        network: Network namespace that has this address; None: that of this process.
    """
    host = f"{address}:{free_port()}"
    words = command(folder, host, auth, certificate)
    inside = () if network is None else ("nsenter", f"--net={network}")
    with serving((*inside, *words), lambda: _listens(host)):
        yield host


def command(
    folder: Path,
    host: str,
    auth: Mapping[str, object] | None = None,
    certificate: Path | None = None,
) -> Sequence[str]:
    """Write the configuration and return the command that starts the registry."""
    config = folder / "registry.yaml"
    http: dict[str, object] = {"addr": host}
    if certificate:
        http["tls"] = {"certificate": str(certificate), "key": str(certificate)}
    body: dict[str, object] = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": http,
        "log": {"level": "error", "accesslog": {"disabled": True}},
    }
    if auth:
        body["auth"] = auth
    config.write_text(yaml.safe_dump(body), encoding="utf-8")
    return ("docker-registry", "serve", str(config))


def _listens(host: str) -> bool:
    address, _, port = host.rpartition(":")
    try:
        with socket.create_connection((address, int(port)), timeout=5):
            return True
    except OSError:
        return False
