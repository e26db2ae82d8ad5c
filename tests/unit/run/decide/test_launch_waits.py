"""What each launch of a run waits for, and from when on that is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from securebench.clock import rfc3339
from securebench.protocol.gateway import ProviderWait, ProviderWaits
from securebench.protocol.volume import SharedWait
from securebench.run.decide.decision_cache import LaunchPods
from securebench.run.decide.gateway import GatewayMemory, ObservedGateway
from securebench.run.decide.network import NetworkState, Repair
from securebench.run.decide.waits import (
    CREATE_WAIT,
    GATEWAY_GONE,
    GATEWAY_WAIT,
    REPORT_DELAY_SECONDS,
    LaunchWaits,
    ObservedWrites,
    Throttled,
    launch_waits,
)
from securebench.run.observe.pods import PodView
from securebench.run.observe.waiting import observed_provider
from securebench.run.plan.model import LaunchKey, Role
from securebench.run.state.history import AttemptIndex
from support.build import (
    HARNESS,
    NOW,
    PROVEN_NETWORK,
    UNSCHEDULABLE,
    VERIFIER,
    ended,
    history_of,
    live,
    pod_status,
    running,
    view_of,
    waiting,
)

NAME = "sb-3f2a9c1e5b7d-0-1h1"
RUN_UID = "3f2a9c1e-5b7d-4000-8000-000000000000"
LATER = NOW + 60
GATE = {"schedulingGates": [{"name": "example.com/hold"}]}
NO_GATEWAY = replace(
    PROVEN_NETWORK,
    gateway=ObservedGateway("gateway", {}, 0, None, "", 600.0),
    gateway_memory=GatewayMemory(trouble="gateway Pod g-1: pulling g:1 for 20 s"),
)
NO_ROOM = pod_status("Pending", conditions=[UNSCHEDULABLE])
NO_IMAGE = pod_status("Pending", waiting("harness", "ErrImagePull", "not found", image="x:1"))
PULLS = pod_status("Pending", waiting("harness", image="x:1"))


def told(
    launch: LaunchKey = HARNESS, view: PodView | None = None, *, now: float = LATER, **given: Any
) -> LaunchWaits:
    pods = LaunchPods()
    pods.put(launch.attempt_key, NAME, "x:1")
    attempts = AttemptIndex([live(launch, live_since=NOW)])
    network = given.get("network", PROVEN_NETWORK)
    views = {NAME: view} if view is not None else {}
    writes = given.get("writes", ObservedWrites())
    return launch_waits(pods, views, attempts, network, writes, now)


def on_node(status: Any) -> PodView:
    return view_of(HARNESS, status, nodeName="node-1")


CASES: dict[str, tuple[dict[str, Any], str]] = {
    "no Pod yet": ({}, CREATE_WAIT),
    "a quota": ({"writes": ObservedWrites(quota="full")}, f"{CREATE_WAIT}: full"),
    "rights": ({"writes": ObservedWrites(forbidden="no")}, f"{CREATE_WAIT}: no"),
    "no answer": ({"writes": ObservedWrites(trouble="500")}, f"{CREATE_WAIT}: 500"),
    "a rate": ({"writes": ObservedWrites(rate=Throttled("slow"))}, f"{CREATE_WAIT}: slow"),
    "a node": ({"view": view_of()}, "waiting for a node"),
    "an image, without its age": ({"view": on_node(PULLS)}, "pulling x:1"),
    "a gate": ({"view": view_of(HARNESS, **GATE)}, "waiting with scheduling gate example.com/hold"),
    "the gateway before its Pod": ({"network": NO_GATEWAY}, GATEWAY_WAIT),
    "the gateway": ({"network": NO_GATEWAY, "view": on_node(PULLS)}, GATEWAY_WAIT),
    "what is refused, gateway or not": (
        {"network": NO_GATEWAY, "view": on_node(NO_IMAGE)},
        "cannot pull x:1: ErrImagePull: not found",
    ),
    "a gate, gateway or not": (
        {"network": NO_GATEWAY, "view": view_of(HARNESS, **GATE)},
        "waiting with scheduling gate example.com/hold",
    ),
    "a check needs no gateway": (
        {"network": NO_GATEWAY, "launch": VERIFIER, "view": view_of(VERIFIER)},
        "waiting for a node",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_a_launch_waits_for(name: str) -> None:
    given, want = CASES[name]
    assert told(**given) == LaunchWaits((SharedWait(want, (NAME,)),))


@pytest.mark.parametrize("view", [None, view_of(HARNESS, NO_ROOM)])
def test_nothing_is_told_before_its_time(view: PodView | None) -> None:
    report_at = NOW + REPORT_DELAY_SECONDS
    assert told(view=view, now=report_at - 0.1) == LaunchWaits((), report_at)
    assert told(view=view, now=report_at).waits


def test_a_launch_that_has_ended_meanwhile_waits_for_nothing() -> None:
    pods = LaunchPods()
    pods.put(HARNESS.attempt_key, NAME, "x:1")
    attempts = AttemptIndex([history_of(launches=1)])
    found = launch_waits(pods, {}, attempts, PROVEN_NETWORK, ObservedWrites(), LATER)
    assert found == LaunchWaits()


def provider(since: float) -> Any:
    waits = ProviderWaits(1, (ProviderWait(NAME, since, 429, LATER + 30),))
    return replace(PROVEN_NETWORK, provider=observed_provider(waits, RUN_UID, "api.test"))


def test_an_agent_that_waits_for_its_provider_has_begun() -> None:
    attempts = AttemptIndex([live(HARNESS, live_since=NOW)])

    def at(now: float, *known: str) -> LaunchWaits:
        pods = LaunchPods()
        for name in known:
            pods.put(HARNESS.attempt_key, name, "x:1")
        return launch_waits(pods, {}, attempts, provider(NOW), ObservedWrites(), now)

    want = "waiting for the model provider api.test, which answers 429: since 2026-01-01T00:00:00Z"
    assert at(NOW + 1) == LaunchWaits((), NOW + REPORT_DELAY_SECONDS)
    assert at(LATER) == LaunchWaits((SharedWait(want, (NAME,), has_begun=True),))
    assert at(LATER, NAME) == LaunchWaits((SharedWait(CREATE_WAIT, (NAME,)),))


GONE_AT = NOW + 10.0
GONE = replace(
    NO_GATEWAY, monotonic=150.0, gateway_memory=GatewayMemory(gone_since=150.0 + GONE_AT - LATER)
)


def agent_at(began: float, launch: LaunchKey = HARNESS, *, works: bool = True) -> PodView:
    """Return a Pod whose sidecar was started at a time."""
    sidecar = running("egress-proxy") | {"state": {"running": {"startedAt": rfc3339(began)}}}
    main = running(launch.role.value) if works else ended(launch.role.value)
    return view_of(launch, pod_status("Running", sidecar, main))


AGENTS: dict[str, tuple[PodView, SharedWait | None]] = {
    "it had reached the gateway": (
        agent_at(GONE_AT - 1),
        SharedWait(GATEWAY_GONE, (NAME,), has_begun=True),
    ),
    "it began later": (agent_at(GONE_AT), SharedWait(GATEWAY_WAIT, (NAME,))),
    "its sidecar is not known": (
        view_of(HARNESS, pod_status("Running", running("harness"))),
        SharedWait(GATEWAY_GONE, (NAME,), has_begun=True),
    ),
    "it has ended": (agent_at(NOW, works=False), None),
    "a check": (agent_at(NOW, VERIFIER), None),
}


def of_agent(view: PodView, network: NetworkState, now: float) -> LaunchWaits:
    launch = view.launches[0]
    pods = LaunchPods()
    pods.put(launch.attempt_key, NAME, "x:1")
    pods.mark_started(NAME)
    attempts = AttemptIndex([live(launch, live_since=NOW)])
    return launch_waits(pods, {NAME: view}, attempts, network, ObservedWrites(), now)


@pytest.mark.parametrize("name", AGENTS)
def test_what_is_said_of_an_agent_while_the_gateway_is_not_ready(name: str) -> None:
    view, want = AGENTS[name]
    assert of_agent(view, GONE, LATER) == LaunchWaits(() if want is None else (want,))
    assert of_agent(view, PROVEN_NETWORK, LATER) == LaunchWaits()


@pytest.mark.parametrize("gone_since", [150.0, None])
def test_a_gateway_that_is_just_gone_is_told_of_after_a_moment(gone_since: float | None) -> None:
    memory = GatewayMemory(gone_since=gone_since)
    network = replace(GONE, gateway_memory=memory)
    want = LaunchWaits((), LATER + REPORT_DELAY_SECONDS)
    assert of_agent(agent_at(NOW), network, LATER) == want


def test_nobody_looks_at_a_gateway_again_and_again_while_policies_are_missing() -> None:
    network = replace(GONE, gateway_memory=GatewayMemory(), repairs=(Repair("deny"),))
    assert of_agent(agent_at(NOW), network, LATER) == LaunchWaits()


def test_of_an_agent_without_a_gateway_no_second_wait_is_told() -> None:
    network = replace(GONE, provider=provider(NOW).provider)
    want = LaunchWaits((SharedWait(GATEWAY_GONE, (NAME,), has_begun=True),))
    assert of_agent(agent_at(NOW), network, LATER) == want


def test_a_batch_is_one_pod() -> None:
    pods, members = LaunchPods(), [LaunchKey(task, 1, Role.VERIFIER, 1) for task in range(3)]
    for each in members:
        pods.put(each.attempt_key, NAME, "x:1")
    attempts = AttemptIndex([live(each, live_since=NOW, batch=members[0]) for each in members])
    found = launch_waits(pods, {}, attempts, PROVEN_NETWORK, ObservedWrites(), LATER)
    assert found.waits == (SharedWait(CREATE_WAIT, (NAME,)),)
