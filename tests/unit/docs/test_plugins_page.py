"""The page on plug-ins shows the package that the tests install."""

from pathlib import Path

import pytest

from securebench.agents.registry import AGENTS
from securebench.benchmark.families.registry import FAMILIES
from securebench.run.plan.kinds import KINDS
from support.plugins import PLUGINS

PAGE = (Path(__file__).parents[3] / "docs" / "plugins.md").read_text()


@pytest.mark.parametrize("name", ["securebench_parity.py", "pyproject.toml"])
def test_the_page_shows_the_package(name):
    assert (PLUGINS / "parity" / name).read_text() in PAGE


@pytest.mark.parametrize("registry", [AGENTS, FAMILIES, KINDS])
def test_the_page_names_the_groups(registry):
    assert f"| `{registry._group}` |" in PAGE
