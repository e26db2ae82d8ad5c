"""Harness Pods of codex and Claude Code: the tool beside the image, a preflight, a diff."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from securebench.agents.harness import DUMMY_KEY
from securebench.agents.registry import cli_agents, cli_named
from securebench.protocol.gateway import PROXY_NAME
from securebench.protocol.supervise import DIFF_SECONDS
from securebench.run.plan.model import ClusterFacts, EgressPlan, LaunchKey, Role, TaskPlan
from securebench.run.pods.harness import harness_pod
from support.manifest_samples import (
    FACTS,
    LANES,
    USER_NAMESPACES,
    agent_run,
    patch_task,
    run_plan,
    text_task,
)
from unit.run.pods.test_launches import container, told

LAUNCH = LaunchKey(0, 1, Role.HARNESS, 1)
KINDS = sorted(name for name, _ in cli_agents())


def agent_pod(
    kind: str, task: TaskPlan | None = None, facts: ClusterFacts = FACTS, **changes: Any
) -> Any:
    run, planned = agent_run(run_plan(), kind, task or text_task())
    return harness_pod(replace(run, **changes), planned, LAUNCH, LANES, facts)


def volume(body: Any, name: str) -> Any:
    return next(each for each in body["spec"]["volumes"] if each["name"] == name)


def mounts(body: Any, name: str = "harness") -> dict[str, Any]:
    return {each["mountPath"]: each for each in container(body, name)["volumeMounts"]}


@pytest.mark.parametrize("kind", KINDS)
def test_the_tool_is_a_read_only_volume_with_a_fresh_home(kind: str) -> None:
    body, tool = agent_pod(kind), cli_named(kind)
    overlay = mounts(body)[tool.overlay_path]
    assert overlay["readOnly"] is True
    image = volume(body, overlay["name"])["image"]
    assert image == {"reference": f"securebench/overlay-{kind}:1.2.3", "pullPolicy": "IfNotPresent"}
    home = mounts(body)[tool.home]
    assert "readOnly" not in home
    assert volume(body, home["name"])["emptyDir"] == {"sizeLimit": "512Mi"}


@pytest.mark.parametrize("kind", KINDS)
def test_only_the_harness_has_tool_and_home(kind: str) -> None:
    body, tool = agent_pod(kind), cli_named(kind)
    others = [each["name"] for each in body["spec"]["initContainers"]]
    assert others == ["courier", "egress-proxy"]
    for name in others:
        assert not {tool.overlay_path, tool.home} & set(mounts(body, name))


@pytest.mark.parametrize("kind", KINDS)
def test_a_preflight_comes_before_the_harness_with_the_same_limit(kind: str) -> None:
    body, tool = agent_pod(kind), cli_named(kind)
    preflight, harness = told(body, "harness")["phases"]
    assert (preflight["name"], harness["name"]) == ("preflight", "harness")
    assert preflight["command"][-1] == "--version"
    assert "candidate.txt" in " ".join(harness["command"])
    for phase in (preflight, harness):
        assert phase["timeout_seconds"] == 60
        assert phase["env"]["HOME"] == tool.home
        assert phase["env"][tool.key] == DUMMY_KEY
        assert phase.get("search", []) == list(tool.search)


@pytest.mark.parametrize(("kind", "times"), [("codex", 2), (None, 1)])
def test_the_deadline_counts_the_preflight(kind: str | None, times: int) -> None:
    plan = run_plan()
    body: Any = agent_pod(kind) if kind else harness_pod(plan, text_task(), LAUNCH, LANES, FACTS)
    own = plan.pods.startup_allowance_seconds + plan.pods.grace_seconds
    assert body["spec"]["activeDeadlineSeconds"] == own + times * 60


@pytest.mark.parametrize("kind", KINDS)
def test_no_pod_names_the_secret_of_the_key(kind: str) -> None:
    run, _ = agent_run(run_plan(), kind, text_task())
    assert run.egress is not None
    assert run.egress.provider is not None
    assert f'"{run.egress.provider.secret}"' not in json.dumps(agent_pod(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_can_be_watched_unless_values_of_the_tester_enter_the_pod(kind: str) -> None:
    assert told(agent_pod(kind), "courier")["seal"]["live"] is True
    run, _ = agent_run(run_plan(), kind, text_task())
    exposed = replace(run.harness, env=("TOKEN",), secret="values")
    assert "live" not in told(agent_pod(kind, harness=exposed), "courier")["seal"]


def test_a_command_can_be_watched_unless_values_of_the_tester_enter_the_pod() -> None:
    run = run_plan()
    assert (
        told(harness_pod(run, text_task(), LAUNCH, LANES, FACTS), "courier")["seal"]["live"] is True
    )
    exposed = replace(run, harness=replace(run.harness, env=("TOKEN",), secret="values"))
    assert (
        "live"
        not in told(harness_pod(exposed, text_task(), LAUNCH, LANES, FACTS), "courier")["seal"]
    )


# Proxy variables


def test_without_domains_there_is_no_proxy_variable() -> None:
    body = agent_pod("codex")
    assert "env" not in container(body, "harness")
    assert told(body, "egress-proxy")["listen"] == {"provider": 8081}


def test_with_domains_the_tester_cannot_replace_the_proxy() -> None:
    run, task = agent_run(run_plan(), "codex", text_task())
    egress = EgressPlan(("a.dev",), None)
    harness = replace(run.harness, env=("TOKEN", "HTTPS_PROXY", "no_proxy"), secret="values")
    body = harness_pod(replace(run, egress=egress, harness=harness), task, LAUNCH, LANES, FACTS)
    variables = container(body, "harness")["env"]
    named = [each["name"] for each in variables]
    assert len(named) == len(set(named))
    values = {each["name"]: each.get("value") for each in variables}
    assert values["HTTPS_PROXY"] == f"http://{PROXY_NAME}:8080"
    assert values["TOKEN"] is None


# Checkouts


def test_an_agent_in_a_checkout_hands_in_the_difference() -> None:
    body = agent_pod("codex", patch_task(workdir="/testbed", writable_root=True))
    spec = told(body, "harness")
    assert spec["diff"] == {
        "workdir": "/testbed",
        "scratch": "/opt/securebench/baseline",
        "timeout_seconds": DIFF_SECONDS,
        "bytes": 10 * 1024 * 1024,
    }
    assert container(body, "harness")["securityContext"]["readOnlyRootFilesystem"] is False
    assert "/opt/securebench/baseline" in mounts(body)
    assert "/opt/securebench/baseline" not in mounts(body, "courier")
    assert told(body, "courier")["seal"]["extraction"]["mode"] == "git_diff"
    assert body["spec"]["activeDeadlineSeconds"] == 300 + 120 + 2 * 60 + 2 * DIFF_SECONDS


@pytest.mark.parametrize("kind", KINDS)
def test_elsewhere_the_root_stays_read_only(kind: str) -> None:
    body = agent_pod(kind, facts=USER_NAMESPACES)
    assert container(body, "harness")["securityContext"]["readOnlyRootFilesystem"] is True
    assert "diff" not in told(body, "harness")
    assert body["spec"]["hostUsers"] is False
