"""The loop that runs and suites share, with an object and steps that a test makes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from securebench.controller.context import RunObject, run_object
from securebench.controller.object_loop import (
    DEFECT_SECONDS,
    RETRY_LIMIT_SECONDS,
    LatestObject,
    ObjectLoop,
    ObjectSupervisor,
    is_stored,
)
from securebench.controller.publish import Publisher
from securebench.errors import ObjectGoneError, TransientClusterError
from securebench.run.api.status import Reason
from support.build import FakeClock, VirtualLoop, context_of, run_body
from support.fake_cluster import FakeCluster

Step = Callable[["Toy"], Coroutine[Any, Any, bool]]


class Toy(ObjectLoop[RunObject]):
    """A loop that does what the test says."""

    def __init__(self, world: World, found: RunObject) -> None:
        latest = LatestObject(found)
        super().__init__(world.context, latest, Publisher(world.context, latest))
        self.world = world

    async def work(self) -> bool:
        self.world.steps.append((self.world.seconds, self.latest.version.generation))
        return await self.world.step(self)

    async def announce(self, reason: Reason, message: str) -> None:
        self.world.said.append((reason, message))
        self.world.on_announce()

    async def forget(self) -> None:
        self.world.forgotten += 1

    def give_way(self) -> None:
        self.world.ways_given += 1


class World(ObjectSupervisor[RunObject]):
    """A supervisor of toys in virtual time.

    Attributes:
        steps: When each step began, and with which generation.
        step: What a step does.
    """

    def __init__(self, root: Any) -> None:
        super().__init__(run_object, partial(Toy, self))
        self.clock = FakeClock()
        self.began = self.clock.monotonic()
        self.runner = asyncio.Runner(loop_factory=lambda: VirtualLoop(self.clock))
        self.context = context_of(
            FakeCluster(namespace="bench", clock=self.clock), self.clock, root
        )
        self.steps: list[tuple[float, int]] = []
        self.said: list[tuple[Reason, str]] = []
        self.forgotten = self.ways_given = 0
        self.deleted: list[tuple[str, ObjectLoop[RunObject] | None]] = []
        self.step: Step = done
        self.on_announce: Callable[[], None] = lambda: None

    @property
    def seconds(self) -> float:
        return round(self.clock.monotonic() - self.began)

    @property
    def pauses(self) -> list[float]:
        times = [at for at, _ in self.steps]
        return [after - before for before, after in pairwise(times)]

    @property
    def generations(self) -> list[int]:
        return [generation for _, generation in self.steps]

    def tell(
        self,
        generation: int,
        kind: str = "MODIFIED",
        seconds: float = 0.1,
        body: Mapping[str, object] | None = None,
    ) -> None:
        async def tell() -> None:
            self.observe(kind, body or run(generation))
            await asyncio.sleep(seconds)

        self.runner.run(tell())

    def _deleted(self, found: RunObject, loop: ObjectLoop[RunObject] | None) -> None:
        self.deleted.append((found.uid, loop))

    def wait(self, seconds: float) -> None:
        self.runner.run(asyncio.sleep(seconds))


def run(generation: int) -> dict[str, Any]:
    made = run_body("nightly")
    fields = {"uid": "u", "namespace": "bench", "generation": generation}
    return {**made, "metadata": {**made["metadata"], **fields}}


async def done(_: Toy) -> bool:
    return True


async def fail(_: Toy) -> bool:
    raise TransientClusterError("no answer")


async def break_down(_: Toy) -> bool:
    raise KeyError("a secret value")


async def hang(_: Toy) -> bool:
    await asyncio.sleep(1e6)
    return True


@pytest.fixture
def world(tmp_path: Any) -> Iterator[World]:
    world = World(tmp_path)
    with world.runner:
        yield world
        world.runner.run(world.close())


def test_an_object_that_has_ended_begins_again_for_a_later_spec_only(world: World) -> None:
    for generation in (1, 1, 2, 1, 2):
        world.tell(generation)
    assert world.generations == [1, 2]
    assert world.active == 0


def test_a_spec_that_comes_in_the_last_step_gets_a_step_of_its_own(world: World) -> None:
    async def change(toy: Toy) -> bool:
        if toy.latest.version.generation == 1:
            world.observe("MODIFIED", run(2))
        return True

    world.step = change
    world.tell(1)
    assert world.generations == [1, 2]


def test_a_spec_that_comes_right_after_the_last_step_is_not_lost(world: World) -> None:
    """The task is done, and nobody has been told yet."""

    async def change_after(toy: Toy) -> bool:
        if toy.latest.version.generation == 1:
            asyncio.get_running_loop().call_soon(world.observe, "MODIFIED", run(2))
        return True

    world.step = change_after
    world.tell(1)
    assert world.generations == [1, 2]


def test_a_spec_that_comes_while_the_pause_is_announced_ends_it(world: World) -> None:
    world.step = fail
    world.on_announce = lambda: world.observe("MODIFIED", run(2))
    world.tell(1)
    assert world.steps[:2] == [(0, 1), (0, 2)]


def test_pauses_double_up_to_the_limit_at_which_the_slot_is_given(world: World) -> None:
    world.step = fail
    world.tell(1, seconds=130)
    assert world.pauses == [2, 4, 8, 16, 32, RETRY_LIMIT_SECONDS]
    assert world.ways_given == 2
    assert set(world.said) == {(Reason.INTERNAL, "the API server: no answer")}


def test_a_step_that_succeeds_lets_pauses_begin_anew(world: World) -> None:
    async def now_and_then(_: Toy) -> bool:
        if len(world.steps) % 3:
            raise TransientClusterError("no answer")
        return False

    world.step = now_and_then
    world.tell(1, seconds=13)
    assert world.pauses[:6] == [2, 4, 0, 2, 4, 0]


def test_a_later_spec_ends_a_pause(world: World) -> None:
    world.step = fail
    world.tell(1, seconds=100)
    world.step = done
    world.tell(2)
    assert world.steps[-1] == (world.seconds, 2)


def test_a_defect_is_said_without_its_words_and_shown_for_a_while(world: World) -> None:
    world.step = break_down
    world.tell(1)
    assert world.said == [(Reason.INTERNAL, "the run loop failed; see the operator's log")]
    assert (world.active, world.failed) == (0, 1)
    world.step = hang
    world.wait(DEFECT_SECONDS + 1)
    assert (world.active, world.failed) == (1, 0)


def test_an_object_that_is_gone_ends_its_loop_and_is_forgotten(world: World) -> None:
    async def gone(_: Toy) -> bool:
        raise ObjectGoneError("deleted")

    world.step = gone
    world.tell(1)
    world.tell(1)
    assert (world.active, world.forgotten, len(world.steps)) == (0, 1, 1)


def test_a_deletion_ends_a_step_in_the_middle(world: World) -> None:
    world.step = hang
    world.tell(1)
    assert world.active == 1
    world.tell(1, "DELETED")
    assert world.active == 0


def test_the_loop_of_an_object_that_is_deleted_slowly_is_the_one_that_forgets(
    world: World,
) -> None:
    """Its store knows that a thread which outlives the loop may write nothing more."""
    world.step = hang
    world.tell(1)
    (loop,) = (work.loop for work in world._works.values())
    deleting = run(1)
    deleting["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.tell(1, body=deleting)
    assert (world.active, world.deleted) == (0, [])
    world.tell(1, "DELETED")
    assert world.deleted == [("u", loop)]


STORED = {"a": 1, "b": {"c": [1], "d": 2}}
PATCHES = {
    "the same": (STORED, True),
    "a part": ({"b": {"d": 2}}, True),
    "another value": ({"b": {"d": 3}}, False),
    "a further field": ({"e": 1}, False),
    "another list": ({"b": {"c": [1, 2]}}, False),
    "a field to remove": ({"a": None}, False),
    "a field to remove that is not there": ({"e": None}, True),
}


@pytest.mark.parametrize("name", PATCHES)
def test_which_patches_change_nothing(name: str) -> None:
    patch, want = PATCHES[name]
    assert is_stored(STORED, patch) is want
