from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.resources import Lane, Resource, ResourceBundle
from securebench.errors import InvariantViolationError
from securebench.protocol.candidate import Extraction
from securebench.run import layout
from securebench.run.plan.model import LaunchKey, Role
from securebench.run.pods.harness import harness_pod
from securebench.run.pods.isolation import canary_pod, control_pod, deny_policy
from securebench.run.verification.base import Member, verifier_pod
from securebench.run.verification.checks import CheckPlan
from securebench.run.verification.command import CommandVerification
from support.manifest_samples import (
    CHECK_COMMAND,
    FACTS,
    HIDDEN_ANSWER,
    LANES,
    LANES_WITH_ASSETS,
    ORACLE_LANES,
    PACK_ID,
    PATCH,
    RUN_NAME,
    RUN_UID,
    TARGETS,
    TERMINAL_TASK_ID,
    TEXT_TASK_ID,
    USER_NAMESPACES,
    candidate,
    code_task,
    digest,
    golden,
    harness_plan,
    patch_task,
    run_plan,
    terminal_task,
    text_task,
)

HARNESS = LaunchKey(7, 2, Role.HARNESS, 2)
VERIFIER = LaunchKey(7, 2, Role.VERIFIER, 3)
WORKSPACE = candidate("workspace.tar", launch=2)
TASK_FOLDER = f"runs/{RUN_UID}/tasks/7"


def container(body: Any, name: str) -> Any:
    spec = body["spec"]
    return next(
        one for one in [*spec.get("initContainers", []), *spec["containers"]] if one["name"] == name
    )


def told(body: Any, name: str) -> Any:
    return json.loads(container(body, name)["command"][-1])


def mounts(body: Any, name: str) -> dict[str, Any]:
    return {mount["mountPath"]: mount for mount in container(body, name)["volumeMounts"]}


def harness(lanes: Any = LANES, plan_changes: Any = None, **changes: Any) -> Any:
    task = terminal_task(**changes)
    return harness_pod(run_plan(task, **(plan_changes or {})), task, HARNESS, lanes, FACTS)


def verifier(lanes: Any = LANES, **changes: Any) -> Any:
    task = terminal_task(**changes)
    return verifier_pod(run_plan(task), [Member(task, VERIFIER, lanes, WORKSPACE)], FACTS)


class TestHarness:
    def test_sees_the_public_lane_only(self) -> None:
        sub_paths = [
            mount["subPath"]
            for name in ("courier", "materialize", "harness")
            for mount in mounts(harness(LANES_WITH_ASSETS), name).values()
            if mount["name"] == "results"
        ]

        assert sorted(sub_paths) == [
            f"{TASK_FOLDER}/attempts/2/launches/2/candidate",
            f"{TASK_FOLDER}/attempts/2/launches/2/producer",
            f"{TASK_FOLDER}/lanes/public",
            f"{TASK_FOLDER}/lanes/public/assets/0",
            f"{TASK_FOLDER}/lanes/public/assets/1",
            *[f"tools/{'7' * 64}"] * 2,
        ]

    @pytest.mark.parametrize("kind", ["command", "nop", "oracle"])
    def test_only_an_oracle_sees_the_reference_answer(self, kind: str) -> None:
        plan = {} if kind == "command" else {"harness": harness_plan(kind)}
        body = harness(ORACLE_LANES, plan)

        if kind != "oracle":
            assert "oracle" not in json.dumps(body)
            assert ORACLE_LANES.oracle_digest not in json.dumps(body)
            return
        assert mounts(body, "harness")["/opt/securebench/oracle"] == {
            "name": "results",
            "mountPath": "/opt/securebench/oracle",
            "subPath": f"{TASK_FOLDER}/lanes/oracle",
            "readOnly": True,
        }
        assert told(body, "harness")["lanes"] == [
            {"path": "/opt/securebench/public", "digest": digest("a")},
            {"path": "/opt/securebench/oracle", "digest": digest("6")},
        ]
        for name in ("courier", "materialize"):
            assert not [path for path in mounts(body, name) if "oracle" in path]

    @pytest.mark.parametrize("kind", ["command", "oracle"])
    def test_no_verifier_sees_the_reference_answer(self, kind: str) -> None:
        plan = {} if kind == "command" else {"harness": harness_plan(kind)}
        for task in (terminal_task(), text_task(), code_task(), patch_task()):
            key = LaunchKey(task.index, 1, Role.VERIFIER, 1)
            sealed = candidate(patch=PATCH)
            body = verifier_pod(
                run_plan(task, **plan), [Member(task, key, ORACLE_LANES, sealed)], FACTS
            )

            assert "oracle" not in json.dumps(body)

    @pytest.mark.parametrize("name", ["text_harness", "terminal_harness", "oracle_harness"])
    def test_says_nothing_of_task_pack_run_or_answer(self, name: str) -> None:
        text = json.dumps(golden()[name]["spec"])

        for secret in (TEXT_TASK_ID, TERMINAL_TASK_ID, PACK_ID, RUN_NAME, HIDDEN_ANSWER):
            assert secret not in text
        assert CHECK_COMMAND not in text
        assert digest("b") not in text
        assert digest("c") not in text

    def test_task_container_cannot_write_the_volume(self) -> None:
        for mount in mounts(harness(LANES_WITH_ASSETS), "harness").values():
            assert mount["name"] != "results" or mount["readOnly"] is True

    def test_runs_the_command_with_its_limit(self) -> None:
        spec = told(harness(timeout_seconds=12.5, workdir="/app/sub"), "harness")

        (phase,) = spec["phases"]
        assert phase["command"] == ["sh", "-lc", 'python3 agent.py "$(pwd)" $$']
        assert phase["timeout_seconds"] == 12.5
        assert phase["workdir"] == "/app/sub"
        assert "verdict" not in spec
        assert spec["lanes"] == [{"path": "/opt/securebench/public", "digest": digest("a")}]
        assert spec["copies"] == [{"source": "/opt/securebench/public/files", "to": "/app"}]
        assert spec["open_modes"] == ["/app", "/opt/securebench/output"]
        assert spec["probes"] == ["10.96.0.1:443"]

    def test_no_variable_reference_reaches_the_kubelet(self) -> None:
        command = container(harness(), "harness")["command"]

        assert not any("$" in word for word in command)

    def test_root_is_read_only_and_the_user_is_the_images(self) -> None:
        security = container(harness(), "harness")["securityContext"]

        assert security["readOnlyRootFilesystem"] is True
        assert "runAsUser" not in security
        assert "add" not in security["capabilities"]

    def test_values_come_from_the_secret_and_may_be_missing(self) -> None:
        base = run_plan().harness
        body = harness(plan_changes={"harness": replace(base, env=("A",), secret="keys")})

        assert container(body, "harness")["env"] == [
            {
                "name": "A",
                "valueFrom": {"secretKeyRef": {"name": "keys", "key": "A", "optional": True}},
            }
        ]
        assert "env" not in container(body, "courier")
        assert "env" not in container(body, "materialize")

    def test_materialize_runs_between_courier_and_harness_when_asked(self) -> None:
        names = [one["name"] for one in harness()["spec"]["initContainers"]]

        assert names == ["courier", "materialize"]
        assert told(harness(), "materialize") == {
            "version": 1,
            "source": "/app",
            "to": "/opt/securebench/materialize",
        }
        assert len(harness(starts_filled=False)["spec"]["initContainers"]) == 1

    def test_courier_can_write_the_workspace_only_where_mount_points_are_made(self) -> None:
        assert mounts(harness(), "courier")["/work/workspace"]["readOnly"] is True
        assert "readOnly" not in mounts(harness(LANES_WITH_ASSETS), "courier")["/work/workspace"]

    @pytest.mark.parametrize(
        ("name", "workspace"),
        [
            ("harness", "/app"),
            ("courier", "/work/workspace"),
            ("materialize", "/opt/securebench/materialize"),
        ],
    )
    def test_folders_above_mounts_lie_side_by_side(self, name: str, workspace: str) -> None:
        body = harness(LANES_WITH_ASSETS)
        found = {p: m["subPath"] for p, m in mounts(body, name).items() if m["name"] == "beside"}

        assert found == {f"{workspace}/data": "0", f"{workspace}/data/raw": "1"}
        assert "beside" in [volume["name"] for volume in body["spec"]["volumes"]]
        assert "beside" not in json.dumps(harness())

    def test_every_task_container_has_a_shared_memory_of_its_own_and_no_other_has_any(self) -> None:
        for body in golden().values():
            spec = body["spec"]
            every = [*spec.get("initContainers", ()), *spec.get("containers", ())]
            found = {
                one["name"]: mount["name"]
                for one in every
                for mount in one.get("volumeMounts", ())
                if mount["mountPath"] == "/dev/shm"
            }
            of_tasks = {
                one["name"]
                for one in every
                if one["name"].startswith("service-") or one["command"][0] == layout.SUPERVISE
            }
            assert set(found) == of_tasks
            alone = set(found) - {"materialize", "harness"}
            assert len({found[name] for name in alone}) == len(alone)

    def test_no_hook_runs_and_no_container_can_write_the_tools(self) -> None:
        for body in golden().values():
            assert "postStart" not in json.dumps(body)
            for one in (
                *body["spec"].get("initContainers", ()),
                *body["spec"].get("containers", ()),
            ):
                for mount in one.get("volumeMounts", ()):
                    above = mount["name"] == "results" and not mount["subPath"].startswith("runs/")
                    tools = f"tools/{'7' * 64}"
                    assert not above or (mount["subPath"], mount.get("readOnly")) == (tools, True)

    def test_read_only_assets_are_mounted_protected_and_left_out(self) -> None:
        body = harness(LANES_WITH_ASSETS)

        assert mounts(body, "harness")["/app/data/raw/in.csv"]["readOnly"] is True
        assert told(body, "harness")["protected"] == ["/app/data/raw/in.csv", "/app/reference"]
        assert told(body, "courier")["seal"]["exclude"] == [
            "securebench",
            "data/raw/in.csv",
            "reference",
        ]

    def test_courier_is_a_sidecar_that_seals(self) -> None:
        courier = container(harness(), "courier")

        assert courier["restartPolicy"] == "Always"
        assert courier["command"][:3] == ["/usr/local/bin/supervise", "courier", "--spec"]
        assert "seal" in told(harness(), "courier")
        assert told(harness(), "courier")["limits"]["workspace_files"] == 100_000

    @pytest.mark.parametrize(
        ("extraction", "want"),
        [
            (Extraction(mode="stdout", kind="text", path=None), 1 << 20),
            (Extraction(mode="stdout", kind="patch", path=None), 10 << 20),
            (Extraction(mode="file", kind="text", path="a.txt"), 1 << 20),
        ],
        ids=["text", "patch", "file"],
    )
    def test_a_candidate_on_stdout_is_kept_up_to_its_bound(
        self, extraction: Extraction, want: int
    ) -> None:
        assert told(harness(extraction=extraction), "harness")["streams"] == {
            "folder": "/opt/securebench/output",
            "head_bytes": want,
            "tail_bytes": 1 << 19,
        }

    def test_process_limit_is_that_of_the_cluster(self) -> None:
        facts = replace(USER_NAMESPACES, max_processes=99)
        body = harness_pod(run_plan(text_task()), text_task(), HARNESS, LANES, facts)

        assert told(body, "harness")["max_processes"] == 99


class TestCheck:
    def test_sees_candidate_and_lanes_read_only(self) -> None:
        found = {
            path: (mount["subPath"], mount.get("readOnly", False))
            for path, mount in mounts(verifier(), "check").items()
            if mount["name"] == "results"
        }

        assert found == {
            "/opt/securebench/public": (f"{TASK_FOLDER}/lanes/public", True),
            "/app/securebench/evaluation_inputs": (f"{TASK_FOLDER}/lanes/evaluation_inputs", True),
            "/opt/securebench/candidate": (
                f"{TASK_FOLDER}/attempts/2/launches/2/candidate",
                True,
            ),
            "/opt/securebench/tools": (f"tools/{'7' * 64}", True),
        }

    def test_hidden_lane_is_not_there(self) -> None:
        text = json.dumps(verifier())

        assert "lanes/hidden" not in text
        assert digest("c") not in text

    def test_courier_reaches_its_own_folder_only(self) -> None:
        results = [m for m in mounts(verifier(), "courier").values() if m["name"] == "results"]

        assert [mount["subPath"] for mount in results] == [
            f"{TASK_FOLDER}/attempts/2/launches/3/verification"
        ]
        assert set(told(verifier(), "courier")) == {"version", "limits"}

    def test_unpacks_the_candidate_and_lays_our_files_anew(self) -> None:
        spec = told(verifier(LANES_WITH_ASSETS), "check")

        assert spec["verdict"] is True
        assert spec["candidate"] == {
            "path": "/opt/securebench/candidate/workspace.tar",
            "digest": digest("f"),
            "to": "/app",
        }
        assert spec["copies"] == [
            {"source": "/opt/securebench/public/files/securebench", "to": "/app/securebench"}
        ]
        assert spec["protected"] == [
            "/app/securebench/evaluation_inputs",
            "/app/data/raw/in.csv",
            "/app/reference",
        ]
        assert spec["lanes"][1] == {
            "path": "/app/securebench/evaluation_inputs",
            "digest": digest("b"),
        }
        assert spec["home"] == "/opt/securebench/home"
        assert spec["phases"][0]["name"] == "checker"

    def test_parents_of_mounts_are_open(self) -> None:
        body = verifier(LANES_WITH_ASSETS)
        found = {p: m["subPath"] for p, m in mounts(body, "check").items() if m["name"] == "beside"}

        assert found == {"/app/data": "0", "/app/data/raw": "1", "/app/securebench": "2"}
        assert "/work/workspace" not in mounts(body, "courier")

    def test_only_an_allowed_capability_is_added(self) -> None:
        assert container(verifier(), "check")["securityContext"]["capabilities"] == {
            "drop": ["ALL"],
            "add": ["SYS_CHROOT"],
        }
        without = CommandVerification(CheckPlan(("true",), "/app", 300.0))
        plain = container(verifier(verification=without), "check")["securityContext"]
        assert plain["capabilities"] == {"drop": ["ALL"]}
        assert plain["readOnlyRootFilesystem"] is False

    def test_variables_of_the_tester_stay_outside(self) -> None:
        task = terminal_task()
        plan = run_plan(task)
        plan = replace(plan, harness=replace(plan.harness, env=("A",), secret="keys"))

        body = verifier_pod(plan, [Member(task, VERIFIER, LANES, WORKSPACE)], FACTS)

        assert "keys" not in json.dumps(body)

    def test_a_source_checker_has_its_second_place(self) -> None:
        checker = Resource(
            "checker", Lane.EVALUATION_INPUTS, "json", {"source": "pytest", "path": "lab/test.py"}
        )
        instructions = Resource("instructions", Lane.PUBLIC, "text", "Do.")
        task = SecureBenchTask(
            "a", "b", "terminal_task", {}, ResourceBundle((instructions, checker))
        )

        assert mounts(verifier(task=task), "check")["/opt/securebench/evaluator"]["readOnly"]
        assert "/opt/securebench/evaluator" not in mounts(verifier(), "check")


class TestTextVerifier:
    def body(self) -> Any:
        launch = LaunchKey(0, 1, Role.VERIFIER, 2)
        return verifier_pod(
            run_plan(text_task()), [Member(text_task(), launch, LANES, candidate())], FACTS
        )

    def test_runs_our_image_alone(self) -> None:
        spec = self.body()["spec"]

        assert "initContainers" not in spec
        assert [one["image"] for one in spec["containers"]] == ["securebench-operator:0.1.0"]
        assert "python:3.11-slim" not in json.dumps(spec)

    def test_compares_both_digests(self) -> None:
        assert told(self.body(), "verifier") == {
            "version": 1,
            "members": [
                {
                    "name": "0-1-2",
                    "family": "short_answer",
                    "candidate": {
                        "path": "/work/members/0/candidate/candidate.txt",
                        "digest": digest("f"),
                    },
                    "hidden": {"path": "/work/members/0/hidden", "digest": digest("c")},
                }
            ],
        }

    def test_reads_only(self) -> None:
        found = {
            path: mount["subPath"].removeprefix(f"runs/{RUN_UID}/tasks/0/")
            for path, mount in mounts(self.body(), "verifier").items()
            if mount["name"] == "results" and mount["readOnly"]
        }

        assert found == {
            "/work/members/0/candidate": "attempts/1/launches/1/candidate",
            "/work/members/0/hidden": "lanes/hidden",
        }
        assert len(mounts(self.body(), "verifier")) == len(found)


@pytest.mark.parametrize(
    ("task", "sealed"),
    [
        (text_task(), candidate(None)),
        (terminal_task(verification=None), WORKSPACE),
        (text_task(verification=None), candidate()),
    ],
    ids=["no candidate", "no check", "no verifier"],
)
def test_no_verifier_pod_without_something_to_judge(task: Any, sealed: Any) -> None:
    with pytest.raises(InvariantViolationError):
        verifier_pod(run_plan(task), [Member(task, VERIFIER, LANES, sealed)], FACTS)


class TestPolicy:
    @pytest.mark.parametrize(
        ("role", "is_closed"),
        [
            (Role.HARNESS, True),
            (Role.VERIFIER, True),
            (Role.CANARY, True),
            (Role.CONTROL, False),
        ],
    )
    def test_selects_by_role(self, role: Role, *, is_closed: bool) -> None:
        policy: Any = deny_policy(run_plan(text_task()))
        selector = policy["spec"]["podSelector"]
        (expression,) = selector["matchExpressions"]
        bodies: dict[Role, Any] = {
            Role.HARNESS: golden()["text_harness"],
            Role.VERIFIER: golden()["text_verifier"],
            Role.CANARY: golden()["canary"],
            Role.CONTROL: golden()["control"],
        }
        labels = bodies[role]["metadata"]["labels"]

        assert expression["operator"] == "In"
        assert selector["matchLabels"].items() <= labels.items()
        assert (labels[expression["key"]] in expression["values"]) is is_closed

    def test_allows_nothing(self) -> None:
        policy: Any = deny_policy(run_plan(text_task()))

        assert policy["spec"]["policyTypes"] == ["Ingress", "Egress"]
        assert not {"ingress", "egress"} & policy["spec"].keys()


class TestCanary:
    def test_differs_from_the_control_only_in_role_and_goal(self) -> None:
        plan = run_plan(text_task())
        canary: Any = canary_pod(plan, 1, TARGETS, replace(FACTS, gateway=""))
        control: Any = control_pod(plan, 1, TARGETS)

        assert told(canary, "probe") == {**told(control, "probe"), "want": "closed"}
        assert told(control, "probe")["want"] == "open"
        for body in (canary, control):
            body["spec"]["hostname"] = ""
            container(body, "probe")["command"] = []
        assert canary["spec"] == control["spec"]

    def test_tells_its_targets(self) -> None:
        targets = told(golden()["canary"], "probe")["targets"]

        assert targets[1] == {"name": "dns", "host": "10.96.0.10", "port": 53, "protocol": "udp"}

    def test_shows_that_a_sub_path_and_a_user_namespace_work(self) -> None:
        plan = run_plan(text_task())
        body: Any = canary_pod(plan, 1, TARGETS, USER_NAMESPACES)

        assert body["spec"]["hostUsers"] is False
        assert mounts(body, "probe")["/work/probe"] == {
            "name": "results",
            "mountPath": "/work/probe",
            "subPath": f"runs/{RUN_UID}/probe",
            "readOnly": True,
        }
