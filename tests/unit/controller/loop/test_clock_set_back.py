"""A run under way while somebody sets the machine's clock."""

from __future__ import annotations

import pytest

from securebench.cluster.port import ObjectKind
from securebench.errors import TransientClusterError
from support.build import pod_status, running


class _WallClock:
    """The time of a test, and how far somebody set it back."""

    def __init__(self, clock):
        self._clock = clock
        self.back = 0.0

    def now(self):
        return self._clock.now() - self.back

    def monotonic(self):
        return self._clock.monotonic()


@pytest.fixture
def wall(world):
    world.wait()
    world.clock = wall = _WallClock(world.clock)
    world.restart()
    return wall


def test_pods_are_listed_again_in_time(world, wall):
    world.apply()
    wall.back = 3600.0
    before = world.cluster.requests["list", ObjectKind.POD]
    world.cluster.end_watches()
    world.wait(70)
    assert world.cluster.requests["list", ObjectKind.POD] == before + 1


JUMPS = {"back": 3600.0, "ahead": -3600.0}


@pytest.mark.parametrize("name", JUMPS)
def test_a_create_without_an_answer_is_repeated_in_its_time(world, wall, name):
    world.apply(parallelism=1, suspend=True)
    for _ in range(3):
        lost = TransientClusterError("no answer")
        world.cluster.fail_next("create", lost, kind=ObjectKind.POD)
    world.edit(suspend=False)
    wall.back = JUMPS[name]
    creates = [world.cluster.requests["create", ObjectKind.POD]]
    for _ in range(15):
        world.wait(1)
        creates.append(world.cluster.requests["create", ObjectKind.POD])
    assert creates[0] == 1
    assert [creates.index(number) for number in (2, 3, 4)] == [2, 6, 14]


@pytest.mark.parametrize("name", JUMPS)
def test_a_deletion_without_an_answer_is_repeated_in_its_time(world, wall, name):
    world.apply(parallelism=1)
    (pod,) = world.pods()
    world.cluster.set_pod_status(pod, pod_status("Running", running("harness")))
    for _ in range(2):
        lost = TransientClusterError("no answer")
        world.cluster.fail_next("delete", lost, kind=ObjectKind.POD)
    world.edit(cancel="Immediate")
    wall.back = JUMPS[name]
    for seconds, want in ((1, 1), (1.5, 2), (3, 2)):
        world.wait(seconds)
        assert world.cluster.requests["delete", ObjectKind.POD] == want
    world.wait(1)
    assert world.condition()["reason"] == "Cancelled"


@pytest.mark.parametrize("name", JUMPS)
def test_the_status_goes_on(world, wall, name):
    uid = world.apply(parallelism=2)
    for pod in world.pods():
        world.cluster.set_pod_status(pod, pod_status("Running", running("harness")))
    world.wait(60)
    wall.back = JUMPS[name]
    for _ in range(2):
        pod = next(pod for pod in world.pods() if world.launch(pod).task == 0)
        world.cluster.set_pod_status(pod, world.ending(uid, world.launch(pod)))
        world.wait(15)
    assert world.condition()["reason"] == "Running"
    assert world.run()["status"]["tasks"]["done"] == 1
