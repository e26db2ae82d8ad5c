import asyncio
import json
from contextlib import suppress
from dataclasses import replace
from unittest import mock

import pytest

from build import DOMAINS, NOW, FakeClock, VirtualLoop, ended, plan_of, pod_status, running, waiting
from fake_cluster import FakeCluster
from golden.manifest_samples import pods, run_plan, text_task
from securebench.cluster.port import ObjectKind
from securebench.controller.actuators.isolation import (
    START_SECONDS,
    CanaryAnswer,
    IsolationCheck,
    Prober,
    judge,
    probe_answer,
)
from securebench.controller.actuators.pod_mirror import PodMirror
from securebench.controller.process.settings import UserNamespaces
from securebench.core.clock import rfc3339
from securebench.core.errors import TransientClusterError
from securebench.run.observe.pods import pod_view
from securebench.run.pods.canary import ProbeTarget
from securebench.run.state.entries import Isolated

TARGETS = (
    ProbeTarget("api-server", "10.96.0.1", 443, "tcp"),
    ProbeTarget("dns", "10.96.0.10", 53, "udp"),
)
OPEN = {"api-server": "open", "dns": "open"}
CLOSED = {"api-server": "closed", "dns": "closed"}
PLAN = plan_of()
CONTROL, FIRST, SECOND = (
    f"sb-3f2a9c1e5b7d-{name}" for name in ("control-1", "canary-1", "canary-2")
)

JUDGEMENTS = {
    "all proven and closed": (OPEN, CLOSED, True, "closed: api-server, dns"),
    "one unproven": (
        OPEN | {"dns": "closed"},
        CLOSED,
        True,
        "closed: api-server; unproven (do not answer without the policy either): dns",
    ),
    "one open": (
        OPEN,
        CLOSED | {"dns": "open"},
        False,
        "a Pod under the deny-all policy reached: dns",
    ),
    "an unproven one is open": (
        CLOSED | {"api-server": "open"},
        CLOSED | {"dns": "open"},
        False,
        "a Pod under the deny-all policy reached: dns",
    ),
    "nothing proven": (
        CLOSED,
        CLOSED,
        False,
        "no target answered without the policy, so closed targets prove nothing",
    ),
    "no control": (
        {},
        CLOSED,
        False,
        "no target answered without the policy, so closed targets prove nothing",
    ),
    "a proven target was not probed": (
        OPEN,
        {"api-server": "closed"},
        False,
        "a Pod under the deny-all policy reached: dns",
    ),
    "a state that nobody knows": (
        OPEN,
        CLOSED | {"dns": "maybe"},
        False,
        "a Pod under the deny-all policy reached: dns",
    ),
    "nothing at all": (
        {},
        {},
        False,
        "no target answered without the policy, so closed targets prove nothing",
    ),
}


@pytest.mark.parametrize("name", JUDGEMENTS)
@pytest.mark.parametrize("namespaced", [True, False])
def test_judgement(name, namespaced):
    control, canary, verified, message = JUDGEMENTS[name]
    found = judge(control, canary, user_namespaces=namespaced)
    assert found == Isolated(verified=verified, user_namespaces=namespaced, message=message)


REACHED = CLOSED | {"gateway": "open"}
GATEWAY_JUDGEMENTS = {
    "the gateway alone is open": (REACHED, True, "closed: api-server, dns; open: gateway"),
    "the gateway is closed": (
        CLOSED | {"gateway": "closed"},
        False,
        "a Pod of the run did not reach the run's gateway",
    ),
    "the gateway was not tried": (
        CLOSED,
        False,
        "a Pod of the run did not reach the run's gateway",
    ),
    "something else is open too": (
        REACHED | {"dns": "open"},
        False,
        "a Pod under the run's policies reached: dns",
    ),
}


@pytest.mark.parametrize("name", GATEWAY_JUDGEMENTS)
def test_judgement_of_a_run_with_a_gateway(name):
    canary, verified, message = GATEWAY_JUDGEMENTS[name]
    found = judge(OPEN, canary, user_namespaces=True, has_gateway=True)
    assert found == Isolated(verified=verified, user_namespaces=True, message=message)


def test_a_run_without_a_gateway_may_reach_none():
    found = judge(OPEN, REACHED, user_namespaces=True)
    assert found.message == "a Pod under the deny-all policy reached: gateway"
    assert not found.verified


# The node

NODE = (
    ProbeTarget("kubelet", "192.0.2.1", 10250, "tcp", is_node=True),
    ProbeTarget("extra-1", "fd00::1", 22, "tcp", is_node=True),
)
BESIDE = OPEN | {"kubelet": "open", "extra-1": "open"}
SHUT = dict.fromkeys(BESIDE, "closed")
WAY = (
    "; spec.isolation.allow: [Node] accepts addresses of the node, and every record then says"
    " labels.node_reachable: true"
)
REACHED_NODE = "a Pod under the deny-all policy reached: "
ACCEPTED = "; open on the node, which spec.isolation.allow accepts: "
UNPROVEN = "; unproven (do not answer without the policy either): "
KUBELET = {"kubelet": "open"}
NODE_JUDGEMENTS = {
    "refused": (False, BESIDE, SHUT | KUBELET, f"{REACHED_NODE}kubelet{WAY}"),
    "refused beside another target": (
        False,
        BESIDE,
        SHUT | KUBELET | {"dns": "open"},
        f"{REACHED_NODE}dns, kubelet",
    ),
    "closed": (False, BESIDE, SHUT, "closed: api-server, dns, extra-1, kubelet"),
    "closed where it may be open": (
        True,
        BESIDE,
        SHUT,
        "closed: api-server, dns, extra-1, kubelet",
    ),
    "accepted": (
        True,
        BESIDE,
        SHUT | KUBELET,
        f"closed: api-server, dns, extra-1{ACCEPTED}kubelet (192.0.2.1:10250)",
    ),
    "all of it accepted": (
        True,
        BESIDE,
        SHUT | KUBELET | {"extra-1": "open"},
        f"closed: api-server, dns{ACCEPTED}kubelet (192.0.2.1:10250), extra-1 ([fd00::1]:22)",
    ),
    "accepted, not reached by the control": (
        True,
        OPEN | {"kubelet": "closed", "extra-1": "closed"},
        SHUT | KUBELET,
        f"closed: api-server, dns{ACCEPTED}kubelet (192.0.2.1:10250){UNPROVEN}extra-1",
    ),
    "accepted beside another target": (
        True,
        BESIDE,
        SHUT | KUBELET | {"api-server": "open"},
        f"{REACHED_NODE}api-server",
    ),
    "a state that nobody knows": (
        True,
        BESIDE,
        SHUT | {"kubelet": "maybe"},
        f"{REACHED_NODE}kubelet",
    ),
    "nothing but the node answers the control": (
        True,
        dict.fromkeys(BESIDE, "closed") | KUBELET,
        SHUT | KUBELET,
        "no target answered without the policy, so closed targets prove nothing",
    ),
}


@pytest.mark.parametrize("name", NODE_JUDGEMENTS)
def test_judgement_of_the_node(name):
    allowed, control, canary, message = NODE_JUDGEMENTS[name]
    found = judge(control, canary, user_namespaces=True, node=NODE, is_node_allowed=allowed)
    assert found == Isolated(
        verified=message.startswith("closed: "),
        user_namespaces=True,
        message=message,
        node_reachable=canary["kubelet"] == "open",
    )


def test_a_node_that_is_reached_beside_the_gateway():
    canary = SHUT | KUBELET | {"gateway": "open"}
    refused, accepted = (
        judge(
            BESIDE, canary, user_namespaces=True, has_gateway=True, node=NODE, is_node_allowed=each
        )
        for each in (False, True)
    )
    assert refused.message == f"a Pod under the run's policies reached: kubelet{WAY}"
    assert accepted.verified
    assert accepted.message == (
        f"closed: api-server, dns, extra-1; open: gateway{ACCEPTED}kubelet (192.0.2.1:10250)"
    )


def probe(code=0, message=""):
    return pod_status("Succeeded", ended("probe", code, message=message))


def answer(states, kernel="6.1.0"):
    return probe(0, json.dumps({"v": 1, "targets": states, "kernel": kernel}))


def canary_view(status):
    raw = {"metadata": {"labels": {"securebench.dev/role": "canary"}}, "status": status}
    view = pod_view(raw)
    assert view is not None
    return view


STATES = {
    "an answer": (answer(CLOSED), CanaryAnswer(CLOSED, "6.1.0")),
    "no kernel": (probe(0, json.dumps({"v": 1, "targets": CLOSED})), CanaryAnswer(CLOSED, "")),
    "a broken probe": (probe(1, json.dumps({"v": 1, "targets": CLOSED})), None),
    "no message": (probe(0), None),
    "no targets": (probe(0, '{"v": 1}'), None),
    "still running": (pod_status("Running", running("probe")), None),
    "no container": (pod_status("Failed"), None),
}


@pytest.mark.parametrize("name", STATES)
def test_what_a_probe_said(name):
    status, want = STATES[name]
    assert probe_answer(canary_view(status)) == want


# The probing Pods


class World:
    """Runs a check while a script plays the kubelet."""

    def __init__(self):
        self.clock = FakeClock()
        self.cluster = FakeCluster(clock=self.clock)
        self.mirror = PodMirror(self.cluster, "", self.clock, 60.0, lambda: None)
        self.runner = asyncio.Runner(loop_factory=lambda: VirtualLoop(self.clock))

    def prove(self, kubelet, setting=UserNamespaces.AUTO, plan=PLAN, targets=TARGETS, **check):
        async def prove():
            follower = asyncio.create_task(self.mirror.follow(await self.mirror.list()))
            helper = asyncio.create_task(self.play(kubelet))
            prober = Prober(self.cluster, plan, self.mirror, self.clock)
            try:
                return await prober.prove(IsolationCheck(targets, setting, 120, **check))
            finally:
                for task in (follower, helper):
                    task.cancel()
                    with suppress(asyncio.CancelledError):
                        await task

        return self.runner.run(prove())

    async def play(self, kubelet):
        """Give every Pod that is made the status that the script has for it, two seconds later."""
        done = set()
        while True:
            for name in set(self.cluster.objects(ObjectKind.POD)) - done:
                done.add(name)
                if name in kubelet:
                    await asyncio.sleep(2)
                    kubelet[name](self.cluster, name)
            await asyncio.sleep(0.5)

    def made(self):
        return [call.name for call in self.cluster.calls if call.verb == "create"]


def says(states, kernel="6.1.0"):
    return lambda cluster, name: cluster.set_pod_status(name, answer(states, kernel))


def stuck(cluster, name):
    cluster.set_pod_status(name, pod_status("Pending", waiting("probe", "CreateContainerError")))


def without_sandbox(cluster, name):
    conditions = (
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(NOW)},
        {"type": "PodReadyToStartContainers", "status": "False"},
    )
    cluster.set_pod_status(name, pod_status("Pending", conditions=conditions))


def late(kubelet):
    """Let a Pod wait for a node, longer than one that has a node may take to start."""

    def queued(cluster, name):
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        cluster.set_pod_status(name, pod_status("Pending", conditions=[condition]))
        asyncio.get_running_loop().call_later(2 * START_SECONDS, kubelet, cluster, name)

    return queued


def vanishes(cluster, name):
    cluster.remove(ObjectKind.POD, name)


def breaks(cluster, name):
    cluster.set_pod_status(name, probe(1))


@pytest.fixture
def world():
    world = World()
    yield world
    world.runner.close()


def test_a_canary_that_reaches_nothing_verifies(world):
    found = world.prove({CONTROL: says(OPEN), FIRST: says(CLOSED)})
    assert found == Isolated(verified=True, user_namespaces=True, message="closed: api-server, dns")
    assert sorted(world.made()) == [FIRST, CONTROL]
    assert world.cluster.objects(ObjectKind.POD) == {}


@pytest.mark.parametrize("states", [REACHED, CLOSED])
def test_a_canary_of_a_run_with_a_gateway_must_reach_it(world, states):
    plan = replace(PLAN, egress=replace(DOMAINS, gateway="10.96.0.7"))
    found = world.prove({CONTROL: says(OPEN), FIRST: says(states)}, plan=plan)
    assert found.verified is (states is REACHED)


def test_a_canary_that_gets_out_does_not(world):
    found = world.prove({CONTROL: says(OPEN), FIRST: says(OPEN)})
    assert not found.verified
    assert world.cluster.objects(ObjectKind.POD) == {}


@pytest.mark.parametrize("allowed", [True, False])
def test_a_canary_that_reaches_its_node(world, allowed):
    kubelet = {CONTROL: says(BESIDE), FIRST: says(SHUT | KUBELET)}
    found = world.prove(kubelet, targets=(*TARGETS, *NODE), is_node_allowed=allowed)
    assert (found.verified, found.node_reachable) == (allowed, True)


@pytest.mark.parametrize("kubelet", [stuck, without_sandbox])
def test_without_user_namespaces_where_they_do_not_start(world, kubelet):
    found = world.prove({CONTROL: says(OPEN), FIRST: kubelet, SECOND: says(CLOSED)})
    assert (found.verified, found.user_namespaces) == (True, False)
    assert world.made()[-1] == SECOND


def test_a_full_cluster_takes_no_user_namespace_away(world):
    found = world.prove({CONTROL: says(OPEN), FIRST: late(says(CLOSED)), SECOND: says(CLOSED)})
    assert (found.verified, found.user_namespaces) == (True, True)
    assert SECOND not in world.made()


def test_never_does_not_even_try_them(world):
    found = world.prove({CONTROL: says(OPEN), SECOND: says(CLOSED)}, UserNamespaces.NEVER)
    assert (found.verified, found.user_namespaces) == (True, False)
    assert FIRST not in world.made()


def test_require_fails_closed(world):
    found = world.prove({CONTROL: says(OPEN), FIRST: stuck}, UserNamespaces.REQUIRE)
    assert not found.verified
    assert "the setting is Require" in found.message
    assert SECOND not in world.made()


def test_no_answer_in_time_fails_closed(world):
    found = world.prove({CONTROL: says(OPEN), FIRST: stuck})
    assert found == Isolated(
        verified=False,
        user_namespaces=False,
        message="no answer within 120 seconds: waiting for the isolation canary: "
        "cannot start container probe: CreateContainerError",
    )
    assert world.clock.now() == pytest.approx(NOW + 120, abs=1)


SANDBOXED = run_plan(text_task(), pods=pods(runtime_class="gvisor"))
GVISOR = "4.19.0-gvisor"


def test_a_required_sandbox_that_was_seen_verifies(world):
    kubelet = {CONTROL: says(OPEN), FIRST: says(CLOSED, GVISOR)}
    found = world.prove(kubelet, plan=SANDBOXED, must_be_sandboxed=True)
    assert (found.verified, found.sandboxed) == (True, True)


@pytest.mark.parametrize(("kernel", "shown"), [("6.1.0", "6.1.0"), ("", "(unknown)")])
def test_an_ordinary_kernel_below_a_required_sandbox_fails_closed(world, kernel, shown):
    kubelet = {CONTROL: says(OPEN, GVISOR), FIRST: says(CLOSED, kernel)}
    found = world.prove(kubelet, plan=SANDBOXED, must_be_sandboxed=True)
    assert found == Isolated(
        verified=False,
        user_namespaces=False,
        message="Pods of runtime class 'gvisor' must run in gVisor, but the canary found the "
        f"kernel {shown}; correct the handler of the RuntimeClass, or take it off "
        "settings.podTemplate.sandboxedRuntimeClassNames",
        sandboxed=False,
    )


SILENT = {
    "no answer in time": UserNamespaces.AUTO,
    "no user namespaces": UserNamespaces.REQUIRE,
}


@pytest.mark.parametrize("name", SILENT)
def test_a_required_sandbox_that_was_not_measured_fails_closed(world, name):
    kubelet = {CONTROL: says(OPEN), FIRST: stuck}
    found = world.prove(kubelet, SILENT[name], plan=SANDBOXED, must_be_sandboxed=True)
    assert (found.verified, found.sandboxed) == (False, False)


TROUBLE = {
    "the canary vanishes": ({CONTROL: says(OPEN), SECOND: vanishes}, UserNamespaces.NEVER),
    "the control vanishes": ({CONTROL: vanishes, SECOND: says(CLOSED)}, UserNamespaces.NEVER),
    "the control breaks": ({CONTROL: breaks, SECOND: says(CLOSED)}, UserNamespaces.NEVER),
    "the canary breaks": ({CONTROL: says(OPEN), SECOND: breaks}, UserNamespaces.NEVER),
}


@pytest.mark.parametrize("name", TROUBLE)
def test_trouble_of_the_cluster_is_no_finding(world, name):
    kubelet, setting = TROUBLE[name]
    with pytest.raises(TransientClusterError):
        world.prove(kubelet, setting)


def test_probes_of_an_earlier_process_are_read(world):
    async def earlier():
        await Prober(world.cluster, PLAN, world.mirror, world.clock).prove(
            IsolationCheck(TARGETS, UserNamespaces.AUTO, 1)
        )

    with mock.patch.object(world.cluster, "delete", mock.AsyncMock()):
        world.runner.run(earlier())
    found = world.prove({CONTROL: says(OPEN), FIRST: says(CLOSED)})
    assert found.verified
