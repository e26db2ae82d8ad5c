"""A run whose model provider makes launches wait says so, behind what is worse."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from securebench.protocol.gateway import ProviderWait
from securebench.run.api.status import Reason
from securebench.run.decide.waits import REPORT_DELAY_SECONDS
from securebench.run.observe.waiting import LaunchWait, ObservedProvider, WaitReason
from securebench.run.plan.model import LaunchKey
from support.build import HARNESS, NOW, PROVEN_NETWORK, live, pod_status, view_of, waiting
from unit.run.decide.test_reconcile import RUNNING, decide, harness
from unit.run.observe.test_waiting import SANDBOX

HOST = "api.openai.com"
TOLD = f"task #0: waiting for the model provider {HOST}, which answers 429: since "
SLOW = pod_status("Pending", waiting("harness", image="x:1"), conditions=[SANDBOX])
REFUSED = pod_status("Pending", waiting("harness", "ErrImagePull", "not found", image="x:1"))


def provider(seconds: float, launch: LaunchKey = HARNESS) -> ObservedProvider:
    """A provider that has made a launch wait for so long."""
    wait = ProviderWait("pod", NOW - seconds, 429)
    return ObservedProvider(HOST, 1, (LaunchWait(launch, wait),))


def reason(seen: ObservedProvider, second: dict[str, Any] = RUNNING) -> WaitReason | None:
    """Return what a run says of two launches, the first of which works."""
    views = [view_of(HARNESS, RUNNING), view_of(harness(1), second, nodeName="node-1")]
    network = replace(PROVEN_NETWORK, provider=seen)
    return decide(live(HARNESS), live(harness(1)), views=views, network=network).wait_reason


def test_it_is_told_after_a_moment() -> None:
    due = NOW + REPORT_DELAY_SECONDS - 1
    assert reason(provider(1)) == WaitReason(Reason.RUNNING, "", due)
    found = reason(provider(REPORT_DELAY_SECONDS))
    assert found is not None
    assert (found.reason, found.message.startswith(TOLD)) == (Reason.RUNNING, True)


def test_a_launch_that_has_ended_does_not_wait() -> None:
    assert reason(provider(60, harness(0, launch=2))) is None


OTHERS: dict[str, tuple[float, dict[str, Any], str]] = {
    "a Pod that is refused": (60, REFUSED, "task #1: cannot pull x:1: ErrImagePull: not found"),
    "a Pod that starts slowly": (60, SLOW, TOLD),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_worse_comes_first(name: str) -> None:
    seconds, status, want = OTHERS[name]
    found = reason(provider(seconds), status)
    assert found is not None
    assert found.message.startswith(want)


def test_a_slow_start_is_told_until_the_wait_is_due() -> None:
    slow = view_of(harness(1), SLOW, nodeName="node-1")
    late = replace(slow, created_at=NOW - 60, sandbox_since=NOW - 4)
    network = replace(PROVEN_NETWORK, provider=provider(2.5))
    views = [view_of(HARNESS, RUNNING), late]
    found = decide(live(HARNESS), live(harness(1)), views=views, network=network).wait_reason
    assert found == WaitReason(Reason.RUNNING, "task #1: pulling x:1", NOW + 0.5)
