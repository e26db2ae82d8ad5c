"""A results volume that hangs: the suite says so until it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import pytest

from securebench.cluster.port import ObjectKind
from securebench.controller.events import SERIES_SECONDS
from securebench.controller.object_loop import StatusWriter
from securebench.controller.volume_calls import ANSWER_SECONDS, BULK_SECONDS
from securebench.errors import TransientClusterError
from securebench.run.observe.waiting import WaitReason
from securebench.suite.decide import PACKS_SECONDS
from support.build import VirtualLoop, finish
from support.suite_world import SuiteWorld

T = TypeVar("T")

SILENT = "the results volume has not answered"
GOES_ON = "; the suite goes on by itself once it does"
TOLD_WITHIN = 5.0
FIRST_TOLD_WITHIN = ANSWER_SECONDS + 0.5
"""Less than the pause after which it is told again."""


class Volume:
    """Calls that go to threads, which may hang."""

    def __init__(self) -> None:
        self.hangs = False
        self.held: list[Callable[[], None]] = []

    def call(self, _: object, work: Callable[..., T], *args: Any) -> asyncio.Future[T]:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        answer = partial(finish, done, partial(work, *args))
        if self.hangs:
            self.held.append(answer)
        else:
            answer()
        return done

    def answer_one(self, world: SuiteWorld) -> None:
        """Let the call return that hangs; the next one hangs again."""

        async def answer() -> None:
            self.held.pop()()

        world.runner.run(answer())

    def answer(self, world: SuiteWorld) -> None:
        self.hangs = False
        self.answer_one(world)


@pytest.fixture
def volume(monkeypatch: pytest.MonkeyPatch) -> Volume:
    volume = Volume()
    monkeypatch.setattr(VirtualLoop, "run_in_executor", volume.call)
    return volume


@pytest.fixture
def hanging(world: SuiteWorld, volume: Volume) -> SuiteWorld:
    """Return a suite whose runs have ended, and whose next pass gets no answer from the volume."""
    world.apply_suite(maxConcurrentRuns=4, gates={"minPassRate": "0.5"})
    world.end_all()
    assert world.said()[:2] == ("True", "Completed")
    volume.hangs = True
    world.annotate("again")
    return world


def events(world: SuiteWorld) -> list[Any]:
    found: Any = world.cluster.objects(ObjectKind.EVENT).values()
    return [event for event in found if event["reason"] == "StorageUnavailable"]


def writes(world: SuiteWorld) -> int:
    return world.cluster.requests["patch_status", ObjectKind.BENCHMARK_SUITE]


def test_a_suite_says_that_the_volume_hangs_and_then_goes_on(
    hanging: SuiteWorld, volume: Volume
) -> None:
    before = hanging.suite_status()
    hanging.wait(TOLD_WITHIN)

    status, reason, message = hanging.said()
    assert (status, reason) == ("False", "StorageUnavailable")
    assert message.startswith(f"{SILENT} since ")
    assert message.endswith(GOES_ON)
    assert hanging.said("Reconciling") == ("True", reason, message)
    told, written = hanging.suite_status(), writes(hanging)
    assert {key for key in told if told[key] != before[key]} == {"conditions"}
    hanging.wait(3600)
    assert (hanging.suite_status(), writes(hanging)) == (told, written)
    assert [(event["note"], event["type"]) for event in events(hanging)] == [(SILENT, "Warning")]

    volume.answer(hanging)
    hanging.wait(1.5)
    assert hanging.said()[:2] == ("False", "Running")
    assert len(hanging.going()) == 4


def test_what_gates_say_stays(hanging: SuiteWorld, volume: Volume) -> None:
    gates = hanging.said("GatesPassed")
    hanging.wait(TOLD_WITHIN)
    assert hanging.said("GatesPassed") == gates
    volume.answer(hanging)


def test_a_suite_says_what_it_said_once_the_volume_answers(
    hanging: SuiteWorld, volume: Volume
) -> None:
    """Though its pass waits for the volume again, and may do so for long."""
    hanging.wait(SERIES_SECONDS + TOLD_WITHIN)  # after which an Event would be counted again
    told = hanging.cluster.objects(ObjectKind.EVENT)
    volume.answer_one(hanging)
    hanging.wait(1.5)
    assert hanging.said() == ("True", "Completed", "all 4 cells have their result")
    assert hanging.cluster.objects(ObjectKind.EVENT) == told
    assert len(events(hanging)) == 1
    hanging.wait(BULK_SECONDS + TOLD_WITHIN)
    assert hanging.said()[2].startswith(SILENT)
    volume.answer(hanging)


def test_a_pass_after_which_the_status_is_as_before_says_so(
    world: SuiteWorld, volume: Volume
) -> None:
    """The pass has seen a status without words about the volume."""
    world.apply_suite(maxConcurrentRuns=4)
    said, volume.hangs = world.said(), True
    world.wait(PACKS_SECONDS + TOLD_WITHIN)
    assert world.said()[2].startswith(SILENT)
    volume.answer(world)
    world.wait(0.2)
    assert world.said() == said


def test_words_that_an_earlier_process_left_are_not_said_again(
    hanging: SuiteWorld, volume: Volume
) -> None:
    hanging.wait(TOLD_WITHIN)
    hanging.restart_suites()
    hanging.wait(TOLD_WITHIN)
    assert hanging.said()[2].startswith(SILENT)
    volume.held.pop(0)  # of the process before
    volume.answer_one(hanging)
    hanging.wait(1.5)
    conditions = hanging.suite_status()["conditions"]
    assert [each["type"] for each in conditions] == ["Suspended", "GatesPassed"]
    volume.answer(hanging)


def test_a_status_that_the_server_did_not_take_is_written_again(
    hanging: SuiteWorld, volume: Volume
) -> None:
    error = TransientClusterError("no answer")
    hanging.cluster.fail_next("patch_status", error, kind=ObjectKind.BENCHMARK_SUITE)
    hanging.wait(TOLD_WITHIN)
    assert hanging.said()[2].startswith(SILENT)
    hanging.cluster.fail_next("patch_status", error, kind=ObjectKind.BENCHMARK_SUITE)
    volume.answer_one(hanging)
    hanging.wait(3)
    assert hanging.said()[:2] == ("True", "Completed")
    volume.answer(hanging)


def test_a_silence_of_which_the_answer_was_lost_is_taken_back(
    hanging: SuiteWorld, volume: Volume
) -> None:
    """The server has taken the words, though the operator cannot know."""
    said = hanging.said()
    error = TransientClusterError("the answer was lost")
    hanging.cluster.fail_next("patch_status", error, before=False, kind=ObjectKind.BENCHMARK_SUITE)
    hanging.wait(FIRST_TOLD_WITHIN)
    assert hanging.said()[2].startswith(SILENT)
    volume.answer_one(hanging)
    hanging.wait(1.5)
    assert hanging.said() == said
    volume.answer(hanging)


def test_a_defect_on_the_way_does_not_end_the_telling(
    hanging: SuiteWorld, volume: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = StatusWriter._finding, [RuntimeError("a defect")]

    def finding(writer: StatusWriter[Any]) -> WaitReason | None:
        if failures:
            raise failures.pop()
        return real(writer)

    monkeypatch.setattr(StatusWriter, "_finding", finding)
    hanging.wait(TOLD_WITHIN)
    assert not failures
    assert hanging.said()[2].startswith(SILENT)
    volume.answer(hanging)
