"""What a run says while nothing of it works."""

from securebench.cluster.port import ObjectKind
from support.build import NOW, ended, pod_status, running, waiting

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
    world.wait(4)
    assert (world.condition()["reason"], world.condition()["message"]) == ("Running", "")
    world.wait(10)
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
