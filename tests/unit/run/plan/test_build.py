from dataclasses import replace
from typing import NamedTuple

import pytest

from securebench.benchmark.pack.oracle import Answers
from securebench.benchmark.pack.task import BenchmarkPack, LoadedPack, compile_benchmark_row
from securebench.benchmark.reading.rows import parse_manifest
from securebench.digests import json_digest
from securebench.errors import ConfigErrors, SpecError
from securebench.run.api.models import BenchmarkRunSpec, TaskSelector
from securebench.run.plan.build import build_plan, selected
from securebench.run.plan.model import (
    AttemptKey,
    ClusterProvider,
    LaunchKey,
    PodPolicy,
    Role,
    RunIdentity,
    RunPolicy,
    TaskLimits,
    pod_name,
)
from securebench.run.plan.score_fields import RunBinding
from support.manifest_samples import pods, policy_of

UID = "3f2a9c1e-5b7d-4e80-9a6c-2d1f0e4b8c77"
MANIFEST = parse_manifest("id: p\nversion: 2\n", path="manifest.yaml")


def task(number, **changes):
    row = {
        "id": f"t{number}",
        "family": "multiple_choice",
        "input": {"question": "Which?", "choices": ["a", "b"]},
        "environment": {"image": "python:3.11-slim"},
        "eval": {"answer": 0},
    }
    return compile_benchmark_row(row | changes, manifest=MANIFEST)


TASKS = tuple(task(number) for number in range(5))


def spec(**changes):
    known = {
        "pack": {"volume": {"path": "p"}},
        "harness": {"type": "command", "config": {"command": "echo A"}},
    }
    return BenchmarkRunSpec.parse(known | changes)


class Inputs(NamedTuple):
    """Arguments of ``build_plan``."""

    spec: BenchmarkRunSpec
    pack: LoadedPack
    binding: RunBinding
    pods: PodPolicy
    policy: RunPolicy
    providers: tuple[ClusterProvider, ...] = ()

    def with_tasks(self, *tasks):
        return self._replace(pack=self.pack._replace(tasks=tasks))

    def bound_to(self, **changes):
        return self._replace(binding=replace(self.binding, **changes))


def built(given):
    return build_plan(*given)


def inputs(*, kept=(), tasks=TASKS, audit=False, answers="", **changes):
    binding = RunBinding(
        identity=RunIdentity(UID, "run", "default", "run-1"),
        pack_digest="sha256:" + "1" * 64,
        limits=TaskLimits(),
        audit=audit,
        answers=Answers(digest=answers),
        kept=frozenset(kept),
    )
    pack = LoadedPack(BenchmarkPack(MANIFEST, ()), tasks)
    return Inputs(spec(**changes), pack, binding, pods(), policy_of())


SELECTIONS = {
    "all": ({}, (0, 1, 2, 3, 4)),
    "limit": ({"limit": 2}, (0, 1)),
    "include": ({"include": ["t1", "t[34]"]}, (1, 3, 4)),
    "exclude wins": ({"include": ["*"], "exclude": ["t[0-3]"]}, (4,)),
    "exclude": ({"exclude": ["t0", "x*"]}, (1, 2, 3, 4)),
    "limit counts rows, not choices": ({"limit": 2, "include": ["t1", "t4"]}, (1,)),
    "case matters": ({"include": ["T*", "t1"]}, (1,)),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_selection(name):
    fields, want = SELECTIONS[name]
    ids = [item.id for item in TASKS]
    assert selected(TaskSelector.parse(fields), ids) == want
    assert tuple(built(inputs(taskSelector=fields)).tasks) == want


NOTHING = {
    "excluded": ({"exclude": ["t?"]}, 5),
    "other case": ({"include": ["T*"]}, 5),
    "behind the limit": ({"limit": 2, "include": ["t4"]}, 5),
}


@pytest.mark.parametrize("kept", [(), (0,)])
@pytest.mark.parametrize("name", NOTHING)
def test_a_selection_of_nothing_is_refused(name, kept):
    fields, count = NOTHING[name]
    with pytest.raises(SpecError, match=rf"spec\.taskSelector matches none of {count} tasks"):
        built(inputs(kept=kept, taskSelector=fields))


def test_kept_tasks_are_part_of_the_plan_beyond_the_selection():
    plan = built(inputs(kept={4, 0}, taskSelector={"limit": 2, "exclude": ["t0"]}))
    assert tuple(plan.tasks) == (0, 1, 4)
    assert [plan.tasks[index].task.id for index in plan.tasks] == ["t0", "t1", "t4"]


def test_kept_tasks_of_a_longer_pack_are_left_out():
    assert tuple(built(inputs(kept={99}, taskSelector={"limit": 1})).tasks) == (0,)


def test_a_plan():
    plan = built(
        inputs(
            harness={
                "type": "command",
                "config": {"command": ["agent", "--fast"], "task_file": "in.json"},
                "env": ["TOKEN"],
                "secretRef": {"name": "keys"},
            }
        )
    )
    assert (plan.pack_id, plan.pack_version) == ("p", 2)
    assert plan.harness.command == ("agent", "--fast")
    assert (plan.harness.task_file, plan.harness.env, plan.harness.secret) == (
        "in.json",
        ("TOKEN",),
        "keys",
    )
    assert plan.harness.config["timeout_seconds"] is None
    assert plan.pods == pods()


def test_a_harness_without_secret():
    assert built(inputs()).harness.secret == ""


# Digests


def test_equal_inputs_give_an_equal_plan():
    assert built(inputs()) == built(inputs())


def test_digests_stay_the_same_from_version_to_version():
    """Runs that are under way during an upgrade go on only while these stay as they are."""
    plan = built(inputs())
    assert (plan.policy_digest, plan.harness.digest, plan.digest) == (
        "sha256:71431dd3931e0802d2973db812700730fe436dafe78d9f61daa453ea7d281325",
        "sha256:eb1543adde2c998bba7626b05b417a01baecc93dd7ea4c37415cbccf17fc36ca",
        "sha256:73b72fd5aa11464be9fbfc7b7861bda1891f6db589bc7820921bda1a3ce81f94",
    )
    assert plan.digest == json_digest(
        {
            "run_id": "run-1",
            "pack": "sha256:" + "1" * 64,
            "harness": plan.harness.digest,
            "verifier": plan.verifier_version,
            "policy": plan.policy_digest,
            "attempts": 1,
            "tasks": [0, 1, 2, 3, 4],
        }
    )
    assert json_digest({"b": 1, "a": [None, "é"]}) == (
        "sha256:b73e2138dd7c689ad5502e451d4620a3bfedb0f837a4f9a0531fc1b7cf9cde73"
    )


CHANGES = {
    "attempts": {"attempts": 2},
    "harness": {"harness": {"type": "command", "config": {"command": "echo B"}}},
    "selection": {"taskSelector": {"limit": 2}},
    "policy": {"verification": {"disallowDangerousCommands": False}},
    "limits": {"resources": {"limits": {"memory": "2Gi"}}},
    "isolation": {"isolation": {"require": "Declared"}},
    "an open node": {"isolation": {"allow": ["Node"]}},
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_may_change_an_outcome_changes_the_digest(name):
    assert built(inputs(**CHANGES[name])).digest != built(inputs()).digest


@pytest.mark.parametrize("isolation", [{"require": "Declared"}, {"allow": ["Node"]}])
def test_isolation_is_part_of_the_policy(isolation):
    changed = built(inputs(isolation=isolation))
    assert changed.policy_digest != built(inputs()).policy_digest


OTHER = {
    "bounds": {"limits": TaskLimits(text_bytes=1)},
    "pack": {"pack_digest": "sha256:" + "2" * 64},
    "run id": {"identity": RunIdentity(UID, "run", "default", "run-2")},
}


@pytest.mark.parametrize("name", OTHER)
def test_other_parts_change_the_digest(name):
    assert built(inputs().bound_to(**OTHER[name])).digest != built(inputs()).digest


@pytest.mark.parametrize("kind", ["nop", "oracle"])
def test_what_examines_a_pack_says_so(kind):
    harness = {"harness": {"type": kind}}
    plan = built(inputs(audit=True, **harness))
    assert plan.audit
    assert plan.harness.type == kind
    with pytest.raises(SpecError) as caught:
        built(inputs(**harness))
    assert caught.value.reason == (
        f"spec.harness.type: {kind} audits the pack, not an agent; it needs the label"
        " securebench.dev/purpose: audit on the BenchmarkRun: create the run again with that label"
    )


def test_a_normal_run_is_no_audit():
    assert not built(inputs()).audit


def test_results_of_audits_are_kept_apart():
    plans = [
        inputs(),
        inputs(audit=True),
        inputs(audit=True, harness={"type": "nop"}),
        inputs(audit=True, harness={"type": "oracle"}),
        inputs(audit=True, answers="sha256:1", harness={"type": "oracle"}),
    ]
    assert len({built(each).harness.digest for each in plans}) == len(plans)
    assert len({built(each).digest for each in plans}) == len(plans)


UNCHANGED = {
    "parallelism": {"parallelism": 9},
    "suspend": {"suspend": True},
    "deadline": {"activeDeadlineSeconds": 60},
    "retention": {"retention": {"pods": "All"}},
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_what_may_change_during_a_run_does_not(name):
    assert built(inputs(**UNCHANGED[name])).digest == built(inputs()).digest


# Refusals


HANDS_IN_A_FILE = {
    "type": "command",
    "config": {"command": "echo A", "artifact_path": "data/a.txt"},
}


def with_an_asset(number):
    return task(number, assets=[{"path": "a.txt", "mount": "data/a.txt"}])


def test_all_defects_of_tasks_come_together():
    bad = [with_an_asset(0), task(1), with_an_asset(2)]
    with pytest.raises(ConfigErrors) as caught:
        built(inputs(tasks=bad, harness=HANDS_IN_A_FILE))
    assert len(caught.value.errors) == 2


def test_a_task_that_is_not_selected_is_not_judged():
    bad = [with_an_asset(0), task(1)]
    selector = {"exclude": ["t0"]}
    plan = built(inputs(tasks=bad, harness=HANDS_IN_A_FILE, taskSelector=selector))
    assert list(plan.tasks) == [1]


def test_a_harness_config_that_does_not_hold():
    with pytest.raises(ConfigErrors, match=r"harness\.config\.command is required"):
        built(inputs(harness={"type": "command", "config": {}}))


# Names


def test_a_launch_knows_its_attempt():
    assert LaunchKey(3, 2, Role.VERIFIER, 4).attempt_key == AttemptKey(3, 2)


@pytest.mark.parametrize(
    ("launch", "want"),
    [
        (LaunchKey(0, 1, Role.HARNESS, 1), "sb-3f2a9c1e5b7d-0-1h1"),
        (LaunchKey(9999, 100, Role.VERIFIER, 11), "sb-3f2a9c1e5b7d-9999-100v11"),
    ],
)
def test_pod_names(launch, want):
    assert pod_name(UID, launch) == want
