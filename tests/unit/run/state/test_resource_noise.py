from dataclasses import replace

import pytest

from securebench.run.api.field_types import Outcome
from securebench.run.state.attempts import CommandReport, Finish
from securebench.run.state.entries import (
    ContainerEvidence,
    ContainerUsage,
    Finished,
    LaunchBegun,
    LaunchEvidence,
    LaunchLost,
    Produced,
    ResourceNoise,
    Verified,
    container_noise,
    entry_noise,
    noisy_part,
)
from securebench.sizes import GIB
from support.build import HARNESS, KEY, NOW, lost_launch, production, verification

FULL, HALF, SLOW = ContainerUsage(GIB), ContainerUsage(GIB // 2), ContainerUsage(1, 100, 25)
KILLED, NEAR, THROTTLED = ResourceNoise

CONTAINERS = {
    "far from its limits": ("harness", HALF, "", ()),
    "unknown": ("harness", None, "", ()),
    "killed": ("harness", HALF, "OOMKilled", {KILLED}),
    "killed at its limit": ("harness", FULL, "OOMKilled", {KILLED, NEAR}),
    "an agent": ("harness", FULL, "", {NEAR}),
    "a sidecar": ("egress-proxy", SLOW, "", {THROTTLED}),
    "a text verifier": ("verifier", SLOW, "", {THROTTLED}),
    "a courier that copied much": ("courier", replace(SLOW, memory_peak_bytes=GIB), "", ()),
    "a courier that was killed": ("courier", FULL, "OOMKilled", {KILLED}),
}


def container(name, usage, reason=""):
    return ContainerEvidence(name, reason=reason, limits={"memory": "1Gi"}, usage=usage)


@pytest.mark.parametrize("name", CONTAINERS)
def test_how_a_container_met_its_limits(name):
    who, usage, reason, want = CONTAINERS[name]
    assert container_noise(container(who, usage, reason)) == set(want)


QUIET = container("courier", FULL)
NOISY = LaunchEvidence("p", containers=(QUIET, container("harness", FULL)))
KILLS = CommandReport(memory_kills=1)
FINISH = Finish(KEY, Outcome.SCORED, passed=True)

ENTRIES = {
    "begun": (LaunchBegun(HARNESS, NOW), ()),
    "lost": (LaunchLost(lost_launch(), NOISY), {NEAR}),
    "produced": (Produced(KEY, production(), NOW, NOISY), {NEAR}),
    "verified": (Verified(KEY, verification(), NOW, NOISY), {NEAR}),
    "finished": (Finished(FINISH, "a" * 64, NOW, evidence=NOISY), {NEAR}),
    "without evidence": (Produced(KEY, production(), NOW), ()),
    "a process of the agent killed": (Produced(KEY, production(command=KILLS), NOW), {KILLED}),
    "a process of a check killed": (Verified(KEY, verification(command=KILLS), NOW), {KILLED}),
}


@pytest.mark.parametrize("name", ENTRIES)
def test_how_a_launch_met_its_limits(name):
    entry, want = ENTRIES[name]
    assert entry_noise(entry) == set(want)


def test_of_the_evidence_only_what_tells_of_noise_is_kept():
    harness = replace(NOISY.containers[1], image="x:1", message="m", requests={"cpu": "1"})
    limits = {"memory": "1Gi", "cpu": "4"}
    whole = replace(NOISY, node="n", containers=(QUIET, replace(harness, limits=limits)))
    part = noisy_part(whole)
    assert part == replace(NOISY, containers=NOISY.containers[1:])
    assert entry_noise(LaunchLost(lost_launch(), part)) == {NEAR}
    assert noisy_part(replace(NOISY, containers=(QUIET,))) is None
    assert noisy_part(None) is None
