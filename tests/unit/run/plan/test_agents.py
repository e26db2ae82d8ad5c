"""Runs of codex and Claude Code: versions, providers, egress, prompts."""

import pytest

from securebench.errors import SpecError
from securebench.protocol.gateway import PROVIDER_KEY
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.plan.build import agent_image
from securebench.run.plan.model import EgressPlan, ProviderPlan
from securebench.run.plan.score_fields import spec_harness
from unit.run.plan.test_build import TASKS, built, inputs, task

OVERLAYS = {
    "codex": {"0.169.0": "overlay-codex:1", "0.170.0": "overlay-codex:2", "latest": "0.169.0"},
    "claude_code": {"2.1.330": "overlay-claude:1"},
}
SECRET = {"secretRef": {"name": "key"}}


def agent_inputs(kind="codex", *, begun_with="", overlays=OVERLAYS, env=(), **config):
    harness = {"type": kind, "config": {"model": "m-1", **config}}
    if env:
        harness |= {"env": list(env), "secretRef": {"name": "values"}}
    given = inputs(harness=harness, provider=SECRET)
    version, image = agent_image(spec_harness(given.spec), overlays, begun_with)
    return given.bound_to(agent_version=version, overlay=image)


def agent_of(*arguments, **config):
    return built(agent_inputs(*arguments, **config)).harness.agent


# Versions


VERSIONS = {
    "a version": ({"version": "0.170.0"}, ("0.170.0", "overlay-codex:2")),
    "latest": ({"version": "latest"}, ("0.169.0", "overlay-codex:1")),
    "latest is the default": ({}, ("0.169.0", "overlay-codex:1")),
    "latest stays what it was": ({"begun_with": "0.170.0"}, ("0.170.0", "overlay-codex:2")),
    "a version is not replaced": (
        {"version": "0.169.0", "begun_with": "0.170.0"},
        ("0.169.0", "overlay-codex:1"),
    ),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_version(name):
    config, want = VERSIONS[name]
    agent = agent_of(**config)
    assert (agent.version, agent.overlay) == want


REFUSALS = {
    "an unknown version": (
        ("codex", {"version": "9.9"}),
        "codex 9.9 is not installed here; available: 0.169.0, 0.170.0",
    ),
    "no latest": (
        ("claude_code", {}),
        "claude_code latest is not installed here; available: 2.1.330",
    ),
    "what a run began with is gone": (
        ("codex", {"begun_with": "0.168.0"}),
        "codex 0.168.0 is not installed here; available: 0.169.0, 0.170.0",
    ),
    "nothing at all": (
        ("codex", {"overlays": {}}),
        "the chart's value settings.overlays names no image for codex",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_version_that_is_not_offered(name):
    (kind, config), message = REFUSALS[name]
    with pytest.raises(SpecError) as caught:
        agent_of(kind, **config)
    assert message in caught.value.reason


def test_another_resolved_version_is_another_plan():
    first, second = (built(agent_inputs(begun_with=each)) for each in ("", "0.170.0"))
    assert first.harness.digest == second.harness.digest
    assert first.digest != second.digest


# Egress


def test_a_provider():
    plan = built(agent_inputs(budget={"requests": 5, "tokens": 900}))
    assert plan.egress == EgressPlan(
        (),
        ProviderPlan(
            "openai",
            "api.openai.com",
            PROVIDER_KEY,
            secret="key",
            key="OPENAI_API_KEY",
            max_requests=5,
            max_tokens=900,
            model="m-1",
        ),
    )


def test_the_other_provider_with_domains_and_external_tools():
    plan = built(
        agent_inputs(
            "claude_code",
            version="2.1.330",
            allowed_domains=["Example.org"],
            allow_external_tools=True,
        )
    )
    assert plan.egress is not None
    assert plan.egress.domains == ("example.org",)
    assert plan.egress.provider == ProviderPlan(
        "anthropic",
        "api.anthropic.com",
        PROVIDER_KEY,
        secret="key",
        key="ANTHROPIC_API_KEY",
        allow_external_tools=True,
        model="m-1",
    )


def test_a_command_has_a_way_out_only_with_domains():
    command = {"type": "command", "config": {"command": "x"}}
    assert built(inputs(harness=command)).egress is None
    command["config"]["allowed_domains"] = ["a.dev"]
    plan = built(inputs(harness=command))
    assert plan.egress == EgressPlan(("a.dev",), None)
    assert plan.harness.agent is None


def test_a_provider_without_a_key_is_refused_by_the_api():
    raw = {
        "pack": {"volume": {"path": "p"}},
        "harness": {"type": "codex", "config": {"model": "m"}},
    }
    with pytest.raises(SpecError, match="needs provider"):
        BenchmarkRunSpec.parse(raw)


@pytest.mark.parametrize("kind", ["codex", "claude_code"])
def test_a_provider_key_never_enters_the_pod(kind):
    names = ("MY_TOKEN", "OPENAI_API_KEY", "CODEX_API_KEY", "ANTHROPIC_API_KEY")
    plan = built(agent_inputs(kind, env=names, version={"codex": "0.169.0"}.get(kind, "2.1.330")))
    assert (plan.harness.env, plan.harness.secret) == (("MY_TOKEN",), "values")


def test_a_command_gets_the_variables_that_the_tester_names():
    command = {
        "type": "command",
        "config": {"command": "x"},
        "env": ["OPENAI_API_KEY"],
        "secretRef": {"name": "values"},
    }
    assert built(inputs(harness=command)).harness.env == ("OPENAI_API_KEY",)


# Tasks


def test_every_task_has_its_own_command():
    plan = built(agent_inputs(task_file="in/task.json"))
    assert plan.harness.command == ()
    assert len(plan.tasks) == len(TASKS)
    prompt = plan.tasks[0].command[-1]
    assert "/workspace/in/task.json" in prompt
    assert "candidate.txt" in prompt
    assert plan.tasks[0].extraction.path == "candidate.txt"
    assert plan.tasks[0].environment.timeout_seconds == 900


def patch_task(**environment):
    row = {
        "family": "repo_patch",
        "input": {"instructions": "Mend it.", "repo": "a/b", "base_commit": "0" * 40},
        "environment": {"image": "i", **environment},
        "eval": {
            "tests": {"source": "command", "command": "true", "workdir": "/repo"},
        },
    }
    return task(0, **row)


@pytest.mark.parametrize(
    ("environment", "want"), [({"workdir": "/testbed"}, "/testbed"), ({}, "/repo")]
)
def test_an_agent_works_in_the_checkout(environment, want):
    given = agent_inputs().with_tasks(patch_task(**environment))
    planned = built(given).tasks[0]
    assert (planned.environment.workdir, planned.extraction.mode) == (want, "git_diff")
    assert (planned.environment.workspace, planned.verification.name) == ("/workspace", "patch")
    assert "do not clone" in planned.command[-1]


@pytest.mark.parametrize(
    ("environment", "want"), [({"workdir": "/testbed"}, "/testbed"), ({}, "/repo")]
)
def test_a_command_may_work_in_the_checkout(environment, want):
    harness = {"type": "command", "config": {"command": "x", "extraction": "git_diff"}}
    spec = BenchmarkRunSpec.parse({"pack": {"volume": {"path": "p"}}, "harness": harness})
    given = inputs()._replace(spec=spec).with_tasks(patch_task(**environment))
    planned = built(given).tasks[0]
    assert (planned.environment.workdir, planned.extraction.mode) == (want, "git_diff")
    assert planned.environment.workspace == "/workspace"
    assert planned.command == ()


def test_a_command_prints_its_patch_and_works_in_the_workspace():
    given = inputs().with_tasks(patch_task(workdir="/testbed"))
    planned = built(given).tasks[0]
    assert (planned.environment.workdir, planned.extraction.mode) == ("/workspace", "stdout")
    assert planned.command == ()
