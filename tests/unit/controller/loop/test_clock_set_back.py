"""A run under way while somebody sets the machine's clock back."""

from __future__ import annotations

from securebench.cluster.port import ObjectKind


class _WallClock:
    """The time of a test, and how far somebody set it back."""

    def __init__(self, clock):
        self._clock = clock
        self.back = 0.0

    def now(self):
        return self._clock.now() - self.back


def test_pods_are_listed_again_in_time(world):
    world.wait()
    world.clock = wall = _WallClock(world.clock)
    world.restart()
    world.apply()
    wall.back = 3600.0
    before = world.cluster.requests["list", ObjectKind.POD]
    world.cluster.end_watches()
    world.wait(70)
    assert world.cluster.requests["list", ObjectKind.POD] == before + 1
