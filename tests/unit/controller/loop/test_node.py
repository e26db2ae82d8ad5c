"""A run whose Pods reach their node: whole runs, with everything real but time and cluster."""

import json

import pytest

from securebench.cluster.port import ObjectKind
from securebench.controller.process import probe_targets
from securebench.protocol.supervise import ProbeTarget
from support.build import settings_of
from support.operator_world import World, opened

TARGETS = (
    ProbeTarget("api-server", "10.96.0.1", 443, "tcp"),
    ProbeTarget("kubelet", "192.0.2.1", 10250, "tcp", is_node=True),
)
OPEN = {"api-server": "open", "kubelet": "open"}
CLOSED = {"api-server": "closed", "kubelet": "closed"}
ALLOWED = {"require": "Verified", "allow": ["Node"]}


def test_the_node_counts_by_its_address(tmp_path):
    canary = {"extra_targets": ["192.0.2.1:22", "10.0.0.9:10250"]}
    settings = settings_of(tmp_path, canary=canary)
    environment = {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}
    targets = list(probe_targets(settings, environment, ("192.0.2.1",)))
    assert [target.name for target in targets if target.is_node] == ["kubelet", "extra-1"]
    names = ["api-server", "kubelet", "dns", "metadata", "outside", "extra-1", "extra-2"]
    assert [target.name for target in targets] == names


def test_an_api_server_at_the_nodes_own_address_is_the_node(tmp_path):
    environment = {"KUBERNETES_SERVICE_HOST": "192.0.2.1", "KUBERNETES_SERVICE_PORT": "6443"}
    target, *_ = probe_targets(settings_of(tmp_path), environment, ())
    assert target == ProbeTarget("api-server", "192.0.2.1", 6443, "tcp", is_node=True)


class NodeWorld(World):
    """An operator with two targets, of which Pods under the policy reach ``reached``."""

    def __init__(self, root):
        super().__init__(root, targets=TARGETS)
        self.reached = {"kubelet": "open"}

    def begin_again(self):
        self.restart()
        for name in self.cluster.objects(ObjectKind.BENCHMARK_RUN):
            self.observe(None, name)

    def find(self):
        """Let the probing Pods say what they found."""
        self.probe(OPEN, CLOSED | self.reached)

    def labels(self, uid):
        lines = (self.root / "runs" / uid / "candidates.jsonl").read_text().splitlines()
        return [json.loads(line)["labels"] for line in lines]


@pytest.fixture
def world(tmp_path):
    with opened(NodeWorld, tmp_path) as world:
        yield world


def test_a_node_that_is_reached_starts_no_run(world):
    world.apply(isolation={"require": "Verified"})
    world.find()
    assert world.condition()["reason"] == "IsolationNotVerified"
    message = world.condition("IsolationVerified")["message"]
    assert message.startswith("a Pod under the deny-all policy reached: kubelet; spec.isolation")
    assert "spec.isolation.allow: [Node]" in message


@pytest.mark.parametrize("restart", [False, True])
def test_a_run_may_allow_it_and_every_record_says_so(world, restart):
    uid = world.apply(isolation=ALLOWED)
    world.find()
    if restart:
        world.begin_again()
    world.work(uid)
    assert world.condition()["reason"] == "Completed"
    verified = world.condition("IsolationVerified")
    assert verified["status"] == "True"
    assert "kubelet (192.0.2.1:10250)" in verified["message"]
    labels = world.labels(uid)
    assert [(each["isolation"], each["node_reachable"]) for each in labels] == [
        ("verified", True),
        ("verified", True),
    ]


def test_what_is_not_the_node_stays_closed(world):
    world.reached = OPEN
    world.apply(isolation=ALLOWED)
    world.find()
    assert world.condition()["reason"] == "IsolationNotVerified"
    message = world.condition("IsolationVerified")["message"]
    assert message == "a Pod under the deny-all policy reached: api-server"


def test_an_allowed_node_that_is_closed_makes_no_label(world):
    world.reached = {}
    uid = world.apply(isolation=ALLOWED)
    world.find()
    world.work(uid)
    assert [each["node_reachable"] for each in world.labels(uid)] == [False, False]


def test_where_no_canary_ran_nothing_was_reached(world):
    uid = world.apply(isolation={"require": "Declared", "allow": ["Node"]})
    world.work(uid)
    (labels, _) = world.labels(uid)
    assert (labels["isolation"], labels["node_reachable"]) == ("declared", False)


def test_a_resumed_run_says_what_its_own_canary_found(world):
    first = world.apply(isolation=ALLOWED, runId="n", taskSelector={"limit": 1})
    world.find()
    world.work(first)
    world.reached = {}
    second = world.apply(
        "later", isolation={"require": "Verified"}, runId="n", resumeFrom={"run": "nightly"}
    )
    world.find()
    world.work(second)
    assert world.condition(name="later")["reason"] == "Completed"
    assert [each["node_reachable"] for each in world.labels(second)] == [True, False]
