"""What a Pod waits for before it works, and an attempt between two launches."""

import pytest

from securebench.clock import rfc3339
from securebench.run.api.field_types import Outcome
from securebench.run.api.status import Reason
from securebench.run.observe.waiting import WaitReason, after_loss, next_try, pod_waiting
from securebench.run.plan.model import AttemptKey, LaunchKey, Role
from securebench.run.state.attempts import Finish, Lost
from support.build import (
    HARNESS,
    NOW,
    UNSCHEDULABLE,
    ended,
    harness_done,
    history_of,
    pod_status,
    running,
    view_of,
    waiting,
)

IMAGE = "registry.example/agent:1"
BACK_OFF = 'Back-off pulling image "overlay:1": ErrImagePull: no such host'
SPELT_OUT = 'failed to pull and unpack image "docker.io/library/agent:1": not found'
SANDBOX = {
    "type": "PodReadyToStartContainers",
    "status": "True",
    "lastTransitionTime": rfc3339(NOW),
}
NO_SANDBOX = (
    {"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(NOW)},
    {"type": "PodReadyToStartContainers", "status": "False"},
)
VOLUMES = [{"name": "overlay", "image": {"reference": "overlay:1"}}, {"name": "w", "emptyDir": {}}]
PULLING = pod_status(
    "Pending", running("courier"), waiting("harness", image=IMAGE), conditions=[SANDBOX]
)


def on_node(status, **changes):
    return view_of(HARNESS, status, nodeName="node-1", **changes)


PODS = {
    "no node yet": (view_of(), "waiting for a node"),
    "no room": (
        view_of(HARNESS, pod_status("Pending", conditions=[UNSCHEDULABLE])),
        "unschedulable: 0/1 nodes are available: 1 Insufficient cpu.",
    ),
    "no sandbox": (
        on_node(pod_status("Pending", conditions=NO_SANDBOX)),
        "waiting for node node-1 to mount volumes and make a sandbox",
    ),
    "nothing known of its containers": (
        on_node(pod_status("Pending", conditions=[SANDBOX])),
        "starting on node node-1",
    ),
    "first image": (
        on_node(pod_status("Pending", waiting("courier", image="pod:1"), waiting("harness"))),
        "pulling pod:1",
    ),
    "image of a volume, or the first one": (
        on_node(pod_status("Pending", waiting("courier", image="pod:1")), volumes=VOLUMES),
        "pulling overlay:1 or pod:1",
    ),
    "images of volumes are there": (on_node(PULLING, volumes=VOLUMES), f"pulling {IMAGE}"),
    "task image": (on_node(PULLING), f"pulling {IMAGE}"),
    "image without a name": (
        on_node(pod_status("Pending", running("courier"), waiting("harness"))),
        "pulling the image of container harness",
    ),
    "image is copied": (
        on_node(pod_status("Pending", running("materialize"), waiting("harness", image=IMAGE))),
        "init container materialize runs",
    ),
    "registry refuses": (
        on_node(pod_status("Pending", waiting("harness", "ErrImagePull", "manifest", image=IMAGE))),
        f"cannot pull {IMAGE}: ErrImagePull: manifest",
    ),
    "registry refuses the image of a volume": (
        on_node(
            pod_status(
                "Pending",
                waiting("courier", image="pod:1"),
                waiting("harness", "ImagePullBackOff", BACK_OFF, image=IMAGE),
            )
        ),
        f"cannot pull overlay:1: ImagePullBackOff: {BACK_OFF}",
    ),
    "registry spells the image in full": (
        on_node(
            pod_status("Pending", waiting("harness", "ErrImagePull", SPELT_OUT, image="agent:1"))
        ),
        f"cannot pull agent:1: ErrImagePull: {SPELT_OUT}",
    ),
    "image without words": (
        on_node(pod_status("Pending", waiting("harness", "ErrImageNeverPull"))),
        "cannot pull the image: ErrImageNeverPull",
    ),
    "container refused": (
        on_node(pod_status("Pending", waiting("harness", "CreateContainerError", "no device"))),
        "cannot start container harness: CreateContainerError: no device",
    ),
    "works": (on_node(pod_status("Running", running("courier"), running("harness"))), None),
    "has worked": (on_node(pod_status("Running", running("courier"), ended("harness"))), None),
    "over": (on_node(harness_done()), None),
    "going": (on_node(PULLING, deleting_at=NOW), None),
}


@pytest.mark.parametrize("name", PODS)
def test_what_a_pod_waits_for(name):
    view, want = PODS[name]
    found = pod_waiting(view, NOW)
    assert (found.message if found is not None else None) == want


AGES = {
    0: ("", 5),
    4.9: ("", 5),
    5: (" for 5 s", 10),
    19: (" for 10 s", 20),
    39.9: (" for 20 s", 40),
    40: (" for 40 s", 60),
    60: (" for 1 min", 120),
    299: (" for 4 min", 300),
}


@pytest.mark.parametrize("age", AGES)
def test_how_long_an_image_has_been_pulled(age):
    words, changes = AGES[age]
    found = pod_waiting(on_node(PULLING), NOW + age)
    assert found == WaitReason(Reason.RUNNING, f"pulling {IMAGE}{words}", NOW + changes)


def test_a_pull_begins_when_the_container_before_has_ended():
    status = pod_status(
        "Pending", ended("materialize"), waiting("harness", image=IMAGE), conditions=[SANDBOX]
    )
    found = pod_waiting(on_node(status), NOW + 7)
    assert found == WaitReason(Reason.RUNNING, f"pulling {IMAGE}", NOW + 3 + 5)


def attempt(task=0, **changes):
    return history_of(AttemptKey(task, 1), **changes)


def lost(at, message="no such image"):
    return Lost(LaunchKey(0, 1, Role.HARNESS, 1), "image_pull_failed", message, at)


def test_between_two_launches_the_last_words_stay():
    done = Finish(AttemptKey(2, 1), Outcome.INFRASTRUCTURE, "pod_lost")
    attempts = [
        attempt(last_lost=lost(NOW, "older")),
        attempt(1, last_lost=lost(NOW + 1)),
        attempt(2, last_lost=lost(NOW + 2, "of a finished one"), finish=done),
    ]
    assert next_try(attempts) == WaitReason(
        Reason.RUNNING, "is launched again after image_pull_failed: no such image"
    )


def test_an_image_that_cannot_be_pulled_again_is_said_once():
    refused = pod_status(
        "Pending", waiting("harness", "ErrImagePull", "no such image", image="x:1")
    )
    found = pod_waiting(on_node(refused), NOW)
    assert after_loss(found, attempt(last_lost=lost(NOW))).message == (
        "cannot pull x:1: ErrImagePull: no such image; "
        "the launch before ended with image_pull_failed"
    )


def test_a_later_launch_says_why_the_one_before_ended():
    found = pod_waiting(view_of(), NOW)
    assert after_loss(found, attempt(last_lost=lost(NOW))) == WaitReason(
        Reason.RUNNING,
        "waiting for a node; the launch before ended with image_pull_failed: no such image",
    )
    assert after_loss(found, attempt()) == after_loss(found, None) == found
