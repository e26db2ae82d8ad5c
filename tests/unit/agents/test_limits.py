"""Time limit and digest (contract 10, 12.1, 15.6, 15.8)."""

import pytest

from securebench.agents.harness import CommandHarness, agent_time_limit
from securebench.agents.registry import harness_config, harness_digest
from securebench.errors import ConfigError


@pytest.mark.parametrize(
    ("kind", "given", "environment", "want"),
    [
        ("command", {}, {}, None),
        ("command", {}, {"timeout_seconds": 30}, 30.0),
        ("command", {"timeout_seconds": 10}, {"timeout_seconds": 30}, 10.0),
        ("command", {"timeout_seconds": 40}, {"timeout_seconds": 30}, 30.0),
        ("command", {"timeout_seconds": 40}, {}, 40.0),
        ("command", {"timeout_seconds": None}, {"timeout_seconds": 30}, 30.0),
        ("codex", {}, {}, 900.0),
        ("codex", {}, {"timeout_seconds": 1800}, 1800.0),
        ("codex", {"timeout_seconds": None}, {}, None),
        ("codex", {"timeout_seconds": None}, {"timeout_seconds": None}, None),
        ("codex", {"timeout_seconds": 60}, {"timeout_seconds": 1800}, 60.0),
    ],
)
def test_agent_time_limit(kind, given, environment, want):
    needed = {"command": "x"} if kind == "command" else {"model": "m"}
    harness = harness_config(kind, {**needed, **given})
    assert agent_time_limit(environment, harness) == want


@pytest.mark.parametrize("value", [0, -1, True, "30", float("nan"), float("inf")])
def test_bad_task_limits_are_named(value):
    with pytest.raises(ConfigError, match=r"environment\.timeout_seconds"):
        agent_time_limit({"timeout_seconds": value}, CommandHarness(command="x"))


def test_digest_has_defaults_filled_in():
    plain = harness_config("codex", {"model": "m"})
    spelled = harness_config(
        "codex", {"model": "m", "version": "latest", "timeout_seconds": 900, "budget": {}}
    )
    assert harness_digest(plain) == harness_digest(spelled)
    assert harness_digest(plain).startswith("sha256:")
    assert len(harness_digest(plain)) == len("sha256:") + 64


def test_digest_tells_harnesses_apart():
    command = CommandHarness(command="x")
    digests = {
        harness_digest(command),
        harness_digest(command, ["A"]),
        harness_digest(CommandHarness(command=("x",))),
        harness_digest(CommandHarness(command="y")),
        harness_digest(CommandHarness(command="x", artifact_path="a")),
        harness_digest(CommandHarness(command="x", timeout_seconds=1.0)),
        harness_digest(CommandHarness(command="x", allowed_domains=("a.dev",))),
        harness_digest(harness_config("codex", {"model": "m"})),
        harness_digest(command, audit=True),
        harness_digest(harness_config("nop", {}), audit=True),
        harness_digest(harness_config("oracle", {}), audit=True, answers="sha256:1"),
        harness_digest(harness_config("oracle", {}), audit=True, answers="sha256:2"),
    }
    assert len(digests) == 12
    assert harness_digest(command, ["B", "A", "A"]) == harness_digest(command, ["A", "B"])
