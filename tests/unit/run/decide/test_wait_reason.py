"""Several waits of one run: the first gives the reason, the message names each."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from securebench.protocol.gateway import ProviderWait
from securebench.run.api.status import Reason
from securebench.run.decide.controls import Halt
from securebench.run.decide.gateway import GatewayMemory, ObservedGateway
from securebench.run.decide.network import NetworkState
from securebench.run.decide.waits import MAX_WORDS, ObservedWrites, Throttled, joined, told_waits
from securebench.run.observe.pods import PodView
from securebench.run.observe.waiting import LaunchWait, ObservedProvider, WaitReason
from securebench.run.plan.model import AttemptKey
from securebench.run.state.attempts import Role
from support.build import (
    HARNESS,
    NOW,
    PROVEN_NETWORK,
    UNSCHEDULABLE,
    history_of,
    live,
    lost_launch,
    pod_status,
    view_of,
    waiting,
)
from unit.run.decide.test_reconcile import RUNNING, STOP, decide, fresh, harness
from unit.run.observe.test_waiting import SANDBOX

NO_ROOM = "0/1 nodes are available: 1 Insufficient cpu."
FULL = "exceeded quota: pods"
STUCK = pod_status("Pending", conditions=[UNSCHEDULABLE])
REFUSED = pod_status("Pending", waiting("harness", "ErrImagePull", "not found", image="x:1"))
SLOW = pod_status("Pending", waiting("harness", image="y:1"), conditions=[SANDBOX])
GATE = [{"name": "example.org/gate"}]
CANNOT_PULL = "cannot pull x:1: ErrImagePull: not found"
AGAIN = "is launched again after pod_lost: Pod was evicted"
GATED = "Waiting: 1 Pod with scheduling gate example.org/gate"
PROVIDER = "waiting for the model provider api.openai.com, which answers 429"
NO_GATEWAY = ObservedGateway("gateway", {}, 0, None, "", 600.0)
QUOTA = ObservedWrites(quota=FULL)
WAITS_429 = ObservedProvider(
    "api.openai.com", 1, (LaunchWait(HARNESS, ProviderWait("pod", NOW - 60, 429)),)
)
PROVIDER_NETWORK = replace(PROVEN_NETWORK, provider=WAITS_429)


def pod(task: int, status: dict[str, Any], created_at: float = NOW - 60, **spec: Any) -> PodView:
    return view_of(harness(task), status, created_at=created_at, nodeName="node-1", **spec)


def stuck(task: int) -> PodView:
    return view_of(harness(task), STUCK, created_at=NOW - 60)


def gated(task: int) -> PodView:
    return view_of(harness(task), pod_status("Pending"), created_at=NOW - 60, schedulingGates=GATE)


def lost(task: int) -> Any:
    key = AttemptKey(task, 1)
    return history_of(
        key, retries=(Role.HARNESS,), launches=1, last_lost=lost_launch(harness(task))
    )


def found(views: list[PodView], *others: Any, **given: Any) -> WaitReason | None:
    """Return what a run says of these Pods, one of each task, and of other attempts."""
    histories = [live(view.launch) for view in views if view.launch is not None]
    given = {"parallelism": 9, **given}
    return decide(*histories, *others, views=views, **given).wait_reason


WORKING = pod(0, RUNNING)
COMBINED: dict[str, tuple[list[PodView], list[Any], dict[str, Any], Reason, str]] = {
    "a quota, and a provider": (
        [WORKING],
        [],
        {"writes": QUOTA, "network": PROVIDER_NETWORK},
        Reason.QUOTA_EXCEEDED,
        f"{FULL}; also task #0: {PROVIDER}",
    ),
    "a quota, and an image": (
        [WORKING, pod(1, REFUSED)],
        [],
        {"writes": QUOTA},
        Reason.QUOTA_EXCEEDED,
        f"{FULL}; also task #1: {CANNOT_PULL}",
    ),
    "a quota, rights and no room": (
        [WORKING, stuck(1)],
        [],
        {"writes": replace(QUOTA, forbidden="Pod x: no")},
        Reason.QUOTA_EXCEEDED,
        f"{FULL}; also Forbidden: Pod x: no; also Unschedulable: {NO_ROOM}",
    ),
    "no room, an image and a provider": (
        [WORKING, pod(1, REFUSED), stuck(2)],
        [],
        {"network": PROVIDER_NETWORK},
        Reason.UNSCHEDULABLE,
        f"{NO_ROOM}; also task #1: {CANNOT_PULL}; also task #0: {PROVIDER}",
    ),
    "no room, and an image, before anything works": (
        [pod(0, REFUSED), stuck(1)],
        [],
        {},
        Reason.UNSCHEDULABLE,
        f"{NO_ROOM}; also {CANNOT_PULL}",
    ),
    "a back-off, a provider and a slow pull": (
        [WORKING, pod(1, SLOW)],
        [lost(2)],
        {"network": PROVIDER_NETWORK},
        Reason.RUNNING,
        f"task #2: {AGAIN}; also task #0: {PROVIDER}; also task #1: pulling y:1",
    ),
    "a queue, an image and a back-off, before anything works": (
        [gated(0), pod(1, REFUSED)],
        [lost(2)],
        {},
        Reason.SCHEDULING_GATED,
        f"{GATED}; also {CANNOT_PULL}; also {AGAIN}",
    ),
    "an image that is slow and one that is refused, before anything works": (
        [pod(0, REFUSED, NOW - 10), pod(1, SLOW, NOW - 20)],
        [],
        {},
        Reason.STARTING,
        f"pulling y:1; also {CANNOT_PULL}",
    ),
    "an image, and a queue": (
        [WORKING, pod(1, REFUSED), gated(2)],
        [],
        {},
        Reason.RUNNING,
        f"task #1: {CANNOT_PULL}; also Waiting: Pods with scheduling gate example.org/gate",
    ),
    "two of one kind": (
        [WORKING, pod(1, REFUSED), pod(2, REFUSED)],
        [],
        {},
        Reason.RUNNING,
        f"task #1: {CANNOT_PULL}",
    ),
    "the end of those that are under way, and a provider": (
        [WORKING],
        [],
        {"network": PROVIDER_NETWORK, "halt": Halt.DRAINING, "stop": STOP},
        Reason.CANCELLING,
        f"spec.cancel is set; also task #0: {PROVIDER}",
    ),
}


@pytest.mark.parametrize("name", COMBINED)
def test_each_kind_of_wait_is_named(name: str) -> None:
    views, others, given, want_reason, want_message = COMBINED[name]
    reason = found(views, *others, **given)
    assert reason is not None
    assert (reason.reason, reason.message) == (want_reason, want_message)


def test_a_run_that_is_stopped_waits_for_nothing_else() -> None:
    reason = found([WORKING], writes=QUOTA, halt=Halt.STOPPED, stop=STOP)
    assert reason == WaitReason(Reason.CANCELLING, STOP.message)


def test_the_oldest_pod_speaks_for_a_run_that_begins() -> None:
    young, old = pod(0, SLOW, NOW - 5), view_of(harness(1), created_at=NOW - 9)
    assert found([young, old]) == WaitReason(Reason.STARTING, "waiting for a node")


def test_pods_that_are_not_of_a_launch_under_way_do_not_count() -> None:
    canary, given_up = replace(view_of(), launch=None), view_of(harness(0, launch=7))
    assert decide(live(HARNESS), views=[canary]).wait_reason is None
    assert decide(live(HARNESS), views=[given_up]).wait_reason is None


def test_what_is_not_told_yet_says_when_it_will_be() -> None:
    views = [WORKING, pod(1, REFUSED), pod(2, SLOW, NOW - 1)]
    refused = f"task #1: {CANNOT_PULL}"
    assert found(views) == WaitReason(Reason.RUNNING, refused, NOW + 2)
    later = found(views, now=NOW + 2)
    assert later is not None
    assert later.message == f"{refused}; also task #2: pulling y:1"


def test_a_limit_is_told_beside_other_waits_after_a_moment() -> None:
    views = [WORKING, pod(1, REFUSED)]
    held = replace(QUOTA, quota="", rate=Throttled("waiting for a turn", NOW - 1))
    assert found(views, writes=held) == WaitReason(
        Reason.RUNNING, f"task #1: {CANNOT_PULL}", NOW + 2
    )
    later = found(views, writes=held, now=NOW + 2)
    assert later is not None
    assert later.message == f"task #1: {CANNOT_PULL}; also waiting for a turn"


def test_a_canary_without_a_node_is_told_once() -> None:
    canary = replace(view_of(status=STUCK), launch=None)
    network = NetworkState(gateway_memory=GatewayMemory(trouble="gateway: no room"))
    network = replace(network, gateway=NO_GATEWAY)
    reason = decide(fresh(0), views=[canary], network=network).wait_reason
    assert reason == WaitReason(Reason.GATEWAY_STARTING, "gateway: no room")


def test_further_waits_do_not_change_with_time() -> None:
    views = [WORKING, pod(1, SLOW), gated(2)]
    given: dict[str, Any] = {"writes": QUOTA, "network": PROVIDER_NETWORK}
    first = found(views, **given)
    assert first is not None
    assert first.changes_at is None
    for seconds in (1, 10, 300):
        assert found(views, now=NOW + seconds, **given) == first


def test_further_waits_are_bounded() -> None:
    long = [WaitReason(reason, "word " * 2000) for reason in Reason]
    told = joined(long)
    assert told is not None
    assert told.message.startswith(long[0].message)
    assert len(told.message) < len(long[0].message) + len(long) * (MAX_WORDS + 40)


def test_words_of_the_cluster_are_not_taken_for_a_wait() -> None:
    quoted = WaitReason(Reason.RUNNING, "cannot pull x; also Forbidden: all")
    told = joined([quoted, quoted._replace(message=f"task #1: {quoted.message}")])
    assert told is not None
    assert list(told_waits(told.reason, told.message)) == [
        ("Running", "cannot pull x; Forbidden: all"),
        ("Running", "task #1: cannot pull x; Forbidden: all"),
    ]


def test_each_wait_of_a_message_is_found_again() -> None:
    waits = [
        WaitReason(Reason.QUOTA_EXCEEDED, FULL),
        WaitReason(Reason.UNSCHEDULABLE, NO_ROOM),
        WaitReason(Reason.PROBING, "waiting for the isolation canary"),
        WaitReason(Reason.RUNNING, f"task #3: {CANNOT_PULL}"),
    ]
    told = joined(waits)
    assert told is not None
    assert list(told_waits(told.reason, told.message)) == [
        ("QuotaExceeded", FULL),
        ("Unschedulable", NO_ROOM),
        ("Running", "waiting for the isolation canary"),
        ("Running", f"task #3: {CANNOT_PULL}"),
    ]
