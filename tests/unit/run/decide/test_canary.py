"""What is done about the canary of a run, decision by decision."""

import asyncio
import json
import math
from dataclasses import replace

import pytest

from securebench.clock import Instant, rfc3339
from securebench.cluster.port import ObjectKind
from securebench.run.decide.canary import (
    CANARY_MESSAGE,
    LOST_LIMIT,
    NO_CANARY,
    NO_GATEWAY,
    RETRY_SECONDS,
    START_SECONDS,
    CanaryAnswer,
    CanaryCheck,
    CanaryMemory,
    ObservedCanary,
    Probe,
    canary_waiting,
    decide,
    probe_answer,
)
from securebench.run.layout import numbered
from securebench.run.observe.pods import pod_view
from securebench.run.plan.model import ClusterFacts, PodUserNamespaces, Role
from securebench.run.pods.isolation import canary_pod, control_pod
from securebench.run.state.entries import IsolationResult
from support.build import (
    DOMAINS,
    MONOTONIC,
    NOW,
    FakeClock,
    ended,
    plan_of,
    pod_status,
    running,
    waiting,
)
from support.fake_cluster import FakeCluster
from support.manifest_samples import GATEWAY_ADDRESS, RUN_UID, pods, run_plan, text_task
from unit.run.decide.test_isolation import (
    BESIDE,
    CLOSED,
    KUBELET,
    NODE,
    OPEN,
    REACHED,
    SHUT,
    TARGETS,
)

PLAN = plan_of()
CONTROL, FIRST, SECOND = (
    f"sb-3f2a9c1e5b7d-{name}" for name in ("control-1", "canary-1", "canary-2")
)


def probe(code=0, message=""):
    return pod_status("Succeeded", ended("probe", code, message=message))


def answer(states, kernel="6.1.0", **more):
    return probe(0, json.dumps({"v": 1, "targets": states, "kernel": kernel, **more}))


def canary_view(status):
    raw = {"metadata": {"labels": {"securebench.dev/role": "canary"}}, "status": status}
    view = pod_view(raw)
    assert view is not None
    return view


STATES = {
    "an answer": (answer(CLOSED, seconds=2.5), CanaryAnswer(CLOSED, "6.1.0", seconds=2.5)),
    "no time": (answer(CLOSED), CanaryAnswer(CLOSED, "6.1.0")),
    "a time that is none": (answer(CLOSED, seconds="2"), CanaryAnswer(CLOSED, "6.1.0")),
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

SECONDS = 120.0
VERIFIED = IsolationResult(verified=True, user_namespaces=True, message="closed: api-server, dns")


class World:
    """Carries the decisions out at once while a script plays the kubelet, two seconds late."""

    def __init__(self):
        self.clock = FakeClock()
        self.cluster = FakeCluster(clock=self.clock)
        self.known = CanaryMemory()
        self.last_vanished = {}
        self.made = []
        self.is_network_ready = self.is_ready = True
        self.quota = ""
        self.listed_at = math.inf
        self.wall_offset = 0.0

    def prove(self, kubelet, plan=PLAN, targets=TARGETS, seconds=200, **check):
        """Return what is found, or None after so many seconds."""
        sandbox, gateway = plan.pods.runtime_class, plan.egress is not None
        aim = CanaryCheck(targets, SECONDS, runtime_class=sandbox, has_gateway=gateway, **check)
        due = {}
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            step = self.look(aim)
            if step.found is not None:
                return step.found
            for view in step.delete:
                self.remove(view.name)
            for probe in step.start:
                due[self.make(plan, targets, probe)] = self.clock.now() + 2
            self.clock.advance(0.5)
            for name in [name for name, at in due.items() if self.clock.now() >= at]:
                if name in kubelet and name in self.pods():
                    due[name] += kubelet[name](self, name) or float("inf")
        return None

    def look(self, check):
        views = {name: pod_view(raw) for name, raw in self.pods().items()}
        seen = ObservedCanary(
            RUN_UID,
            views,
            self.last_vanished,
            self.is_network_ready,
            self.is_ready,
            self.quota,
            self.listed_at,
        )
        wall, monotonic = self.clock.instant()
        step = decide(seen, check, self.known, Instant(wall + self.wall_offset, monotonic))
        self.known = step.memory
        return step

    def make(self, plan, targets, probe):
        gateway = GATEWAY_ADDRESS if plan.has_gateway else ""
        facts = ClusterFacts(gateway, probe.user_namespaces, 0)
        body = (
            control_pod(plan, probe.number, targets)
            if probe.role is Role.CONTROL
            else canary_pod(plan, probe.number, targets, facts, probe.quiet_seconds)
        )
        with asyncio.Runner() as runner:
            runner.run(self.cluster.create(ObjectKind.POD, body))
        self.made.append(body["metadata"]["name"])
        return self.made[-1]

    def remove(self, name):
        view = pod_view(self.cluster.objects(ObjectKind.POD)[name])
        self.last_vanished[view.role] = numbered(name)
        self.cluster.remove(ObjectKind.POD, name)

    def pods(self):
        return self.cluster.objects(ObjectKind.POD)


def sets(status):
    """Return a script that gives a Pod a status."""

    def play(world, name):
        world.cluster.set_pod_status(name, status)

    return play


def says(states, kernel="6.1.0", **more):
    return sets(answer(states, kernel, **more))


NO_SANDBOX = (
    {"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(NOW)},
    {"type": "PodReadyToStartContainers", "status": "False"},
)
stuck = sets(pod_status("Pending", waiting("probe", "CreateContainerError")))
without_sandbox = sets(pod_status("Pending", conditions=NO_SANDBOX))
breaks = sets(probe(1))
evicted = sets(pod_status("Failed", reason="Evicted"))


def late(play, seconds=2 * START_SECONDS):
    """Let a Pod wait for a node, longer than one that has a node may take to start."""
    seen = set()

    def queued(world, name):
        if name in seen:
            return play(world, name)
        seen.add(name)
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        world.cluster.set_pod_status(name, pod_status("Pending", conditions=[condition]))
        return seconds

    return queued


def vanishes(world, name):
    world.remove(name)


def deleted(world, name):
    world.cluster.set_pod_status(name, pod_status("Running", running("probe")))
    with asyncio.Runner() as runner:
        runner.run(world.cluster.delete(ObjectKind.POD, name, uid=None, grace_seconds=30))


def answers_and_goes(world, name):
    if world.pods()[name]["status"]["phase"] == "Succeeded":
        return world.remove(name)
    says(CLOSED)(world, name)
    return 1


def both(play):
    return {FIRST: play, SECOND: play}


WITH_GATEWAY = replace(PLAN, egress=DOMAINS)


@pytest.fixture
def world():
    return World()


def test_a_canary_that_reaches_nothing_verifies(world):
    assert world.prove({CONTROL: says(OPEN), FIRST: says(CLOSED)}) == VERIFIED
    assert sorted(world.made) == [FIRST, CONTROL]


@pytest.mark.parametrize("states", [REACHED, CLOSED])
def test_a_canary_of_a_run_with_a_gateway_must_reach_it(world, states):
    found = world.prove({CONTROL: says(OPEN), **both(says(states))}, plan=WITH_GATEWAY)
    assert found.verified is (states is REACHED)
    assert found.message.startswith("closed:" if found.verified else "a Pod of the run did not")


def test_a_canary_that_gets_out_does_not(world):
    assert not world.prove({CONTROL: says(OPEN), FIRST: says(OPEN)}).verified


@pytest.mark.parametrize("allowed", [True, False])
def test_a_canary_that_reaches_its_node(world, allowed):
    kubelet = {CONTROL: says(BESIDE), FIRST: says(SHUT | KUBELET)}
    found = world.prove(kubelet, targets=(*TARGETS, *NODE), is_node_allowed=allowed)
    assert (found.verified, found.node_reachable) == (allowed, True)


def test_where_the_user_does_without_none_is_made(world):
    step = world.look(None)
    assert (step.found, step.start) == (NO_CANARY, ())
    world.is_ready = False
    assert world.look(None).found is None


# User namespaces


@pytest.mark.parametrize("play", [stuck, without_sandbox, breaks])
def test_without_user_namespaces_where_they_do_not_start(world, play):
    found = world.prove({CONTROL: says(OPEN), FIRST: play, SECOND: says(CLOSED)})
    assert (found.verified, found.user_namespaces) == (True, False)
    assert world.made[-1] == SECOND
    assert "hostUsers" not in world.pods()[SECOND]["spec"]


def test_a_full_cluster_takes_no_user_namespace_away(world):
    found = world.prove({CONTROL: says(OPEN), FIRST: late(says(CLOSED)), SECOND: says(CLOSED)})
    assert (found.verified, found.user_namespaces) == (True, True)
    assert SECOND not in world.made


def test_an_eviction_takes_no_user_namespace_away(world):
    found = world.prove({CONTROL: says(OPEN), FIRST: evicted, SECOND: says(CLOSED)})
    assert (found.verified, found.user_namespaces) == (True, True)


def test_never_does_not_even_try_them(world):
    kubelet = {CONTROL: says(OPEN), FIRST: says(CLOSED)}
    found = world.prove(kubelet, may_have_user_namespaces=False)
    assert (found.verified, found.user_namespaces) == (True, False)
    assert "hostUsers" not in world.pods()[FIRST]["spec"]


def test_never_is_not_proven_by_an_earlier_canary_that_had_one(world):
    world.make(PLAN, TARGETS, Probe(Role.CANARY, 1, PodUserNamespaces.ON))
    says(CLOSED)(world, FIRST)
    kubelet = {CONTROL: says(OPEN), SECOND: says(CLOSED)}
    found = world.prove(kubelet, may_have_user_namespaces=False)
    assert (found.verified, found.user_namespaces) == (True, False)


@pytest.mark.parametrize("play", [stuck, breaks])
def test_require_fails_closed(world, play):
    found = world.prove({CONTROL: says(OPEN), FIRST: play}, must_have_user_namespaces=True)
    assert not found.verified
    assert "the setting is Require" in found.message
    assert SECOND not in world.made


def test_require_fails_closed_where_the_server_drops_them(world):
    def dropped(world, name):
        world.cluster.edit(ObjectKind.POD, name, {"spec": {"hostUsers": None}})
        says(CLOSED)(world, name)

    found = world.prove({CONTROL: says(OPEN), FIRST: dropped}, must_have_user_namespaces=True)
    assert not found.verified
    assert "the setting is Require" in found.message


# Time


def test_no_answer_in_time_fails_closed(world):
    found = world.prove({CONTROL: says(OPEN), FIRST: stuck})
    assert found == IsolationResult(
        verified=False,
        user_namespaces=False,
        message="no answer within 120 seconds: waiting for the isolation canary: "
        "cannot start container probe: CreateContainerError",
    )
    assert world.clock.now() == pytest.approx(NOW + SECONDS, abs=1)


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_wall_clock_that_jumps_neither_ends_nor_stretches_the_time(world, hours):
    assert world.prove({CONTROL: says(OPEN), FIRST: stuck}, seconds=5) is None
    world.wall_offset = hours * 3600.0
    assert world.prove({}, seconds=SECONDS - 10) is None
    assert world.prove({}, seconds=10).message.startswith("no answer within 120 seconds")


def test_nobody_gives_up_before_pods_were_listed_once_more(world):
    world.listed_at = world.clock.monotonic()
    assert world.prove({}, seconds=SECONDS + 1) is None
    step = world.look(CanaryCheck(TARGETS, SECONDS))
    assert (step.needs_list, step.found) == (True, None)
    says(OPEN)(world, CONTROL)
    says(CLOSED)(world, FIRST)
    step = world.look(CanaryCheck(TARGETS, SECONDS))
    assert step.found.verified
    assert not step.needs_list


def test_a_list_after_the_time_without_an_answer_fails_closed(world):
    world.listed_at = world.clock.monotonic()
    assert world.prove({}, seconds=SECONDS + 1) is None
    world.listed_at = world.clock.monotonic()
    assert world.look(CanaryCheck(TARGETS, SECONDS)).found.message.startswith("no answer within")


def test_a_full_quota_takes_no_time(world):
    world.quota = "exceeded quota: pods"
    assert world.prove({}, seconds=10 * SECONDS) is None
    world.quota = ""
    found = world.prove({}, seconds=2 * SECONDS)
    assert found.message.startswith("no answer within 120 seconds")


@pytest.mark.parametrize(("kubelet", "wait"), [({}, SECONDS), ({FIRST: stuck}, START_SECONDS + 2)])
def test_when_to_look_again(world, kubelet, wait):
    assert world.prove(kubelet, seconds=5) is None
    step = world.look(CanaryCheck(TARGETS, SECONDS))
    assert step.wake_at == pytest.approx(MONOTONIC + wait, abs=1)


# A sandbox

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
    assert found == IsolationResult(
        verified=False,
        user_namespaces=False,
        message="Pods of runtime class 'gvisor' must run in gVisor, but the canary found the "
        f"kernel {shown}; correct the handler of the RuntimeClass, or take it off "
        "settings.podTemplate.sandboxedRuntimeClassNames",
        sandboxed=False,
    )


@pytest.mark.parametrize("is_required", [True, False])
def test_a_required_sandbox_that_was_not_measured_fails_closed(world, is_required):
    found = world.prove(
        {CONTROL: says(OPEN), FIRST: stuck},
        plan=SANDBOXED,
        must_be_sandboxed=True,
        must_have_user_namespaces=is_required,
    )
    assert (found.verified, found.sandboxed) == (False, False)


# What is lost is replaced

SECOND_CONTROL = CONTROL.replace("control-1", "control-2")
LOSSES = {
    "the canary vanishes": (vanishes, says(OPEN), {SECOND}),
    "the canary is evicted": (evicted, says(OPEN), {SECOND}),
    "somebody deletes the canary": (deleted, says(OPEN), {SECOND}),
    "the control vanishes": (says(CLOSED), vanishes, {SECOND_CONTROL}),
    "the control breaks": (says(CLOSED), breaks, {SECOND_CONTROL}),
    "both": (vanishes, evicted, {SECOND, SECOND_CONTROL}),
    "neither, for it had its answer": (answers_and_goes, late(says(OPEN), 10), set()),
}


@pytest.mark.parametrize("name", LOSSES)
def test_what_is_lost_is_replaced_by_the_next_number(world, name):
    canary, control, want = LOSSES[name]
    kubelet = {FIRST: canary, CONTROL: control, SECOND: says(CLOSED), SECOND_CONTROL: says(OPEN)}
    assert world.prove(kubelet) == VERIFIED
    assert sorted(world.made) == sorted({FIRST, CONTROL, *want})
    assert len(world.known.lost_pods) == len(want)


def test_losses_without_end_fail_closed(world):
    names = [FIRST.replace("canary-1", f"canary-{number}") for number in range(1, 99)]
    found = world.prove({CONTROL: says(OPEN), **dict.fromkeys(names, vanishes)})
    assert found == IsolationResult(
        verified=False,
        user_namespaces=False,
        message=f"{LOST_LIMIT} probing Pods were lost: "
        f"Pod {names[LOST_LIMIT - 1]} gave no answer: it disappeared",
    )
    assert world.made == [CONTROL, *names[:LOST_LIMIT]]


def test_what_comes_after_a_loss_waits_a_moment(world):
    assert world.prove({FIRST: vanishes, CONTROL: says(OPEN)}, seconds=3) is None
    step = world.look(CanaryCheck(TARGETS, SECONDS))
    assert world.made == [CONTROL, FIRST]
    assert step.start == ()
    assert step.wake_at == step.memory.next_at
    assert 0 < step.wake_at - world.clock.monotonic() <= RETRY_SECONDS
    words = canary_waiting((), step.memory, world.clock.instant()).message
    assert words == f"{CANARY_MESSAGE}: Pod {FIRST} gave no answer: it disappeared"


# A policy or the gateway that goes meanwhile


@pytest.mark.parametrize("kubelet", [{}, {FIRST: says(CLOSED)}])
@pytest.mark.parametrize("has_policies", [True, False])
def test_a_canary_that_was_there_without_a_policy_proves_nothing(world, kubelet, has_policies):
    assert world.prove(kubelet, seconds=5) is None
    world.is_network_ready, world.is_ready = has_policies, False
    assert world.prove({}, seconds=2 * SECONDS) is None
    assert world.made == [CONTROL, FIRST]
    assert list(world.pods()) == [CONTROL]
    world.is_network_ready = world.is_ready = True
    says(OPEN)(world, CONTROL)
    assert world.prove({SECOND: says(CLOSED)}) == VERIFIED


def test_none_is_made_before_policies_and_the_gateways_address_are_there(world):
    world.is_network_ready = world.is_ready = False
    assert world.prove({}, seconds=2 * SECONDS) is None
    assert world.made == []


def test_the_first_ones_start_beside_the_gateway_and_their_answers_wait_for_it(world):
    world.is_ready = False
    kubelet = {CONTROL: says(OPEN), FIRST: says(REACHED)}
    assert world.prove(kubelet, plan=WITH_GATEWAY, seconds=2 * SECONDS) is None
    assert world.made == [CONTROL, FIRST]
    world.is_ready = True
    assert world.prove({}, plan=WITH_GATEWAY).verified
    assert world.made == [CONTROL, FIRST]


@pytest.mark.parametrize("is_late", [True, False])
def test_one_that_missed_the_gateway_beside_it_is_replaced_when_that_is_ready(world, is_late):
    world.is_ready = not is_late
    kubelet = {CONTROL: says(OPEN), FIRST: says(CLOSED), SECOND: says(REACHED)}
    if is_late:
        assert world.prove(kubelet, plan=WITH_GATEWAY, seconds=SECONDS) is None
        assert world.made == [CONTROL, FIRST]
        assert NO_GATEWAY in world.known.last_lost
        world.is_ready = True
    assert world.prove(kubelet, plan=WITH_GATEWAY).verified
    assert world.made == [CONTROL, FIRST, SECOND]


def test_a_gateway_that_goes_again_is_no_gateway_that_starts(world):
    assert world.prove({}, plan=WITH_GATEWAY, seconds=1) is None
    world.is_ready = False
    assert world.prove({FIRST: says(REACHED)}, plan=WITH_GATEWAY, seconds=SECONDS) is None
    assert FIRST not in world.pods()
    assert SECOND not in world.made


# A canary listens longer than the control needs


def test_a_canary_that_listened_too_short_is_replaced_by_one_that_listens_longer(world):
    kubelet = {CONTROL: says(OPEN, seconds=1.5), FIRST: says(CLOSED, seconds=2.9)}
    kubelet[SECOND] = says(CLOSED, seconds=3.0)
    assert world.prove(kubelet) == VERIFIED
    assert world.made == [CONTROL, FIRST, SECOND]
    assert '"quiet_seconds":3.0' in json.dumps(world.pods()[SECOND]).replace("\\", "")
    assert "says nothing where the control had its answers after 1.5" in world.known.last_lost


def test_a_network_that_always_comes_up_late_fails_closed(world):
    names = [FIRST.replace("canary-1", f"canary-{number}") for number in range(1, 9)]
    late = dict.fromkeys(names, says(CLOSED, seconds=2.0))
    found = world.prove({CONTROL: says(OPEN, seconds=4.0), **late})
    assert not found.verified
    assert "it heard nothing for 2 seconds" in found.message


def test_one_that_listened_too_short_and_was_answered_is_replaced_and_told(world):
    kubelet = {CONTROL: says(OPEN, seconds=6.0), **both(says(OPEN, seconds=12.0))}
    found = world.prove(kubelet)
    assert not found.verified
    assert found.message.startswith("a Pod under the deny-all policy reached")


# The next process


def test_probing_pods_of_an_earlier_process_are_read(world):
    assert world.prove({FIRST: says(CLOSED)}, seconds=5) is None
    world.known, world.last_vanished = CanaryMemory(), {}
    says(OPEN)(world, CONTROL)
    assert world.prove({}) == VERIFIED
    assert sorted(world.made) == [FIRST, CONTROL]


def test_the_next_process_goes_on_counting(world):
    assert world.prove({FIRST: vanishes}, seconds=10) is None
    assert SECOND in world.made
    world.known = CanaryMemory()
    assert world.prove({CONTROL: says(OPEN)}, seconds=5) is None
    assert world.made.count(SECOND) == 1
