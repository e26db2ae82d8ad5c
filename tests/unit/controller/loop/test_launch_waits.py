"""Those who watch a run are told of each launch what it waits for, and of a quiet run nothing."""

import io
import json
from unittest import mock

import pytest

from securebench.client.live import in_flight
from securebench.client.volume import ActiveAttempts
from securebench.cluster.port import ObjectKind, QuotaExceeded
from securebench.controller import run_loop
from securebench.controller.exec_watching import get_active
from securebench.controller.run_loop import WAITS_SECONDS
from securebench.controller.volume.store import RunStore
from securebench.errors import TransientClusterError
from securebench.protocol.volume import SharedWait, decode_waits
from securebench.run.observe.pods import pod_view
from support.build import UNSCHEDULABLE, pod_status, question, running, waiting, write_pack
from support.operator_world import opened
from unit.controller.loop.test_provider_waits import WORDS, events, tell, two_agents
from unit.controller.loop.test_provider_waits import waiting as provider_waiting
from unit.controller.loop.test_queue import QueueWorld

TOLD_SECONDS = 5.0
NOT_READY = {"type": "Ready", "status": "False"}
WORKS = pod_status("Running", running("harness"))


def path(world):
    return world.root / "runs" / world.uid / "launch-waits.json"


def told(world):
    return decode_waits(path(world).read_bytes())


def steps(world):
    """Return the steps of the attempts in flight as the command line has them, in pack order."""
    sink, now = io.BytesIO(), world.clock.now()
    get_active(RunStore(world.root, world.uid), now, sink)
    lines = tuple(map(json.loads, sink.getvalue().splitlines()))
    found = in_flight(ActiveAttempts(lines, now), [str(index) for index in range(9)])
    return [each.step for each in sorted(found)]


def living(world):
    views = map(pod_view, world.cluster.objects(ObjectKind.POD).values())
    return [view.name for view in views if not view.is_terminal]


def no_image(name):
    return pod_status("Pending", waiting("harness", "ErrImagePull", "not found", image=name))


@pytest.fixture
def half(world):
    """A run of two tasks of which the first works."""
    world.uid = world.apply(parallelism=2)
    first, world.second = world.pods()
    world.cluster.set_pod_status(first, WORKS)
    return world


def test_each_of_seven_tasks_says_which_image_it_cannot_have(world):
    write_pack(world.root / "packs/smoke", [question(str(number)) for number in range(8)])
    world.uid = world.apply(parallelism=8)
    first, *others = world.pods()
    world.cluster.set_pod_status(first, WORKS)
    for number, name in enumerate(others):
        world.cluster.set_pod_status(name, no_image(f"x:{number}"))
    world.wait(TOLD_SECONDS)
    want = [f"cannot pull x:{number}: ErrImagePull: not found" for number in range(7)]
    assert steps(world) == ["agent", *want]


def test_one_pod_without_a_node_says_nothing_of_those_that_work(half):
    half.cluster.set_pod_status(half.second, pod_status("Pending", conditions=[UNSCHEDULABLE]))
    half.wait(TOLD_SECONDS)
    assert half.condition()["reason"] == "Unschedulable"
    want = "unschedulable: 0/1 nodes are available: 1 Insufficient cpu."
    assert steps(half) == ["agent", want]


def test_what_works_again_waits_for_nothing(half):
    half.cluster.set_pod_status(half.second, no_image("x:1"))
    half.wait(TOLD_SECONDS)
    half.cluster.set_pod_status(half.second, WORKS)
    half.wait(WAITS_SECONDS + 0.5)
    assert steps(half) == ["agent", "agent"]
    assert told(half) == ()


def test_a_quiet_run_writes_no_file(world):
    world.uid = world.apply(parallelism=1)
    world.wait(2)
    (first,) = world.pods()
    world.cluster.set_pod_status(first, WORKS)
    world.wait(60)
    for _ in range(8):
        for name in living(world):
            world.cluster.set_pod_status(name, world.ending(world.uid, world.launch(name)))
        world.wait(2)
    assert world.condition()["reason"] == "Completed"
    assert not path(world).exists()


def test_a_wait_is_written_once_and_changes_two_seconds_apart(half):
    with mock.patch.object(
        run_loop, "write_launch_waits", wraps=run_loop.write_launch_waits
    ) as written:
        half.wait(60)
        assert steps(half) == ["agent", "waiting for a node"]
        assert written.call_count == 1
        for number in range(20):
            pulled = waiting("harness", image=f"x:{number}")
            half.cluster.set_pod_status(half.second, pod_status("Pending", pulled))
            half.wait(0.5)
        assert written.call_count in {5, 6, 7}


def test_a_file_that_cannot_be_written_holds_up_nothing(half):
    with mock.patch.object(run_loop, "write_launch_waits", side_effect=OSError("full")) as failing:
        half.wait(60)
        assert failing.call_count in {1, 2}
        half.work(half.uid)
    assert half.condition()["reason"] == "Completed"


def test_a_new_process_takes_back_what_the_one_before_has_told(half):
    half.wait(TOLD_SECONDS)
    assert told(half) == (SharedWait("waiting for a node", (half.second,)),)
    half.restart()
    half.cluster.set_pod_status(half.second, WORKS)
    half.observe(None)
    half.wait(TOLD_SECONDS)
    assert told(half) == ()


def test_nothing_waits_in_a_run_that_has_ended(half):
    half.wait(TOLD_SECONDS)
    assert told(half)
    half.edit(cancel="Immediate")
    half.wait(60)
    assert half.condition()["reason"] == "Cancelled"
    assert told(half) == ()


def test_a_gated_pod_waits_in_its_queue(tmp_path):
    with opened(QueueWorld, tmp_path) as world:
        world.uid = world.apply_labelled("nightly", "team-a", parallelism=2)
        world.hold()
        world.wait(TOLD_SECONDS)
        assert steps(world) == ["waiting in queue team-a"] * 2
        assert [len(each.pods) for each in told(world)] == [2]


TROUBLES = {
    "a quota": (QuotaExceeded("exceeded quota: pods"), "its Pod is being created: exceeded quota"),
    "no answer": (
        TransientClusterError("API server answered 500"),
        "its Pod is being created: Pod ",
    ),
}


@pytest.mark.parametrize("name", TROUBLES)
def test_a_pod_that_is_not_created_says_why(world, name):
    error, want = TROUBLES[name]
    for _ in range(9):
        world.cluster.fail_next("create", error, kind=ObjectKind.POD)
    world.uid = world.apply(parallelism=1)
    world.wait(TOLD_SECONDS)
    (step,) = steps(world)
    assert step.startswith(want)


def test_an_agent_whose_provider_makes_it_wait_says_so(tmp_path):
    with two_agents(tmp_path) as world:
        tell(world, provider_waiting(world))
        world.wait(TOLD_SECONDS)
        first, second = steps(world)
        assert first == "agent"
        assert second.startswith(f"agent, {WORDS}: since 2026-")


GATEWAY_GONE = "gateway Pod sb-000000010000-gateway-1: it runs and is not ready"


def test_a_gateway_that_is_not_ready_any_more_is_told_of_everywhere(tmp_path):
    with two_agents(tmp_path) as world:
        (gateway,) = (name for name in world.pods() if "gateway" in name)
        ready = world.cluster.objects(ObjectKind.POD)[gateway]["status"]
        not_ready = pod_status("Running", running("gateway"), conditions=[NOT_READY])
        world.cluster.set_pod_status(gateway, not_ready)
        world.wait(TOLD_SECONDS)
        condition = world.condition()
        assert (condition["reason"], condition["message"]) == ("GatewayStarting", GATEWAY_GONE)
        assert GATEWAY_GONE in events(world)
        assert steps(world) == ["agent, the run's gateway is not ready"] * 2
        world.cluster.set_pod_status(gateway, ready)
        world.wait(TOLD_SECONDS)
        assert world.condition()["reason"] == "Running"
        assert steps(world) == ["agent", "agent"]
