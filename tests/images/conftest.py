"""Built images and a registry for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.image_archives import Built, built, tool
from support.registry import registry


@pytest.fixture(scope="session")
def crane() -> str:
    return tool("crane")


@pytest.fixture(scope="session")
def oras() -> str:
    return tool("oras")


@pytest.fixture
def images(tmp_path: Path, crane: str, oras: str) -> Built:  # noqa: ARG001  # the tools are built first
    return built(tmp_path / "cache")


@pytest.fixture
def host(tmp_path: Path) -> Iterator[str]:
    with registry(tmp_path) as address:
        yield address
