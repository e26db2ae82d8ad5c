import pytest

from securebench.run.observe.termination import MESSAGE_CHARACTERS, launch_evidence
from securebench.run.state.entries import ContainerEvidence, ContainerUsage, LaunchEvidence
from support.build import (
    HARNESS,
    IMAGE_ID,
    NOW,
    collect_message,
    ended,
    pod_status,
    seal_message,
    supervise_message,
    text_message,
    view_of,
    waiting,
)

SCHEDULED = {
    "type": "PodScheduled",
    "status": "True",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}


def test_what_is_kept_of_a_pod():
    status = pod_status(
        "Failed",
        ended("harness", 137, "OOMKilled", message="words of the agent"),
        reason="Evicted",
        message="m" * (MESSAGE_CHARACTERS + 1),
        conditions=[SCHEDULED],
    )
    resources = {"requests": {"cpu": "1"}, "limits": {"memory": "1Gi"}}
    containers = [{"name": "harness", "resources": resources}]
    view = view_of(HARNESS, status, nodeName="node-1", containers=containers)
    assert launch_evidence(view) == LaunchEvidence(
        pod=view.name,
        node="node-1",
        created_at=NOW,
        scheduled_at=1_767_225_600.0,
        reason="Evicted",
        message="m" * MESSAGE_CHARACTERS,
        containers=(
            ContainerEvidence(
                "harness",
                image=view.containers["harness"].image,
                image_id=IMAGE_ID,
                started_at=NOW + 1,
                finished_at=NOW + 3,
                exit_code=137,
                reason="OOMKilled",
                requests={"cpu": "1"},
                limits={"memory": "1Gi"},
            ),
        ),
    )


def test_a_container_that_never_ran_says_why():
    status = pod_status("Pending", waiting("harness", "ErrImagePull", "no such image"))
    (container,) = launch_evidence(view_of(HARNESS, status)).containers
    assert (container.started_at, container.exit_code) == (None, None)
    assert (container.reason, container.message) == ("ErrImagePull", "no such image")


MESSAGES = {
    "measured": (
        supervise_message(memory_peak_bytes=5_000, cpu_periods=30, cpu_throttled=4),
        ContainerUsage(5_000, 30, 4),
    ),
    "without a CPU limit": (supervise_message(memory_peak_bytes=5_000), ContainerUsage(5_000)),
    "an earlier version": (supervise_message(), None),
    "the courier of a harness": (seal_message(memory_peak_bytes=5_000), ContainerUsage(5_000)),
    "the courier of a check": (collect_message(cpu_periods=30), ContainerUsage(0, 30)),
    "a text verifier": (text_message(memory_peak_bytes=5_000), ContainerUsage(5_000)),
    "an egress sidecar": ('{"v":1,"memory_peak_bytes":5000}', ContainerUsage(5_000)),
    "another program that says nothing": (seal_message(), None),
    "no message": ("", None),
    "nonsense": (supervise_message(memory_peak_bytes=-1, cpu_periods="x"), None),
    "no counter of a kernel": (supervise_message(memory_peak_bytes=10**30), None),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_what_a_container_took_is_kept(name):
    message, want = MESSAGES[name]
    status = pod_status("Succeeded", ended("harness", message=message))
    (container,) = launch_evidence(view_of(HARNESS, status)).containers
    assert container.usage == want
