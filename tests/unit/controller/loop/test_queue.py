"""Pods that a queue holds back or takes back, as Kueue does it."""

import pytest

from securebench.clock import rfc3339
from securebench.cluster.port import ObjectKind, metadata
from securebench.run.observe.pods import pod_view
from support.build import NOW, ended, pod_status, running, waiting
from support.operator_world import World, opened

QUEUE = "kueue.x-k8s.io/queue-name"
GATE = {"name": "kueue.x-k8s.io/admission"}
PREEMPTED = "Preempted to accommodate a workload due to prioritization in the ClusterQueue"
GATED = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}


class QueueWorld(World):
    """An operator, and a queue that admits Pods when the test says so."""

    def apply_labelled(self, name, label, **spec):
        """Create a run with the queue's label."""
        self.labels = {QUEUE: label}
        return self.apply(name, **spec)

    def observe(self, kind, name="nightly", body=None):
        if kind == "ADDED" and getattr(self, "labels", None):
            labels = {"metadata": {"labels": self.labels}}
            self.cluster.edit(ObjectKind.BENCHMARK_RUN, name, labels)
        super().observe(kind, name, body)

    def queued(self):
        pods = self.cluster.objects(ObjectKind.POD).items()
        return sorted(name for name, raw in pods if QUEUE in metadata(raw)["labels"])

    def hold(self):
        """Put the gate on every labelled Pod that has no node."""
        for name in self.queued():
            if pod_view(self.cluster.objects(ObjectKind.POD)[name]).phase == "Pending":
                self.cluster.edit(ObjectKind.POD, name, {"spec": {"schedulingGates": [GATE]}})
                self.cluster.set_pod_status(name, pod_status("Pending", conditions=[GATED]))
        self.wait()

    def admit(self):
        for name in self.queued():
            self.cluster.edit(ObjectKind.POD, name, {"spec": {"schedulingGates": []}})
            self.cluster.set_pod_status(name, pod_status("Pending"))
        self.wait()

    def preempt(self, name):
        """End a Pod as the queue does: a condition, then the deletion, then the kubelet."""
        condition = {
            "type": "TerminationTarget",
            "status": "True",
            "reason": "WorkloadEvictedDueToPreempted",
            "message": PREEMPTED,
        }
        status = pod_status("Running", running("courier"), running("harness"))
        self.cluster.set_pod_status(name, status | {"conditions": [condition]})
        self.cluster.edit(
            ObjectKind.POD, name, {"metadata": {"deletionTimestamp": rfc3339(self.clock.now())}}
        )
        ends = (ended("courier", 1), ended("harness", 137))
        self.cluster.set_pod_status(name, pod_status("Failed", *ends, conditions=[condition]))
        self.wait()

    def events(self):
        return [
            (event["reason"], event["note"])
            for event in self.cluster.objects(ObjectKind.EVENT).values()
        ]


@pytest.fixture
def kueue(tmp_path):
    with opened(QueueWorld, tmp_path) as world:
        yield world


def test_pods_in_a_queue_say_so_for_as_long_as_it_takes(kueue):
    uid = kueue.apply_labelled("nightly", "team-a", parallelism=2)
    kueue.hold()
    kueue.wait(3)
    succeeded = kueue.condition()
    assert (succeeded["status"], succeeded["reason"], succeeded["message"]) == (
        "Unknown",
        "SchedulingGated",
        "Waiting: 2 Pods in queue team-a",
    )
    assert ("SchedulingGated", "Waiting: Pods in queue team-a") in kueue.events()
    names = kueue.queued()
    kueue.wait(7200)
    assert kueue.queued() == names, "the time in the queue ended a launch"
    kueue.admit()
    kueue.wait(3)
    assert kueue.condition()["message"] == "waiting for a node"
    kueue.work(uid)
    assert kueue.condition()["reason"] == "Completed"


def test_an_image_that_cannot_be_pulled_has_its_time_after_the_queue(kueue):
    kueue.apply_labelled("nightly", "team-a", parallelism=1)
    kueue.hold()
    kueue.wait(7200)
    kueue.admit()
    (name,) = kueue.queued()
    scheduled = {
        "type": "PodScheduled",
        "status": "True",
        "lastTransitionTime": rfc3339(kueue.clock.now()),
    }
    slow = waiting("harness", "ErrImagePull", "connection refused", image="x:1")
    kueue.cluster.set_pod_status(name, pod_status("Pending", slow, conditions=[scheduled]))
    kueue.wait(30)
    assert "LaunchLost" not in dict(kueue.events())
    kueue.wait(40)
    assert "connection refused" in dict(kueue.events())["LaunchLost"]


def test_a_pod_that_the_queue_takes_back_is_launched_again(kueue):
    uid = kueue.apply_labelled("nightly", "team-a", parallelism=2)
    first, _ = kueue.queued()
    kueue.preempt(first)
    lost = [note for reason, note in kueue.events() if reason == "LaunchLost"]
    assert len(lost) == 1
    assert f"WorkloadEvictedDueToPreempted: {PREEMPTED}" in lost[0]
    kueue.wait(30)
    kueue.work(uid)
    assert kueue.condition()["reason"] == "Completed"
    assert kueue.run()["status"]["tasks"]["agent"] == 0


def test_what_waits_in_a_queue_leaves_the_window_to_other_runs(tmp_path):
    bounds = {"maxStarting": 2, "maxUnschedulable": 1}
    with opened(QueueWorld, tmp_path, creation=bounds) as world:
        world.apply_labelled("held", "team-a", parallelism=2)
        assert len(world.queued()) == 2
        world.hold()
        world.labels = {}
        world.apply("free", parallelism=2)
        assert (len(world.queued()), len(world.pods())) == (2, 4)


def test_what_waits_in_a_queue_pulls_nothing(tmp_path):
    with opened(QueueWorld, tmp_path, creation={"firstPulls": 2}) as world:
        world.apply_labelled("held", "team-a", parallelism=2)
        world.hold()
        world.labels = {}
        world.apply("free", parallelism=2)
        assert (len(world.queued()), len(world.pods())) == (2, 4)


def test_canary_and_gateway_go_past_the_queue(tmp_path):
    with opened(QueueWorld, tmp_path, queue_name="everyone") as world:
        world.apply(isolation={"require": "Verified"})
        assert world.pods()
        assert world.queued() == []
    with opened(QueueWorld, tmp_path / "second", queue_name="everyone") as world:
        world.apply(parallelism=2)
        raws = world.cluster.objects(ObjectKind.POD)
        assert [metadata(raws[name])["labels"][QUEUE] for name in world.queued()] == [
            "everyone"
        ] * 2


def test_a_gate_of_somebody_else_is_named(kueue):
    kueue.apply(parallelism=1)
    (name,) = kueue.pods()
    gate = {"spec": {"schedulingGates": [{"name": "example.com/hold"}]}}
    kueue.cluster.edit(ObjectKind.POD, name, gate)
    kueue.wait(3)
    assert kueue.condition()["message"] == "Waiting: 1 Pod with scheduling gate example.com/hold"


def test_pods_in_a_queue_are_told_beside_those_that_work(kueue):
    kueue.apply_labelled("nightly", "team-a", parallelism=2)
    first, second = kueue.queued()
    kueue.hold()
    kueue.cluster.edit(ObjectKind.POD, first, {"spec": {"schedulingGates": []}})
    kueue.cluster.set_pod_status(first, pod_status("Running", running("harness")))
    kueue.wait(NOW + 8 - kueue.clock.now())
    succeeded = kueue.condition()
    assert (succeeded["reason"], succeeded["message"]) == (
        "Running",
        "Waiting: 1 Pod in queue team-a",
    )
    assert second in kueue.queued()
