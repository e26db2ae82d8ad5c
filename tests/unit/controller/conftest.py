"""Fixtures of the tests of whole runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.operator_world import World, opened


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Return an operator with default settings."""
    with opened(World, tmp_path) as made:
        yield made
