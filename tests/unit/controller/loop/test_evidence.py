"""The journal keeps how the Pod of a launch without a result was; memory does not."""

from __future__ import annotations

import json
from typing import Any
from unittest import mock

import pytest

from securebench.cluster.port import ObjectKind
from securebench.controller import run_loop
from securebench.controller.informers import PodInformer
from securebench.controller.volume.journal import read_entries
from securebench.run.state.entries import Finished, LaunchLost
from support.build import (
    DISRUPTED,
    Status,
    ended,
    pod_status,
    question,
    running,
    supervise_message,
    waiting,
    write_pack,
)
from support.operator_world import World
from support.pod_ends import hand_in

WORKING = pod_status("Running", running("courier"), running("harness"))
HOPELESS = pod_status("Pending", running("courier"), waiting("harness", "InvalidImageName", "no"))

ENDS: dict[str, tuple[Status, dict[str, object], str]] = {
    "cancelled": (WORKING, {"cancel": "Immediate"}, "cancelled"),
    "deadline": (WORKING, {"activeDeadlineSeconds": 60}, "cancelled"),
    "hopeless image": (HOPELESS, {}, "infrastructure"),
}
"""Status of the Pod, what is changed in the run's spec, and the outcome of the attempt."""


def _begun(world: World) -> tuple[str, str]:
    """Begin a run of one task; return its uid and the Pod."""
    write_pack(world.root / "packs/smoke", [question("a")])
    uid = world.apply(isolation={"require": "Declared"})
    world.wait(5)
    (pod,) = world.pods()
    return uid, pod


def _written(world: World, uid: str, kind: str) -> list[dict[str, Any]]:
    """Return the entries of a kind as the disk has them."""
    data = (world.root / "runs" / uid / "journal.jsonl").read_bytes()
    lines = [json.loads(line[18:]) for line in data.splitlines()]
    return [line["entry"] for line in lines if line["type"] == kind]


def test_a_lost_launch_has_its_evidence_on_the_disk(world: World) -> None:
    uid, pod = _begun(world)
    status = pod_status("Failed", ended("harness", 137), reason="Evicted", conditions=[DISRUPTED])
    world.cluster.edit(ObjectKind.POD, pod, {"spec": {"nodeName": "node-9"}, "status": status})
    world.wait(5)

    (lost,) = _written(world, uid, "LaunchLost")
    evidence = lost["evidence"]
    assert (evidence["pod"], evidence["node"], evidence["reason"]) == (pod, "node-9", "Evicted")
    assert evidence["containers"][0]["exit_code"] == 137
    data = (world.root / "runs" / uid / "journal.jsonl").read_bytes()
    (entry,) = (one for one in read_entries(data, uid).entries if isinstance(one, LaunchLost))
    assert entry.evidence is None


@pytest.mark.parametrize("name", ENDS)
def test_a_launch_that_ends_with_its_attempt_has_its_evidence_on_the_disk(
    name: str, world: World
) -> None:
    status, change, want_outcome = ENDS[name]
    uid, pod = _begun(world)
    world.cluster.set_pod_status(pod, status, node="node-9")
    world.wait(5)
    world.edit(**change)
    world.wait(3600)

    (finished,) = _written(world, uid, "Finished")
    evidence = finished["evidence"]
    containers = {each["name"]: each for each in evidence["containers"]}
    assert finished["finish"]["outcome"] == want_outcome
    assert (evidence["pod"], evidence["node"]) == (pod, "node-9")
    assert containers.keys() >= {"courier", "harness"}
    assert containers["harness"]["limits"]
    data = (world.root / "runs" / uid / "journal.jsonl").read_bytes()
    (entry,) = (one for one in read_entries(data, uid).entries if isinstance(one, Finished))
    assert entry.evidence is None


@pytest.mark.parametrize("events_lost", [0, 1], ids=["by the watch", "by the next list"])
def test_a_pod_that_vanished_leaves_how_it_was_last_seen(events_lost: int, world: World) -> None:
    informers: list[PodInformer] = []

    def made(*arguments: Any) -> PodInformer:
        informers.append(PodInformer(*arguments))
        return informers[-1]

    with mock.patch.object(run_loop, "PodInformer", made):
        uid, pod = _begun(world)
    world.cluster.set_pod_status(pod, WORKING, node="node-9")
    world.wait(5)
    world.cluster.lose_events(events_lost)
    world.cluster.remove(ObjectKind.POD, pod)
    world.wait(120)

    (lost,) = _written(world, uid, "LaunchLost")
    assert (lost["lost"]["reason"], lost["evidence"]["node"]) == ("pod_lost", "node-9")
    assert [each["name"] for each in lost["evidence"]["containers"]] == ["courier", "harness"]
    (informer,) = informers
    assert informer.last_seen(pod) is None, "its loss is journalled"
    (again,) = world.pods()
    assert world.launch(again).launch == 2
    world.work(uid)
    assert informer.last_seen(again) is None
    assert world.condition()["status"] == "True"


def test_a_pod_that_vanished_before_its_launch_ended_with_the_attempt(world: World) -> None:
    uid, pod = _begun(world)
    world.cluster.set_pod_status(pod, WORKING, node="node-9")
    world.wait(5)
    world.cluster.remove(ObjectKind.POD, pod)
    world.edit(cancel="Immediate")
    world.wait(60)

    (finished,) = _written(world, uid, "Finished")
    assert _written(world, uid, "LaunchLost") == []
    assert (finished["evidence"]["pod"], finished["evidence"]["node"]) == (pod, "node-9")


def test_an_attempt_that_ends_after_its_launches_has_no_more_evidence(world: World) -> None:
    uid, _ = _begun(world)
    world.work(uid)
    (finished,) = _written(world, uid, "Finished")
    assert (finished["finish"]["outcome"], finished["evidence"]) == ("scored", None)


def test_of_a_batch_that_ends_with_its_attempts_the_first_launch_has_the_evidence(
    world: World,
) -> None:
    uid = world.apply(isolation={"require": "Declared"}, parallelism=2)
    world.wait(5)
    for harness in world.pods():
        world.cluster.set_pod_status(harness, world.ending(uid, world.launch(harness)))
    world.wait(15)
    (verifier,) = world.pods()
    world.cluster.set_pod_status(verifier, pod_status("Running", running("verifier")))
    world.edit(cancel="Immediate")
    world.wait(60)

    finished = _written(world, uid, "Finished")
    pods = {each["finish"]["key"][0]: (each["evidence"] or {}).get("pod") for each in finished}
    assert pods == {0: verifier, 1: None}


def _hand_in(world: World, uid: str, pod: str, throttled: int) -> None:
    """End a harness Pod well that was held up by its CPU limit in some of 100 periods."""
    took = supervise_message(cpu_periods=100, cpu_throttled=throttled)
    courier = ended("courier", message=hand_in(world.root, uid, world.launch(pod), "B"))
    status = pod_status("Succeeded", courier, ended("harness", message=took))
    world.cluster.set_pod_status(pod, status)
    world.wait(5)


def _summary(world: World, uid: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((world.root / "runs" / uid / "summary.json").read_text())
    return found


@pytest.mark.parametrize(("throttled", "want"), [(40, 1), (4, None)])
def test_a_launch_that_met_a_limit_is_counted_though_it_passed(
    throttled: int, want: int | None, world: World
) -> None:
    uid, pod = _begun(world)
    _hand_in(world, uid, pod, throttled)
    world.restart()
    world.observe(None)
    world.work(uid)

    summary = _summary(world, uid)
    assert summary["passed"] == 1
    assert summary.get("noisy_launches") == (want and {"cpu_throttled": want})
    assert world.run()["status"].get("noisyLaunches") == want


def test_a_launch_that_met_a_limit_is_counted_of_a_run_without_its_plan(world: World) -> None:
    uid, pod = _begun(world)
    _hand_in(world, uid, pod, throttled=40)
    world.restart()
    world.edit(attempts=0)
    world.observe(None)

    assert world.condition()["reason"] == "InvalidSpec"
    assert _summary(world, uid)["noisy_launches"] == {"cpu_throttled": 1}
