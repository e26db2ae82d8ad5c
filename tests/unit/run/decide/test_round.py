"""What a decision says of a whole run: whether it goes on, waits, rests or is over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from securebench.reasons import POD_LOST
from securebench.run.api.field_types import Outcome
from securebench.run.api.status import Reason
from securebench.run.decide.controls import EndReason, Halt
from securebench.run.decide.gateway import GatewayMemory, ObservedGateway
from securebench.run.decide.network import NetworkState, Repair
from securebench.run.decide.waits import (
    GATEWAY_MESSAGE,
    PARKED_MESSAGE,
    SUSPENDED_MESSAGE,
    YIELDING_MESSAGE,
    ObservedWrites,
)
from securebench.run.observe.waiting import WaitReason
from securebench.run.plan.model import AttemptKey
from securebench.run.state.attempts import Finish, Role
from support.build import (
    HARNESS,
    NOW,
    PROVEN_NETWORK,
    ended,
    harness_done,
    history_of,
    live,
    lost_launch,
    pod_status,
    view_of,
)
from unit.run.decide.test_reconcile import RUNNING, decide, finished, fresh
from unit.run.observe.test_waiting import IMAGE, PULLING

CANCELLED = EndReason(Reason.CANCELLED, "spec.cancel is Immediate")
NO_GATEWAY = ObservedGateway("gateway", {}, 0, None, "", 600.0)
MISSING = (Repair("deny"),)
ENDED = view_of(HARNESS, pod_status("Failed", ended("gateway", 1)))
ENDED_GATEWAY = replace(PROVEN_NETWORK, gateway=replace(NO_GATEWAY, pods={1: ENDED}))
OPEN = replace(PROVEN_NETWORK.found, verified=False, message="metadata can be reached")
FAILED = replace(PROVEN_NETWORK, gateway_memory=GatewayMemory(failure="no gateway"))
NOT_ISOLATED = NetworkState(found=OPEN)
REFUSED = ObservedWrites(refusal="pods is forbidden")

# What is refused for good ends everything

REFUSALS: dict[str, tuple[dict[str, Any], str]] = {
    "a Pod": ({"writes": REFUSED}, "pods is forbidden"),
    "a gateway": ({"network": FAILED}, "no gateway"),
    "the proof": ({"network": NOT_ISOLATED}, "metadata can be reached"),
    "a run of another version": ({"plan_mismatch": "another version"}, "another version"),
    "a Pod of a suspended run": (
        {"writes": REFUSED, "halt": Halt.SUSPENDED},
        "pods is forbidden",
    ),
    "a Pod of a run that drains": (
        {"writes": REFUSED, "halt": Halt.DRAINING, "stop": CANCELLED},
        "pods is forbidden",
    ),
    "a Pod of a run that is stopped": (
        {"writes": REFUSED, "halt": Halt.STOPPED, "stop": CANCELLED},
        "spec.cancel is Immediate",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_stops_the_run(name: str) -> None:
    given, want_words = REFUSALS[name]
    decision = decide(live(HARNESS), fresh(1), **given)
    assert decision.halt is Halt.STOPPED
    assert [(end.outcome, end.message) for end in decision.finishes] == [
        (Outcome.CANCELLED, want_words)
    ] * 2


# How it ended

ENDS: dict[str, tuple[dict[str, Any], Reason]] = {
    "all have verdicts": ({}, Reason.COMPLETED),
    "cancelled behind the last verdict": ({"stop": CANCELLED}, Reason.COMPLETED),
    "a refusal before the last verdict": ({"writes": REFUSED}, Reason.POD_REFUSED),
    "without a gateway": ({"network": FAILED}, Reason.GATEWAY_FAILED),
    "not isolated": (
        {"network": NOT_ISOLATED, "writes": REFUSED},
        Reason.ISOLATION_NOT_VERIFIED,
    ),
}


@pytest.mark.parametrize("name", ENDS)
def test_how_a_run_ended(name: str) -> None:
    given, want = ENDS[name]
    end = decide(finished(0), **given).end
    assert end is not None
    assert end.reason is want


def test_a_cancelled_run_ends_as_such() -> None:
    cut = history_of(finish=Finish(AttemptKey(0, 1), Outcome.CANCELLED, "cancelled", "queued"))
    assert decide(cut, halt=Halt.STOPPED, stop=CANCELLED).end == CANCELLED


# When nothing of it is under way

PARKED: dict[str, tuple[list[Any], dict[str, Any], bool]] = {
    "suspended before its first launch": ([fresh(0)], {}, True),
    "suspended behind its last launch": ([finished(0), fresh(1)], {}, True),
    "not suspended": ([fresh(0)], {"halt": Halt.NONE}, False),
    "one still runs": ([live(HARNESS)], {"views": [view_of(HARNESS, RUNNING)]}, False),
    "one has to be read": ([live(HARNESS)], {"views": [view_of(HARNESS, harness_done())]}, False),
    "a Pod has to go": ([finished(0), fresh(1)], {"views": [view_of(HARNESS, RUNNING)]}, False),
    "a request is under way": ([fresh(0)], {"writes": ObservedWrites(is_idle=False)}, False),
    "refused for good": ([fresh(0)], {"writes": REFUSED}, False),
}


@pytest.mark.parametrize("name", PARKED)
def test_a_suspended_run_rests_when_nothing_is_under_way(name: str) -> None:
    histories, given, want = PARKED[name]
    parked = decide(*histories, **{"halt": Halt.SUSPENDED, **given}).parked
    assert parked == (WaitReason(Reason.SUSPENDED, SUSPENDED_MESSAGE) if want else None)


def test_a_run_whose_turn_is_over_says_so_until_it_rests() -> None:
    yields: dict[str, Any] = {"halt": Halt.SUSPENDED, "is_yielding": True}
    decision = decide(live(HARNESS), views=[view_of(HARNESS, RUNNING)], **yields)
    assert decision.wait_reason == WaitReason(Reason.RUNNING, YIELDING_MESSAGE)
    assert decision.parked is None
    parked = decide(finished(0), fresh(1), **yields).parked
    assert parked == WaitReason(Reason.QUEUED, PARKED_MESSAGE)


def test_the_first_of_several_causes_is_that_of_the_records_too() -> None:
    given: dict[str, Any] = {"network": NOT_ISOLATED, "writes": REFUSED}
    (cut,) = decide(fresh(0), **given).finishes
    end = decide(finished(0), **given).end
    assert end is not None
    assert cut.message == end.message == "metadata can be reached"


# What is in its way

LOST = history_of(retries=(Role.HARNESS,), launches=1, last_lost=lost_launch())
OBSTACLES: dict[str, tuple[list[Any], dict[str, Any], WaitReason | None]] = {
    "nothing": ([live(HARNESS)], {"views": [view_of(HARNESS, RUNNING)]}, None),
    "cancelled, whatever else": (
        [fresh(0)],
        {"stop": CANCELLED, "writes": ObservedWrites(quota="no Pods left")},
        WaitReason(Reason.CANCELLING, "spec.cancel is Immediate"),
    ),
    "a quota before all others": (
        [fresh(0)],
        {
            "network": NetworkState(repairs=MISSING),
            "writes": ObservedWrites(quota="no Pods left", forbidden="Pod x: no"),
        },
        WaitReason(Reason.QUOTA_EXCEEDED, "no Pods left; also Forbidden: Pod x: no"),
    ),
    "rights before what is around": (
        [fresh(0)],
        {"network": NetworkState(repairs=MISSING), "writes": ObservedWrites(forbidden="Pod x: no")},
        WaitReason(Reason.FORBIDDEN, "Pod x: no"),
    ),
    "a policy that cannot be made": (
        [fresh(0)],
        {"network": NetworkState(repairs=MISSING), "writes": ObservedWrites(trouble="timeout")},
        WaitReason(Reason.STARTING, "timeout"),
    ),
    "a policy that is being made": ([fresh(0)], {"network": NetworkState(repairs=MISSING)}, None),
    "a gateway that is being made": (
        [fresh(0)],
        {"network": NetworkState(gateway=NO_GATEWAY)},
        WaitReason(Reason.GATEWAY_STARTING, GATEWAY_MESSAGE),
    ),
    "a gateway that has just ended": (
        [live(HARNESS)],
        {"network": ENDED_GATEWAY, "views": [view_of(HARNESS, RUNNING)]},
        WaitReason(
            Reason.GATEWAY_STARTING, "gateway Pod gateway-1: it ended with exit code 1 (Error)"
        ),
    ),
    "a launch that was lost": (
        [LOST],
        {},
        WaitReason(
            Reason.STARTING,
            f"is launched again after {POD_LOST}: Pod was evicted",
        ),
    ),
}


@pytest.mark.parametrize("name", OBSTACLES)
def test_what_is_in_its_way(name: str) -> None:
    histories, given, want = OBSTACLES[name]
    assert decide(*histories, **given).wait_reason == want


# When it is looked at again

WAKES: dict[str, tuple[dict[str, Any], float | None]] = {
    "nothing to wait for": ({}, None),
    "the deadline": ({"deadline": NOW + 60}, NOW + 60),
    "a deadline that has passed": ({"deadline": NOW}, None),
}


@pytest.mark.parametrize("name", WAKES)
def test_when_it_is_looked_at_again(name: str) -> None:
    given, want = WAKES[name]
    assert decide(live(HARNESS), views=[view_of(HARNESS, RUNNING)], **given).wake_at == want


def test_words_that_grow_old_are_said_anew() -> None:
    pulling = view_of(HARNESS, PULLING, nodeName="node-1")
    decision = decide(live(HARNESS), views=[pulling], deadline=NOW + 60)
    assert decision.wait_reason == WaitReason(Reason.STARTING, f"pulling {IMAGE}", NOW + 5)
    assert decision.wake_at == NOW + 5
