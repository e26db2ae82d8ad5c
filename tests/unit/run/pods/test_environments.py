"""Pods of environments that differ from the run's: no workspace, own limits, own variables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from securebench.benchmark.families.base import RewardRequest, WantedArtifact
from securebench.protocol.gateway import PROXY_NAME
from securebench.run.layout import LOG_FOLDERS
from securebench.run.plan.environment import EnvironmentLimits
from securebench.run.plan.model import LaunchKey, Role
from securebench.run.pods.containers import BECOMING, OVERRIDING
from securebench.run.pods.harness import harness_pod
from securebench.run.pods.volumes import task_resources
from securebench.run.verification.base import Member, verifier_pod
from securebench.run.verification.reward import RewardVerification
from securebench.sizes import GIB, MIB
from support.manifest_samples import (
    DOMAINS,
    FACTS,
    LANES,
    SERVED_ENVIRONMENT,
    agent_run,
    candidate,
    pods,
    root_task,
    run_plan,
    text_task,
)
from unit.run.pods.test_launches import container, mounts, told

KEY = LaunchKey(6, 1, Role.HARNESS, 1)


def pod(task, **changes):
    return harness_pod(run_plan(task, **changes), task, KEY, LANES, FACTS)


def test_without_a_workspace_nothing_covers_a_folder_of_the_image():
    body = pod(root_task())
    spec = told(body, "harness")
    main = container(body, "harness")
    places = set(mounts(body, "harness"))
    beside = {place for place in places if not place.startswith("/opt/securebench/")}
    assert beside == {"/dev/shm", *LOG_FOLDERS}
    assert "workspace" not in {each["name"] for each in body["spec"]["volumes"]}
    assert "/work/workspace" not in mounts(body, "courier")
    assert ("copies" in spec, "protected" in spec, spec["temporary"]) == (False, False, "")
    assert main["securityContext"]["readOnlyRootFilesystem"] is False


@pytest.mark.parametrize(("workdir", "want"), [("", None), ("/root/x", "/")])
def test_the_working_folder_of_the_image_is_that_of_its_container(workdir, want):
    body = pod(root_task(workdir=workdir))
    (phase,) = told(body, "harness")["phases"]
    assert (container(body, "harness").get("workingDir"), phase["workdir"]) == (want, workdir)


@pytest.mark.parametrize(
    ("limits", "want"),
    [
        (EnvironmentLimits(), ("1Gi", "4", "256Mi", "100m")),
        (EnvironmentLimits(cpus=2), ("1Gi", "2000m", "256Mi", "100m")),
        (EnvironmentLimits(cpus=0.0501), ("1Gi", "51m", "256Mi", "51m")),
        (EnvironmentLimits(memory_bytes=8 * GIB), ("8192Mi", "4", "256Mi", "100m")),
        (EnvironmentLimits(memory_bytes=128 * MIB), ("128Mi", "4", "128Mi", "100m")),
    ],
)
def test_an_environments_limit_replaces_the_runs_and_bounds_requests(limits, want):
    made = task_resources(pods(), limits, GIB)
    bound, asked = made["limits"], made["requests"]
    assert (bound["memory"], bound["cpu"], asked["memory"], asked["cpu"]) == want


@pytest.mark.parametrize(("storage_bytes", "more"), [(None, 2048), (512 * MIB, 512)])
def test_the_disk_of_the_root_is_the_tasks_or_that_of_a_workspace(storage_bytes, more):
    limits = EnvironmentLimits(storage_bytes=storage_bytes)
    sizes = [
        container(pod(root_task(limits=limits, writable_root=is_writable)), "harness")
        for is_writable in (True, False)
    ]
    found = [int(each["resources"]["limits"]["ephemeral-storage"][:-2]) for each in sizes]
    assert found[0] - found[1] == more


def test_variables_of_the_run_come_before_those_of_the_task():
    task = root_task(env={"A": "1", "HTTP_PROXY": "x", "MY_TOKEN": "y"})
    plan = run_plan(task, egress=DOMAINS)
    harness = replace(plan.harness, env=("MY_TOKEN",), environment={"A": "run"})
    body = harness_pod(replace(plan, harness=harness), task, KEY, LANES, FACTS)
    (phase,) = told(body, "harness")["phases"]
    assert phase["env"] == {"A": "run"}


def test_an_agent_keeps_its_own_variables():
    run, task = agent_run(run_plan(), "codex", text_task(env={"HOME": "/x", "CODEX_HOME": "/y"}))
    body = harness_pod(run, task, KEY, LANES, FACTS)
    for phase in told(body, "harness")["phases"]:
        assert phase["env"]["CODEX_HOME"].startswith(run.harness.agent.home)


@pytest.mark.parametrize(
    ("user", "told_user", "context"),
    [
        ("", None, {"capabilities": {"drop": ["ALL"]}}),
        ("root", None, {"capabilities": {"drop": ["ALL"]}, "runAsUser": 0, "runAsGroup": 0}),
        ("0", None, {"capabilities": {"drop": ["ALL"]}, "runAsUser": 0, "runAsGroup": 0}),
        *(
            (
                user,
                user,
                {
                    "capabilities": {"drop": ["ALL"], "add": ["SETGID", "SETUID"]},
                    "runAsUser": 0,
                    "runAsGroup": 0,
                },
            )
            for user in ("app", "1000")
        ),
    ],
)
def test_supervise_becomes_the_user_that_a_side_names(user, told_user, context):
    body = pod(root_task(user=user))
    made = container(body, "harness")["securityContext"]
    assert told(body, "harness").get("user") == told_user
    assert {
        name: made[name] for name in ("capabilities", "runAsUser", "runAsGroup") if name in made
    } == context
    assert made["allowPrivilegeEscalation"] is False
    assert "runAsUser" in made or "runAsNonRoot" not in made


@pytest.mark.parametrize(
    ("agents", "scripts", "artifacts", "added"),
    [
        ("", "", None, ()),
        ("root", "", None, ()),
        ("app", "", None, BECOMING),
        ("app", "app", None, BECOMING),
        ("", "0", None, OVERRIDING),
        ("", "app", None, BECOMING + OVERRIDING),
        ("app", "", (WantedArtifact("/out"),), ()),
        ("app", "root", (WantedArtifact("/out"),), OVERRIDING),
        ("app", "judge", (WantedArtifact("/out"),), BECOMING + OVERRIDING),
    ],
)
def test_changes_are_made_with_the_rights_of_the_agents_user_or_with_all_of_root(
    agents, scripts, artifacts, added
):
    environment = {"user": scripts} if scripts else {}
    request = RewardRequest(script="test.sh", environment=environment, artifacts=artifacts)
    task = root_task(user=agents, verification=RewardVerification(request, changes_root=True))
    member = Member(task, KEY._replace(role=Role.VERIFIER), LANES, candidate("root.tar"))
    body = verifier_pod(run_plan(task), [member], FACTS)
    assert told(body, "check")["changes"].get("user", "") == ("" if artifacts else agents)
    made = container(body, "check")["securityContext"]["capabilities"]
    assert made == {"drop": ["ALL"]} | ({"add": sorted(added)} if added else {})


def test_what_copies_the_image_stays_its_user():
    task = text_task(user="app", starts_filled=True)
    made = container(pod(task), "materialize")["securityContext"]
    assert made["capabilities"] == {"drop": ["ALL"]}
    assert "runAsUser" not in made


SERVED = root_task(environment=SERVED_ENVIRONMENT)


def test_services_are_there_before_everything_else():
    body = pod(SERVED, egress=DOMAINS)
    init = body["spec"]["initContainers"]
    assert [each["name"] for each in init] == [
        "service-db",
        "service-web",
        "courier",
        "egress-proxy",
    ]
    assert {each["restartPolicy"] for each in init} == {"Always"}
    assert body["spec"]["hostAliases"] == [
        {"ip": "127.0.0.1", "hostnames": [PROXY_NAME, "db", "web"]}
    ]


def test_a_service_has_nothing_of_another_container():
    plan = run_plan(SERVED, egress=DOMAINS)
    secret = replace(plan.harness, env=("MY_TOKEN",), secret="keys")
    body = harness_pod(replace(plan, harness=secret), SERVED, KEY, LANES, FACTS)
    for name in ("service-db", "service-web"):
        made = container(body, name)
        assert [each["name"] for each in made["volumeMounts"]] == [f"shm-{name}"]
        assert "valueFrom" not in str(made)
    assert "POSTGRES_PASSWORD" not in str(container(body, "harness"))
    assert "env" not in container(body, "service-web")


def test_a_service_gains_no_privilege():
    for name in ("service-db", "service-web"):
        made = container(pod(SERVED), name)["securityContext"]
        assert (made["allowPrivilegeEscalation"], made["privileged"]) == (False, False)
        assert made["capabilities"]["drop"] == ["ALL"]
        assert not {"NET_RAW", "NET_ADMIN", "SYS_ADMIN"} & set(made["capabilities"]["add"])


def test_the_time_until_services_are_ready_is_added_to_the_pods():
    plain = root_task(environment=replace(SERVED_ENVIRONMENT, services=()))
    seconds = [pod(each)["spec"]["activeDeadlineSeconds"] for each in (plain, SERVED)]
    assert seconds[1] - seconds[0] == 30
