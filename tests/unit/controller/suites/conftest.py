"""Fixtures of the tests of suites."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.operator_world import opened
from support.suite_world import SuiteWorld


@pytest.fixture
def world(tmp_path: Path) -> Iterator[SuiteWorld]:
    """Return an operator with suites."""
    with opened(SuiteWorld, tmp_path) as made:
        yield made
        made.runner.run(made.suites.close())
