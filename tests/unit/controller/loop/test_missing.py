"""Runs that were created before what they name."""

import asyncio
import shutil
from unittest import mock

import pytest

from securebench.cluster.port import ObjectKind
from support.build import MANIFEST, inline, question, write_pack
from support.operator_world import World

LABEL = {"securebench.dev/usable-by-runs": "true"}
NOT_FOR_RUNS = (None, {}, dict.fromkeys(LABEL, "gateway"))
"""Labels of a Secret that no run may use in a Pod; None: there is no such Secret."""
TASKS = (
    '{"id": "a", "input": {"question": "Which?", "choices": ["x", "y"]}, "eval": {"answer": 1}}\n'
)
FILES = {"manifest.yaml": MANIFEST, "tasks.jsonl": TASKS}


def create(world, kind, **body):
    world.runner.run(world.cluster.create(kind, body))


def secret(world, labels, name="late"):
    create(world, ObjectKind.SECRET, metadata={"name": name, "labels": labels})


def config_map(world):
    create(world, ObjectKind.CONFIG_MAP, metadata={"name": "late"}, data=FILES)


def folder(world):
    write_pack(world.root / "packs/late", [question("a")])


def labelled(world):
    if "late" not in world.cluster.objects(ObjectKind.SECRET):
        secret(world, {})
    world.cluster.edit(ObjectKind.SECRET, "late", {"metadata": {"labels": LABEL}})


HARNESS = {"type": "command", "config": {"command": "echo B"}}
WITH_SECRET = {"harness": {**HARNESS, "env": ["TOKEN"], "secretRef": {"name": "late"}}}
LATE = {
    "ConfigMap": ({"pack": {"configMap": {"name": "late"}}}, config_map, "ConfigMap 'late'"),
    "folder": ({"pack": {"volume": {"path": "late"}}}, folder, "no pack folder 'late'"),
    "Secret": (WITH_SECRET, lambda world: secret(world, LABEL), "Secret 'late'"),
    "label": (WITH_SECRET, labelled, "Secret 'late'"),
}


@pytest.mark.parametrize("name", LATE)
def test_a_run_waits_for_what_it_names(world, name):
    spec, mend, words = LATE[name]
    if name == "label":
        secret(world, {})
    world.apply(**spec)
    world.wait(30)
    condition = world.condition()
    assert (condition["status"], condition["reason"]) == ("Unknown", "InputMissing")
    assert words in condition["message"]
    assert condition["message"].endswith("; the run waits for it for up to 60 seconds")
    mend(world)
    world.wait(3)
    assert world.condition()["reason"] == "Starting"
    assert world.pods() != []


ENDS = {
    "ConfigMap": (
        "PackInvalid",
        "ConfigMap 'late' does not exist in this namespace; create it, then a new run",
    ),
    "folder": (
        "PackInvalid",
        (
            "there is no pack folder 'late' on the volume;"
            " push it with 'securebench pack push', then a new run"
        ),
    ),
    "Secret": (
        "InvalidSpec",
        (
            "spec.harness.secretRef: Secret 'late' does not exist in this namespace or lacks"
            ' the label securebench.dev/usable-by-runs: "true"; create'
            " or label it, then create a new run"
        ),
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_it_waits_no_longer_than_it_says(world, name):
    world.apply(**LATE[name][0])
    world.wait(57)
    assert world.condition()["status"] == "Unknown"
    world.wait(5)
    condition = world.condition()
    assert (condition["status"], condition["reason"], condition["message"]) == (
        "False",
        *ENDS[name],
    )
    assert world.supervisor.active == 0


REFERENCES = {
    "harness": WITH_SECRET,
    "pull": {"podTemplate": {"imagePullSecrets": [{"name": "late"}]}},
    "pack": {"pack": {"secret": {"name": "late"}}},
}


@pytest.mark.parametrize("name", REFERENCES)
def test_a_status_does_not_tell_whether_a_secret_exists(tmp_path, name):
    stories = []
    for labels in NOT_FOR_RUNS:
        with mock.patch.object(asyncio, "to_thread", inline):
            world = World(tmp_path / f"world-{len(stories)}")
            if labels is not None:
                secret(world, labels)
            world.apply(**REFERENCES[name])
            story = []
            for _ in range(70):
                world.wait(1)
                condition = world.condition()
                story.append((condition["status"], condition["reason"], condition["message"]))
            stories.append(story)
            world.runner.run(world.supervisor.close())
            world.runner.close()
    assert stories[0][-1][0] == "False"
    assert all(story == stories[0] for story in stories)


def test_a_waiting_run_that_is_cancelled_is_refused_at_once(world):
    world.apply(**LATE["ConfigMap"][0])
    world.wait(5)
    world.edit(cancel="Immediate")
    world.wait(3)
    assert world.condition()["reason"] == "PackInvalid"


def test_a_wait_takes_no_place(tmp_path):
    with mock.patch.object(asyncio, "to_thread", inline):
        world = World(tmp_path, max_active_runs=1)
        world.apply("waits", **LATE["folder"][0])
        uid = world.apply("honest")
        world.work(uid)
        assert world.condition(name="honest")["reason"] == "Completed"
        assert world.condition(name="waits")["reason"] == "InputMissing"
        world.runner.run(world.supervisor.close())
        world.runner.close()


def test_a_wait_can_be_turned_off(tmp_path):
    with mock.patch.object(asyncio, "to_thread", inline):
        world = World(tmp_path, input_wait_seconds=0)
        shutil.rmtree(tmp_path / "packs/smoke")
        world.apply()
        assert world.condition()["reason"] == "PackInvalid"
        world.runner.run(world.supervisor.close())
        world.runner.close()
