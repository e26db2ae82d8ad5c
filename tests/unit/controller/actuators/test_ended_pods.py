import asyncio
from pathlib import Path

import pytest

from securebench.cluster.port import ObjectKind, QuotaExceeded, WatchExpired
from securebench.controller import object_writers
from securebench.controller.informers import PodInformer
from securebench.controller.object_writers import (
    BATCH_PODS,
    BATCH_SECONDS,
    DELETE_AGAIN_SECONDS,
    PHASE_SECONDS,
    RETRY_SECONDS,
    ObjectWriters,
)
from securebench.errors import PermanentClusterError, TransientClusterError
from securebench.run.decide.reconcile import Deletion
from securebench.run.plan.model import LaunchKey, Role, pod_name
from support.build import FakeClock, VirtualLoop, context_of, ended, pod_status, raw_pod
from support.fake_cluster import FakeCluster
from support.manifest_samples import RUN_UID

DONE = pod_status("Succeeded")
FAILED = pod_status("Failed")
RUNNING = pod_status("Running")
OTHER = {"sb-another-0-1h1"}


def launch(task, role=Role.HARNESS):
    return LaunchKey(task, 1, role, 1)


def name(task, role=Role.HARNESS):
    return pod_name(RUN_UID, launch(task, role))


class World:
    def __init__(self):
        self.clock = FakeClock()
        self.cluster = FakeCluster(clock=self.clock)
        self.runner = asyncio.Runner(loop_factory=lambda: VirtualLoop(self.clock))
        self.informer = PodInformer(self.cluster, "", 300.0, lambda: None)
        context = context_of(self.cluster, self.clock, Path())
        self.writers = ObjectWriters(context, RUN_UID, self.informer, lambda: None)

    def add(self, task, status=DONE, role=Role.HARNESS):
        self.runner.run(self.cluster.create(ObjectKind.POD, raw_pod(launch(task, role))))
        self.cluster.set_pod_status(name(task, role), status)

    def look(self):
        self.runner.run(self.informer.list())

    def delete(self, *tasks, live=frozenset(OTHER), at_once=False):
        """Do as a pass of the loop does: want Pods deleted that are still shown."""
        shown = self.informer.pods
        wanted = [
            Deletion(name(task), shown[name(task)].uid, at_once=at_once)
            for task in tasks
            if name(task) in shown
        ]

        async def turn():
            urgent = bool(self.writers.retries.quota)
            self.writers.deleter.delete_all(wanted, live, is_urgent=urgent)
            await asyncio.sleep(0.001)
            assert self.writers.tasks.reap() is None

        self.runner.run(turn())

    def pods(self):
        return set(self.cluster.objects(ObjectKind.POD))

    def count(self, verb):
        return self.cluster.requests[verb, ObjectKind.POD]


@pytest.fixture
def world():
    world = World()
    yield world
    world.runner.close()


@pytest.fixture
def three(world):
    """Three Pods that have ended."""
    for task in range(3):
        world.add(task, (DONE, FAILED, DONE)[task])
    world.look()
    return world


def test_ended_pods_wait_for_others_and_go_with_one_request(three):
    three.delete(0)
    three.clock.advance(BATCH_SECONDS - 1)
    three.delete(0, 1, 2)
    assert three.pods() == {name(0), name(1), name(2)}
    three.clock.advance(1)
    three.delete(0, 1, 2)
    assert three.pods() == set()
    assert (three.count("delete_collection"), three.count("delete")) == (1, 0)


def test_the_loop_wakes_when_they_are_due(three):
    began = three.clock.monotonic()
    three.delete(0, 1)
    assert three.writers.next_try() == pytest.approx(began + BATCH_SECONDS, abs=0.1)
    three.clock.advance(BATCH_SECONDS)
    three.writers.observe()
    assert three.writers.next_try() is None


HURRIES = {
    "nothing is live": {"live": frozenset()},
    "a quota refuses": {},
}


@pytest.mark.parametrize("why", HURRIES)
def test_nobody_is_waited_for_where(three, why):
    if why == "a quota refuses":
        three.cluster.fail_next("create", QuotaExceeded("exceeded quota: count/pods"))

        async def body():
            return raw_pod(launch(9))

        async def create():
            three.writers.creator.create_launch(launch(9), body, lambda _: None)
            await asyncio.sleep(0.001)

        three.runner.run(create())
    three.delete(0, 1, 2, **HURRIES[why])
    assert three.pods() == set()
    assert three.count("delete_collection") == 1


def test_many_wait_no_longer(world):
    for task in range(BATCH_PODS):
        world.add(task)
    world.look()
    world.delete(*range(BATCH_PODS - 1))
    assert len(world.pods()) == BATCH_PODS
    world.delete(*range(BATCH_PODS))
    assert world.pods() == set()


def test_one_pod_goes_alone(three):
    three.delete(0, live=frozenset())
    assert three.pods() == {name(1), name(2)}
    assert (three.count("delete_collection"), three.count("delete")) == (0, 1)


def test_pods_that_must_go_at_once_wait_for_nobody(three):
    three.delete(0, at_once=True)
    assert three.pods() == {name(1), name(2)}
    assert three.count("delete_collection") == 0


# Pods whose containers have ended, and whose phase is still to come

ENDING = pod_status("Running", ended("courier"), ended("harness"))


def test_a_pod_is_deleted_after_its_phase_is_there(three):
    three.add(3, ENDING)
    three.look()
    three.delete(0, 1, 2)
    three.clock.advance(BATCH_SECONDS)
    three.delete(0, 1, 2, 3)
    assert three.pods() == {name(3)}
    three.cluster.set_pod_status(name(3), DONE)
    three.look()
    three.clock.advance(BATCH_SECONDS)
    three.delete(3)
    assert three.pods() == set()
    assert (three.count("delete_collection"), three.count("delete")) == (1, 1)


def test_no_phase_is_waited_for_at_the_end_of_a_run(three):
    three.add(3, ENDING)
    three.look()
    three.delete(0, 1, 2, 3, live=frozenset())
    pods = three.cluster.objects(ObjectKind.POD)
    assert set(pods) == {name(3)}
    assert pods[name(3)]["metadata"]["deletionGracePeriodSeconds"] == 1


def test_pods_go_together_once_their_phases_are_there(world):
    for task in range(3):
        world.add(task, ENDING)
    world.look()
    world.delete(0, 1, 2)
    for task in range(3):
        world.cluster.set_pod_status(name(task), DONE)
    world.look()
    world.clock.advance(BATCH_SECONDS)
    world.delete(0, 1, 2)
    assert world.pods() == set()
    assert (world.count("delete_collection"), world.count("delete")) == (1, 0)


def test_a_phase_that_does_not_come_is_not_waited_for(world):
    world.add(0, ENDING)
    world.look()
    began = world.clock.monotonic()
    world.delete(0)
    assert world.pods() == {name(0)}
    assert world.writers.next_try() == pytest.approx(began + PHASE_SECONDS, abs=0.1)
    world.clock.advance(PHASE_SECONDS)
    world.delete(0)
    pod = world.cluster.objects(ObjectKind.POD)[name(0)]
    assert pod["metadata"]["deletionGracePeriodSeconds"] == 1


# What stays


def test_a_pod_that_is_kept_or_unread_stays(three):
    three.add(3)
    three.look()
    three.delete(0, 1, live=frozenset())
    assert three.pods() == {name(2), name(3)}
    assert three.count("delete_collection") == 1


def test_a_pod_of_a_live_launch_stays_although_its_events_were_lost(three):
    """It ended, and this process does not know."""
    three.add(5, RUNNING)
    three.look()
    three.cluster.set_pod_status(name(5), DONE)
    three.informer.resource_version = str(three.cluster.resource_version)
    three.delete(0, 1, 2, live={name(5)})
    three.clock.advance(BATCH_SECONDS)
    three.delete(0, 1, 2, live={name(5)})
    assert three.pods() == {name(5)}


def test_a_pod_that_ended_after_the_last_look_stays(three):
    """The request may be under way for long; what ends meanwhile is not meant."""
    three.add(5, RUNNING)
    three.look()
    three.add(6, DONE)
    three.cluster.set_pod_status(name(5), DONE)
    three.delete(0, 1, 2, live=frozenset())
    assert three.pods() == {name(5), name(6)}


def test_pods_that_run_or_are_no_launch_or_of_another_run_stay(three):
    foreign = raw_pod(launch(7))
    foreign["metadata"]["name"] = "foreign"
    foreign["metadata"]["labels"]["securebench.dev/run-uid"] = "another"
    gateway = raw_pod(launch(8))
    gateway["metadata"]["name"] = "gateway"
    gateway["metadata"]["labels"]["securebench.dev/role"] = "gateway"
    for body in (foreign, gateway):
        three.runner.run(three.cluster.create(ObjectKind.POD, body))
        three.cluster.set_pod_status(body["metadata"]["name"], DONE)
    three.add(4, RUNNING)
    three.look()
    three.delete(0, 1, 2, live=frozenset())
    assert three.pods() == {"foreign", "gateway", name(4)}


# Refusals


def test_without_the_right_pods_go_one_by_one(three):
    three.cluster.fail_next("delete_collection", PermanentClusterError("forbidden", status=403))
    three.delete(0, 1, live=frozenset())
    three.clock.advance(RETRY_SECONDS)
    three.delete(0, 1, 2, live=frozenset())
    assert three.pods() == set()
    assert (three.count("delete_collection"), three.count("delete")) == (1, 3)


REFUSALS = [WatchExpired("too old"), TransientClusterError("no answer")]


@pytest.mark.parametrize("error", REFUSALS)
def test_pods_that_were_not_deleted_together_go_alone(three, error):
    three.cluster.fail_next("delete_collection", error)
    three.delete(0, 1, live=frozenset())
    three.delete(0, 1, live=frozenset())
    assert three.count("delete") == 0
    three.clock.advance(RETRY_SECONDS)
    three.delete(0, 1, live=frozenset())
    assert three.pods() == {name(2)}
    assert (three.count("delete_collection"), three.count("delete")) == (1, 2)
    three.add(3)
    three.look()
    three.delete(2, 3, live=frozenset())
    assert three.pods() == set()
    assert three.count("delete_collection") == 2


def test_a_pod_whose_end_was_not_seen_is_deleted_again_later(three):
    three.delete(0, 1, live=frozenset())
    three.clock.advance(DELETE_AGAIN_SECONDS - 1)
    three.delete(0, 1, live=frozenset())
    assert three.count("delete") == 0
    three.clock.advance(1)
    three.delete(0, 1, live=frozenset())
    assert three.count("delete") == 2


def test_too_many_names_for_one_request(three, monkeypatch):
    monkeypatch.setattr(object_writers, "MAX_EXCLUDED", 1)
    three.clock.advance(1)
    three.delete(0, 1, 2, live={"a", "b"})
    three.clock.advance(BATCH_SECONDS)
    three.delete(0, 1, 2, live={"a", "b"})
    assert three.pods() == set()
    assert (three.count("delete_collection"), three.count("delete")) == (0, 3)
