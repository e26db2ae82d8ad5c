"""What a run makes of Pods that it could not see for a while: nothing, before it knows better.

Kubelets, too, were without the API server; they tell some seconds later what became of their Pods.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from securebench.cluster.port import ObjectKind, Raw
from securebench.controller.volume.store import RunStore
from securebench.errors import TransientClusterError
from support.build import Status, pod_status, rfc3339, running, waiting
from support.operator_world import World, opened
from unit.controller.loop.test_canary import CLOSED, OPEN, ProvingWorld, told

NOT_PULLED = pod_status("Pending", waiting("harness", "ErrImagePull", "i/o timeout"))
STARTED = pod_status("Running", running("harness"))
PROBE_STARTED = pod_status("Running", running("probe"))
KUBELET_SECONDS = 40.0


@pytest.fixture
def proving(tmp_path: Path) -> Iterator[ProvingWorld]:
    with opened(ProvingWorld, tmp_path) as world:
        yield world


@pytest.fixture
def rarely_listing(tmp_path: Path) -> Iterator[World]:
    """Return an operator whose informers list on their own account every five minutes."""
    with opened(World, tmp_path, relist_seconds=300.0) as world:
        yield world


def without_sandbox(world: World) -> Status:
    at = rfc3339(world.clock.now())
    on_node = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}
    not_ready = {"type": "PodReadyToStartContainers", "status": "False", "lastTransitionTime": at}
    return pod_status("Pending", waiting("probe"), conditions=[on_node, not_ready])


# Launches


def lists(world: World) -> int:
    return world.cluster.requests["list", ObjectKind.POD]


def unpulled(world: World, count: int) -> tuple[str, Sequence[str]]:
    """Begin a run whose first launches wait for their image; return its uid and their Pods."""
    uid = world.apply(parallelism=count)
    for pod in world.pods():
        world.cluster.set_pod_status(pod, NOT_PULLED)
    world.wait(10)
    return uid, world.pods()


def test_a_launch_that_waited_is_not_given_up_after_its_start_was_missed(
    rarely_listing: World,
) -> None:
    world = rarely_listing
    uid, (pod,) = unpulled(world, 1)
    world.cluster.lose_events(1)
    world.cluster.set_pod_status(pod, STARTED)
    before = lists(world)
    world.wait(120)
    assert world.pods() == [pod], "no launch was lost"
    assert lists(world) == before + 1
    world.work(uid)
    assert told(world)[0] == "True"


def test_launches_that_wait_in_vain_share_a_list(rarely_listing: World) -> None:
    world = rarely_listing
    unpulled(world, 2)
    before = lists(world)
    world.wait(60)
    assert lists(world) == before + 1
    assert [world.launch(pod).launch for pod in world.pods()] == [1, 2, 1, 2]


def test_a_launch_is_not_given_up_before_its_kubelet_has_told_what_became_of_it(
    rarely_listing: World,
) -> None:
    world = rarely_listing
    uid, (pod,) = unpulled(world, 1)
    with world.outage():
        world.wait(180)
    world.wait(KUBELET_SECONDS)
    world.cluster.set_pod_status(pod, STARTED)
    world.wait(60)
    assert world.pods() == [pod]
    world.work(uid)
    assert told(world)[0] == "True"


def test_a_launch_that_still_waits_long_after_an_outage_is_given_up(rarely_listing: World) -> None:
    world = rarely_listing
    unpulled(world, 1)
    before = lists(world)
    with world.outage():
        world.wait(180)
    world.wait(90)
    assert lists(world) == before + 2, "one that ends the outage, one that confirms"
    assert len(world.pods()) == 2, "its slot went to the next task"


# The canary


@pytest.mark.parametrize("seconds", [60, 180])
def test_an_outage_is_no_time_of_the_canary(proving: ProvingWorld, seconds: float) -> None:
    proving.begin()
    with proving.outage():
        proving.wait(seconds)
    proving.wait(KUBELET_SECONDS)
    proving.probe(OPEN, CLOSED)
    assert told(proving, "IsolationVerified") == ("True", "Verified")


def test_creates_without_an_answer_are_no_time_of_the_canary(proving: ProvingWorld) -> None:
    for _ in range(200):
        error = TransientClusterError("failed calling webhook", status=500)
        proving.cluster.fail_next("create", error, kind=ObjectKind.POD)
    proving.begin()
    proving.wait(150)
    assert told(proving)[0] == "Unknown"
    assert "failed calling webhook" in proving.condition()["message"]
    proving.cluster.recover()
    proving.wait(60)
    proving.probe(OPEN, CLOSED)
    assert told(proving, "IsolationVerified") == ("True", "Verified")


@pytest.mark.parametrize("how", ["a lost event", "an outage"])
def test_a_canary_keeps_its_user_namespace_after_its_start_was_missed(
    proving: ProvingWorld, how: str
) -> None:
    proving.begin()
    canary = f"{proving.short}-canary-1"
    proving.cluster.set_pod_status(canary, without_sandbox(proving))
    proving.wait(1)
    if how == "an outage":
        with proving.outage():
            proving.wait(60)
        proving.wait(KUBELET_SECONDS)
    else:
        proving.cluster.lose_events(1)
    proving.cluster.set_pod_status(canary, PROBE_STARTED)
    proving.wait(40)
    proving.probe(OPEN, CLOSED)
    assert "canary-2" not in proving.made()
    pods = proving.cluster.objects(ObjectKind.POD).values()
    assert [raw["spec"]["hostUsers"] for raw in pods] == [False, False], "the launches"


def test_a_canary_that_still_has_no_sandbox_goes_without_user_namespace(
    proving: ProvingWorld,
) -> None:
    proving.begin()
    proving.cluster.set_pod_status(f"{proving.short}-canary-1", without_sandbox(proving))
    before = lists(proving)
    proving.wait(35)
    assert "canary-2" in proving.made()
    assert lists(proving) == before + 1


# The end


def test_an_end_that_is_published_is_not_taken_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    keep, patch = RunStore.write_final_status, world.cluster.patch_status
    failures = [OSError(errno.ENOSPC, "No space left on device")]

    def full_once(store: RunStore, status: Raw) -> None:
        if failures:
            raise failures.pop()
        keep(store, status)

    async def noted(kind: ObjectKind, name: str, body: Raw) -> Raw | None:
        found = await patch(kind, name, body)
        written.append(told(world)[0])
        return found

    monkeypatch.setattr(RunStore, "write_final_status", full_once)
    monkeypatch.setattr(world.cluster, "patch_status", noted)
    world.work(world.apply())
    world.wait(120)
    assert failures == []
    assert set(written[written.index("True") :]) == {"True"}
