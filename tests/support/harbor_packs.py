"""Packs of Harbor task folders."""

from __future__ import annotations

from pathlib import Path

from harbor_folders.cases import Config, files_of, write

READY: Config = {"environment": {"docker_image": "debian:12", "network_mode": "no-network"}}
"""A task that runs as it is."""


def folder_pack(root: Path, *names: str, config: Config | None = None, **files: str) -> Path:
    """Write a pack of task folders and return its folder."""
    for name in names:
        found = {"environment/Dockerfile": None, "solution/solve.sh": "echo solved\n", **files}
        write(root / name, files_of(READY if config is None else config, **found))
    return root
