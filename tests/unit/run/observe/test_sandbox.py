"""A node that cannot make a Pod's sandbox shows nothing in its containers."""

import pytest

from securebench.run.observe.pods import pod_view
from securebench.run.observe.stage import HARNESS_WORK, InProgress, Interrupted, launch_stage
from support.manifest_samples import policy_of

SCHEDULED_AT = 1_767_225_600.0
WAIT = policy_of().sandbox_wait_seconds


def pod(scheduled, sandbox):
    conditions = [
        {"type": kind, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}
        for kind, status in (("PodScheduled", scheduled), ("PodReadyToStartContainers", sandbox))
        if status is not None
    ]
    return {
        "metadata": {"name": "sb-1-0-1h1", "labels": {"securebench.dev/role": "harness"}},
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Pending", "conditions": conditions},
    }


@pytest.mark.parametrize(
    ("scheduled", "sandbox", "age", "want"),
    [
        ("True", "False", 0.0, InProgress(SCHEDULED_AT + WAIT)),
        ("True", "False", WAIT - 1, InProgress(SCHEDULED_AT + WAIT)),
        (
            "True",
            "False",
            WAIT,
            Interrupted("pod_lost", "node node-1 cannot make a sandbox for the Pod"),
        ),
        ("True", "True", WAIT, InProgress()),
        ("True", None, WAIT, InProgress()),
        ("False", "False", WAIT, InProgress()),
    ],
)
def test_stage(scheduled, sandbox, age, want):
    view = pod_view(pod(scheduled, sandbox))
    now = SCHEDULED_AT + age
    assert launch_stage(view, HARNESS_WORK, SCHEDULED_AT, policy_of(), now) == want
