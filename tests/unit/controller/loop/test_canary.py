"""Whole runs whose isolation has to be proven, with everything real but time and cluster."""

import json

import pytest

from securebench.cluster.port import ObjectKind, QuotaExceeded
from securebench.errors import PermanentClusterError, TransientClusterError
from securebench.protocol.supervise import ProbeTarget
from securebench.run.decide.canary import LOST_LIMIT
from support.build import ended, pod_status, running
from support.operator_world import World, opened

TARGETS = (ProbeTarget("dns", "10.96.0.10", 53, "udp"),)
OPEN, CLOSED = {"dns": "open"}, {"dns": "closed"}


class ProvingWorld(World):
    def __init__(self, root):
        super().__init__(root, targets=TARGETS)

    def begin(self, **spec):
        self.uid = self.apply(isolation={"require": "Verified"}, **spec)
        self.short = f"sb-{self.uid.replace('-', '')[:12]}"
        return self.uid

    def names(self):
        """Return the Pods that are not being deleted, without what they have in common."""
        pods = self.cluster.objects(ObjectKind.POD).items()
        living = [name for name, raw in pods if "deletionTimestamp" not in raw["metadata"]]
        return sorted(name.removeprefix(f"{self.short}-") for name in living)

    def made(self):
        """Return all Pods that were ever asked for."""
        calls = [call for call in self.cluster.calls if call.verb == "create"]
        names = [call.name for call in calls if call.kind is ObjectKind.POD]
        return [name.removeprefix(f"{self.short}-") for name in names]

    def lose(self, name):
        self.cluster.remove(ObjectKind.POD, f"{self.short}-{name}")
        self.wait(3)

    def records(self):
        lines = (self.root / "runs" / self.uid / "candidates.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def world(tmp_path):
    with opened(ProvingWorld, tmp_path) as world:
        yield world


def told(world, kind="Succeeded"):
    found = world.condition(kind)
    return found["status"], found["reason"]


def test_the_proof_comes_before_the_first_launch(world):
    uid = world.begin()
    assert world.names() == ["canary-1", "control-1"]
    assert told(world) == ("Unknown", "Probing")
    assert world.condition()["message"].startswith("waiting for the isolation canary")
    world.probe(OPEN, CLOSED)
    assert told(world, "IsolationVerified") == ("True", "Verified")
    assert world.names() == ["0-1h1", "1-1h1"]
    world.work(uid)
    assert told(world) == ("True", "Completed")
    assert [record["labels"]["isolation"] for record in world.records()] == ["verified"] * 2


def test_a_run_that_is_not_isolated_ends_with_all_its_records(world):
    world.begin()
    world.probe(OPEN, OPEN)
    assert told(world) == ("False", "IsolationNotVerified")
    message = "a Pod under the deny-all policy reached: dns"
    assert world.condition("IsolationVerified")["message"] == message
    ends = [(record["outcome"], record["failure_message"]) for record in world.records()]
    assert ends == [("cancelled", message)] * 2
    assert world.made() == ["control-1", "canary-1"]
    assert world.names() == []


@pytest.mark.parametrize("role", ["canary", "control"])
def test_one_that_is_lost_is_replaced_by_the_next_number(world, role):
    uid = world.begin()
    world.lose(f"{role}-1")
    assert f"{role}-2" in world.names()
    assert told(world) == ("Unknown", "Probing")
    world.probe(OPEN, CLOSED)
    world.work(uid)
    assert told(world) == ("True", "Completed")


def test_one_whose_node_goes_is_replaced(world):
    world.begin()
    name = f"{world.short}-canary-1"
    world.cluster.set_pod_status(name, pod_status("Running", running("probe")))
    world.runner.run(world.cluster.delete(ObjectKind.POD, name, uid=None, grace_seconds=30))
    world.wait(3)
    assert world.names() == ["canary-2", "control-1"]


def test_losses_without_end_end_the_run(world):
    world.begin()
    for number in range(1, LOST_LIMIT + 1):
        world.lose(f"canary-{number}")
        world.wait(2.0**number)
    assert told(world) == ("False", "IsolationNotVerified")
    assert "canary-5 gave no answer: it disappeared" in world.condition()["message"]
    assert {record["outcome"] for record in world.records()} == {"cancelled"}
    assert not any("h1" in name for name in world.made())


def test_a_canary_that_is_refused_for_good_ends_the_run_with_the_servers_words(world):
    error = PermanentClusterError("maximum memory usage per Container is 16Mi", status=422)
    world.cluster.fail_next("create", error, kind=ObjectKind.POD)
    world.begin()
    world.wait(5)
    assert told(world) == ("False", "PodRefused")
    assert world.condition()["message"] == error.reason
    ends = [(record["outcome"], record["failure_message"]) for record in world.records()]
    assert ends == [("cancelled", error.reason)] * 2
    assert world.names() == []


def test_a_full_quota_is_waited_for(world):
    for _ in range(60):
        error = QuotaExceeded("exceeded quota: of-admin")
        world.cluster.fail_next("create", error, kind=ObjectKind.POD)
    uid = world.begin()
    world.wait(200)
    assert told(world) == ("Unknown", "QuotaExceeded")
    world.wait(200)
    world.probe(OPEN, CLOSED)
    world.work(uid)
    assert told(world) == ("True", "Completed")


def test_no_answer_in_time_ends_the_run(world):
    world.begin()
    world.wait(125)
    assert told(world) == ("False", "IsolationNotVerified")
    assert world.condition()["message"].startswith("no answer within 120 seconds")


def test_the_next_process_takes_it_up_again(world):
    uid = world.begin()
    world.restart()
    world.observe(None)
    assert world.made() == ["control-1", "canary-1"]
    world.probe(OPEN, CLOSED)
    assert world.names() == ["0-1h1", "1-1h1"]
    world.restart()
    world.observe(None)
    world.work(uid)
    assert told(world) == ("True", "Completed")
    assert world.made()[:2] == ["control-1", "canary-1"]
    assert world.made().count("canary-1") == 1


def test_a_suspended_run_has_none(world):
    world.begin()
    world.edit(suspend=True)
    world.wait(5)
    assert world.names() == []
    assert told(world) == ("Unknown", "Suspended")
    world.edit(suspend=False)
    world.wait(5)
    world.probe(OPEN, CLOSED)
    assert world.names() == ["0-1h1", "1-1h1"]


@pytest.mark.parametrize("mode", ["Graceful", "Immediate"])
def test_a_run_that_is_cancelled_waits_for_none(world, mode):
    world.begin()
    world.edit(cancel=mode)
    world.wait(5)
    assert told(world) == ("False", "Cancelled")
    assert world.names() == []
    assert {record["outcome"] for record in world.records()} == {"cancelled"}


def test_a_policy_that_goes_meanwhile_is_restored_and_the_canary_replaced(world):
    uid = world.begin()
    policy = f"{world.short}-deny"
    world.cluster.remove(ObjectKind.NETWORK_POLICY, policy)
    world.wait(3)
    assert policy in world.cluster.objects(ObjectKind.NETWORK_POLICY)
    assert world.names() == ["canary-2", "control-1"]
    world.probe(OPEN, CLOSED)
    world.work(uid)
    assert told(world) == ("True", "Completed")


def test_no_canary_is_made_while_a_policy_cannot_be_restored(world):
    for _ in range(3):
        lost = TransientClusterError("no answer")
        world.cluster.fail_next("create", lost, kind=ObjectKind.NETWORK_POLICY)
    world.begin()
    world.wait(10)
    assert world.made() == []
    world.wait(10)
    assert world.names() == ["canary-1", "control-1"]


def test_a_create_without_an_answer_is_repeated(world):
    for _ in range(2):
        lost = TransientClusterError("no answer")
        world.cluster.fail_next("create", lost, before=False, kind=ObjectKind.POD)
    world.begin()
    world.probe(OPEN, CLOSED)
    assert world.names() == ["0-1h1", "1-1h1"]
    assert {"canary-2", "control-2"}.isdisjoint(world.made())


def test_a_broken_canary_says_so_while_the_next_one_waits(world):
    world.begin()
    canary = f"{world.short}-canary-1"
    world.cluster.set_pod_status(canary, pod_status("Running", running("probe")))
    world.cluster.set_pod_status(
        f"{world.short}-control-1", pod_status("Succeeded", ended("probe", 3))
    )
    world.wait(2.5)
    assert "control-1 gave no answer: it ended with exit code 3" in world.condition()["message"]
