"""Deletes Pods, on a cluster in memory."""

import asyncio
from pathlib import Path

import pytest

from securebench.cluster.port import Forbidden, ObjectKind
from securebench.controller.informers import PodInformer
from securebench.controller.object_writers import DELETE_AGAIN_SECONDS, RETRY_SECONDS, ObjectWriters
from securebench.errors import TransientClusterError
from securebench.run.decide.reconcile import Deletion
from securebench.run.observe.pods import pod_view
from securebench.run.plan.model import LaunchKey, Role
from support.build import (
    HARNESS,
    MONOTONIC,
    VERIFIER,
    FakeClock,
    VirtualLoop,
    context_of,
    ended,
    pod_status,
    raw_pod,
    view_of,
)
from support.fake_cluster import FakeCluster
from support.manifest_samples import RUN_UID

NAME = "sb-3f2a9c1e5b7d-0-1h1"


class World:
    def __init__(self):
        self.clock = FakeClock()
        self.cluster = FakeCluster(clock=self.clock)
        context = context_of(self.cluster, self.clock, Path())
        self.informer = PodInformer(self.cluster, "", 300.0, lambda: None)
        self.writers = ObjectWriters(context, RUN_UID, self.informer, lambda: None)
        self.runner = asyncio.Runner(loop_factory=lambda: VirtualLoop(self.clock))

    def delete(self, deletion, seconds=0.001):
        async def act():
            self.writers.deleter.delete(deletion)
            await asyncio.sleep(seconds)

        self.runner.run(act())

    def reap(self):
        assert self.writers.tasks.reap() is None

    def deletes(self):
        return self.cluster.requests["delete", ObjectKind.POD]


@pytest.fixture
def world():
    world = World()
    yield world
    world.runner.close()


def transient(**facts):
    return TransientClusterError("no answer", **facts)


def running_pod(world):
    made = world.runner.run(world.cluster.create(ObjectKind.POD, raw_pod(HARNESS)))
    world.cluster.set_pod_status(NAME, {"phase": "Running"})
    return made["metadata"]["uid"]


def deletion_grace(world):
    metadata = world.cluster.objects(ObjectKind.POD)[NAME]["metadata"]
    return metadata.get("deletionGracePeriodSeconds")


@pytest.mark.parametrize(("at_once", "grace"), [(True, 1), (False, 30)])
def test_a_deletion_leaves_the_pod_its_grace_unless_it_hurries(world, at_once, grace):
    world.delete(Deletion(NAME, running_pod(world), at_once=at_once))
    assert deletion_grace(world) == grace


def test_a_later_pod_of_that_name_stays(world):
    running_pod(world)
    world.delete(Deletion(NAME, "an-older-uid"))
    assert deletion_grace(world) is None


def test_a_deletion_whose_event_is_lost_does_not_spin(world):
    deletion = Deletion(NAME, running_pod(world))
    for _ in range(5):
        world.delete(deletion)
        world.reap()
    assert world.deletes() == 1
    world.clock.advance(DELETE_AGAIN_SECONDS)
    world.delete(deletion)
    assert world.deletes() == 2


def test_a_deletion_without_an_answer_is_repeated_soon(world):
    deletion = Deletion(NAME, running_pod(world))
    world.cluster.fail_next("delete", transient())
    world.delete(deletion)
    world.reap()
    world.delete(deletion)
    assert world.deletes() == 1
    world.clock.advance(RETRY_SECONDS)
    world.delete(deletion)
    assert world.deletes() == 2
    assert deletion_grace(world) == 30


def test_a_refused_deletion_is_repeated_and_told_once(world, caplog):
    deletion = Deletion(NAME, running_pod(world))
    world.runner.run(world.informer.list())
    for pause in (2, 4, 8, 16, 30, 30):
        world.cluster.fail_next("delete", Forbidden("the webhook denied it", status=403))
        world.delete(deletion)
        world.writers.observe()
        assert world.writers.next_try() == pytest.approx(world.clock.monotonic() + pause, abs=0.1)
        world.clock.advance(pause)
    assert caplog.messages == [f"Pod {NAME} is not deleted: the webhook denied it"]
    world.delete(deletion)
    assert deletion_grace(world) == 30


def test_a_later_pod_of_that_name_inherits_no_back_off(world):
    old = Deletion(NAME, running_pod(world))
    for _ in range(4):
        world.cluster.fail_next("delete", transient())
        world.delete(old)
        world.reap()
        world.clock.advance(60)
    world.cluster.fail_next("delete", transient())
    world.delete(old)
    world.reap()
    world.cluster.remove(ObjectKind.POD, NAME)
    new = Deletion(NAME, running_pod(world))
    world.delete(old)
    assert deletion_grace(world) is None
    world.delete(new)
    assert deletion_grace(world) == 30


@pytest.mark.parametrize(("pause", "want"), [(None, RETRY_SECONDS), (17.0, 17.0)])
def test_the_loop_wakes_when_a_deletion_is_repeated(world, pause, want):
    deletion = Deletion(NAME, running_pod(world))
    world.runner.run(world.informer.list())
    world.writers.observe()
    assert world.writers.next_try() is None
    world.cluster.fail_next("delete", transient(retry_after_seconds=pause))
    world.delete(deletion)
    assert world.writers.next_try() == pytest.approx(MONOTONIC + want, abs=0.01)
    world.clock.advance(want)
    world.writers.observe()
    assert world.writers.next_try() is None
    world.delete(deletion)
    assert world.deletes() == 2
    assert world.writers.next_try() == pytest.approx(
        MONOTONIC + want + DELETE_AGAIN_SECONDS, abs=0.01
    )


def test_a_pod_that_is_gone_wakes_nobody(world):
    deletion = Deletion(NAME, running_pod(world))
    world.runner.run(world.informer.list())
    world.delete(deletion)
    world.cluster.remove(ObjectKind.POD, NAME)
    world.runner.run(world.informer.list())
    world.writers.observe()
    assert world.writers.next_try() is None


KEPT = LaunchKey(7, 1, Role.VERIFIER, 1)


def test_a_sweep_takes_probing_pods_and_launches_that_go_on(world):
    labels = {"securebench.dev/role": "canary"}
    probe = {"metadata": {"name": "canary-1", "labels": labels}, "status": {"phase": "Succeeded"}}
    done = view_of(VERIFIER, pod_status("Succeeded"))
    ending = view_of(KEPT, pod_status("Running", ended("courier"), ended("check")))
    views = [pod_view(probe), view_of(HARNESS, pod_status("Running")), done, ending]
    world.runner.run(world.writers.deleter.sweep(views))
    swept = [call.name for call in world.cluster.calls if call.verb == "delete"]
    assert swept == ["canary-1", NAME]
