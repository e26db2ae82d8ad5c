"""An agent of another installed package, found by its entry point."""

import json

import pytest

from securebench.agents.registry import AGENTS, agent_named, harness_config
from securebench.errors import ConfigErrors
from securebench.run.api.crd import benchmark_run_crd
from support.plugins import installed

AGENT = """
from dataclasses import replace
from securebench.agents.command import AGENT as COMMAND
AGENT = replace(COMMAND, name="shout")
"""


@pytest.fixture
def shout(tmp_path):
    (tmp_path / "shouting.py").write_text(AGENT)
    with installed(tmp_path, "shouting", {"securebench.agents": {"shout": "shouting:AGENT"}}):
        yield


@pytest.mark.usefixtures("shout")
def test_its_configuration_is_read_and_the_api_knows_its_name():
    assert agent_named("shout") is AGENTS["shout"]
    assert harness_config("shout", {"command": "echo"}).argv == ("sh", "-lc", "echo")
    assert '"opencode", "nop", "oracle", "shout"' in json.dumps(benchmark_run_crd())


def test_without_its_package_it_is_unknown():
    with pytest.raises(ConfigErrors, match=r"harness\.type must be one of"):
        agent_named("shout")
    assert "shout" not in json.dumps(benchmark_run_crd())
