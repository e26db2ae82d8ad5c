"""What a run says while nothing of it works."""

import json

import pytest

from securebench.cluster.port import ObjectKind, QuotaExceeded
from securebench.errors import TransientClusterError
from support.build import NOW, UNSCHEDULABLE, ended, pod_status, rfc3339, running, waiting

MISSING = (
    'rpc error: code = NotFound desc = failed to pull and unpack image "x:1": '
    "failed to resolve reference: x:1: not found"
)
SANDBOX = {"type": "PodReadyToStartContainers", "status": "True"}


def refuse(world, reason, message):
    """Let the kubelet refuse every image that is asked for."""
    for name in world.pods():
        container = waiting("harness", reason, message, image="x:1")
        world.cluster.set_pod_status(name, pod_status("Pending", container))


def test_a_run_says_which_image_it_pulls_and_for_how_long(world):
    world.apply(parallelism=1)
    (pod,) = world.pods()
    status = pod_status("Pending", running("courier"), waiting("harness", image="x:1"))
    world.cluster.set_pod_status(pod, status)
    world.wait(2.5)
    assert (world.condition()["reason"], world.condition()["message"]) == (
        "Starting",
        "pulling x:1",
    )
    for seconds in (5, 10, 20, 40):
        world.wait(NOW + seconds + 2.5 - world.clock.now())
        assert world.condition()["message"] == f"pulling x:1 for {seconds} s"
    writes = world.cluster.requests["patch_status", ObjectKind.BENCHMARK_RUN]
    world.wait(300)
    assert world.cluster.requests["patch_status", ObjectKind.BENCHMARK_RUN] <= writes + 6


def test_an_image_that_does_not_exist_is_told_at_once_and_ends_soon(world):
    world.apply(parallelism=2)
    refuse(world, "ErrImagePull", MISSING)
    world.wait(2.5)
    assert "code = NotFound" in world.condition()["message"]
    began = world.clock.now()
    while world.condition()["status"] == "Unknown":
        assert world.clock.now() < began + 60
        assert "code = NotFound" in world.condition()["message"]
        refuse(world, "ErrImagePull", MISSING)
        world.wait(1)
    assert world.condition()["reason"] == "Incomplete"
    message = world.condition()["message"]
    assert message.startswith(
        "2 of 2 attempts have no verdict; image_pull_failed (2): container harness: ErrImagePull: "
    )
    assert MISSING in message


def test_an_image_name_that_cannot_be_one_is_not_tried_again(world):
    uid = world.apply(parallelism=2)
    refuse(world, "InvalidImageName", "couldn't parse")
    world.wait(5)
    assert world.condition()["reason"] == "Incomplete"
    short = uid.replace("-", "")[:12]
    created = [call.name for call in world.cluster.calls if call.verb == "create"]
    assert [name for name in created if name.startswith(f"sb-{short}-")] == [
        f"sb-{short}-deny",
        f"sb-{short}-0-1h1",
        f"sb-{short}-1-1h1",
    ]


def test_a_short_wait_between_two_tasks_is_not_told(world):
    uid = world.apply(parallelism=1)
    (first,) = world.pods()
    world.cluster.set_pod_status(first, pod_status("Running", running("harness")))
    world.wait(5)
    world.cluster.set_pod_status(first, world.ending(uid, world.launch(first)))
    world.wait(2.5)
    assert (world.condition()["reason"], world.condition()["message"]) == ("Running", "")
    world.wait(2.5)
    assert world.condition()["message"] == "waiting for a node"


def test_the_canary_is_told_with_what_it_waits_for(world):
    world.apply(isolation={"require": "Verified"})
    assert world.condition()["reason"] == "Probing"
    canary = next(name for name in world.pods() if "canary" in name)
    control = next(name for name in world.pods() if "control" in name)
    world.cluster.set_pod_status(control, pod_status("Running", running("probe")))
    world.cluster.set_pod_status(
        canary, pod_status("Pending", waiting("probe", image="pod:1"), conditions=[SANDBOX])
    )
    world.wait(7)
    assert world.condition()["message"] == (
        "waiting for the isolation canary: pulling pod:1 for 5 s"
    )
    world.cluster.set_pod_status(canary, pod_status("Running", running("probe")))
    world.wait(2)
    assert world.condition()["message"] == "waiting for the isolation canary"
    world.cluster.set_pod_status(canary, pod_status("Succeeded", ended("probe", 3)))
    world.wait(5)
    assert world.condition()["reason"] != "Running"


# One task waits while another works: told within five seconds, in the status and by an Event

TOLD_SECONDS = 5.0
ON_NODE = {"type": "PodScheduled", "status": "True", "lastTransitionTime": rfc3339(NOW)}
NO_SANDBOX = (ON_NODE, {"type": "PodReadyToStartContainers", "status": "False"})
VOLUME = "0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims"

STUCK = {
    "an image that is not to be had": (
        pod_status("Pending", waiting("harness", "ErrImagePull", "i/o timeout", image="x:1")),
        "Running",
        "task #1: cannot pull x:1: ErrImagePull: i/o timeout",
    ),
    "a slow image": (
        pod_status("Pending", waiting("harness", image="x:1"), conditions=[SANDBOX]),
        "Running",
        "task #1: pulling x:1",
    ),
    "a container that is refused": (
        pod_status("Pending", waiting("harness", "CreateContainerConfigError", "no secret")),
        "Running",
        "task #1: cannot start container harness: CreateContainerConfigError: no secret",
    ),
    "a volume or a network": (
        pod_status("Pending", conditions=NO_SANDBOX),
        "Running",
        "task #1: waiting for node node-1 to mount volumes and make a sandbox",
    ),
    "a node": (
        pod_status("Pending", conditions=[UNSCHEDULABLE]),
        "Unschedulable",
        "0/1 nodes are available: 1 Insufficient cpu.",
    ),
    "a volume that is not bound": (
        pod_status("Pending", conditions=[{**UNSCHEDULABLE, "message": VOLUME}]),
        "Unschedulable",
        VOLUME,
    ),
}


@pytest.fixture
def half(world):
    """A run of two tasks of which the first works."""
    world.uid = world.apply(parallelism=2)
    first, world.second = world.pods()
    world.cluster.set_pod_status(first, pod_status("Running", running("harness")))
    return world


def told(world):
    return world.condition()["reason"], world.condition()["message"]


def events(world):
    return [event["note"] for event in world.cluster.objects(ObjectKind.EVENT).values()]


@pytest.mark.parametrize("name", STUCK)
def test_a_task_that_waits_beside_one_that_works_says_why(half, name):
    status, reason, message = STUCK[name]
    half.cluster.edit(ObjectKind.POD, half.second, {"spec": {"nodeName": "node-1"}})
    half.cluster.set_pod_status(half.second, status)
    half.wait(TOLD_SECONDS)
    assert half.condition()["reason"] == reason
    assert half.condition()["message"].startswith(message)
    assert message.removeprefix("task #1: ") in events(half)


def test_the_message_goes_when_the_task_works(half):
    status, *_ = STUCK["an image that is not to be had"]
    half.cluster.set_pod_status(half.second, status)
    half.wait(TOLD_SECONDS)
    half.cluster.set_pod_status(half.second, pod_status("Running", running("harness")))
    half.wait(TOLD_SECONDS)
    assert told(half) == ("Running", "")


def test_a_task_that_is_launched_again_later_says_why(half):
    half.cluster.set_pod_status(half.second, pod_status("Failed", reason="Evicted"))
    half.cluster.edit(
        ObjectKind.POD,
        half.second,
        {"status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}},
    )
    half.wait(3)
    message = "task #1: is launched again after pod_lost: "
    assert half.condition()["message"].startswith(message)
    assert any(note.startswith("pod_lost: ") for note in events(half))
    assert half.run()["status"]["lostLaunches"] == [{"reason": "pod_lost", "count": 1}]
    half.wait(10)
    half.work(half.uid)
    summary = json.loads((half.root / "runs" / half.uid / "summary.json").read_text())
    assert summary["lost_launches"] == {"pod_lost": 1}


def test_a_task_that_starts_in_time_says_nothing(half):
    half.wait(2.5)
    assert told(half) == ("Running", "")


TROUBLES = {
    "no answer": (
        TransientClusterError("API server answered 500"),
        "Running",
        ": API server answered 500; tried again",
    ),
    "a full quota": (QuotaExceeded("exceeded quota: pods"), "QuotaExceeded", "exceeded quota"),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_a_pod_that_is_not_created_is_told(half, name):
    error, reason, message = TROUBLES[name]
    for _ in range(9):
        half.cluster.fail_next("create", error, kind=ObjectKind.POD)
    half.cluster.set_pod_status(half.second, half.ending(half.uid, half.launch(half.second)))
    half.wait(TOLD_SECONDS + 5)
    assert half.condition()["reason"] == reason
    assert message in half.condition()["message"]
    assert any(message in note for note in events(half))


@pytest.mark.parametrize("name", ["an image that is not to be had", "a slow image", "a node"])
def test_a_full_quota_hides_no_other_wait(half, name):
    status, reason, message = STUCK[name]
    half.cluster.edit(ObjectKind.POD, half.second, {"spec": {"nodeName": "node-1"}})
    half.cluster.set_pod_status(half.second, status)
    for _ in range(9):
        half.cluster.fail_next("create", QuotaExceeded("exceeded quota"), kind=ObjectKind.POD)
    first = next(name for name in half.pods() if name != half.second)
    half.cluster.set_pod_status(first, half.ending(half.uid, half.launch(first)))
    half.wait(TOLD_SECONDS + 2)
    words = message.removeprefix("task #1: ")
    named = words if reason == "Running" else f"{reason}: {words}"
    assert half.condition()["reason"] == "QuotaExceeded"
    assert half.condition()["message"].endswith(f"exceeded quota; also {named}")
    assert words in events(half)


def test_a_canary_that_is_not_created_is_told(world):
    for _ in range(9):
        lost = TransientClusterError("API server answered 500")
        world.cluster.fail_next("create", lost, kind=ObjectKind.POD)
    world.apply(isolation={"require": "Verified"})
    world.wait(TOLD_SECONDS)
    assert world.condition()["reason"] == "Probing"
    assert "API server answered 500; tried again" in world.condition()["message"]
