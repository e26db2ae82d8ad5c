"""When a call to the volume is late, and how its progress is known."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from securebench.controller.volume_calls import (
    VolumeCall,
    VolumeCalls,
    call_volume_as,
    on_volume_within,
)
from securebench.files import note_progress
from support.build import FakeClock, VirtualLoop

LIMIT = 3.0


class Noted(VolumeCalls):
    """Calls of which the latest is known."""

    call: VolumeCall

    def add(self, call: VolumeCall) -> None:
        self.call = call
        super().add(call)


class World:
    """Virtual time, and a thread that does nothing yet if a test says so."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.runner = asyncio.Runner(loop_factory=lambda: VirtualLoop(self.clock))
        self.calls = Noted()

    def progress(self) -> None:
        self.calls.call.note_progress(self.clock.monotonic())

    @property
    def silent_since(self) -> float | None:
        return self.calls.silent_since(self.clock.monotonic())


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    with world.runner:
        yield world


@pytest.fixture
def hanging(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    def never(*_: Any) -> asyncio.Future[Any]:
        return asyncio.get_running_loop().create_future()

    monkeypatch.setattr(VirtualLoop, "run_in_executor", never)
    return world


def test_a_call_that_tells_of_progress_is_late_only_after_the_same_time_again(
    hanging: World,
) -> None:
    async def work() -> None:
        call_volume_as(hanging.calls)
        call = asyncio.create_task(on_volume_within(LIMIT, int))
        late = asyncio.create_task(hanging.calls.wait_until_late())
        for _ in range(10):
            await asyncio.sleep(LIMIT - 0.5)
            hanging.progress()
        last = hanging.clock.monotonic()
        await asyncio.sleep(LIMIT - 0.5)
        assert (late.done(), hanging.silent_since) == (False, None)
        await asyncio.sleep(1)
        assert (late.done(), hanging.silent_since) == (True, last)
        call.cancel()

    hanging.runner.run(work())


def test_a_late_call_that_goes_on_and_hangs_again_is_told_of_again(hanging: World) -> None:
    async def work() -> None:
        call_volume_as(hanging.calls)
        call = asyncio.create_task(on_volume_within(LIMIT, int))
        await hanging.calls.wait_until_late()
        await asyncio.sleep(1)
        hanging.progress()
        assert hanging.silent_since is None
        began = hanging.clock.monotonic()
        await hanging.calls.wait_until_late()
        assert hanging.clock.monotonic() == pytest.approx(began + LIMIT)
        assert hanging.silent_since == began
        call.cancel()

    hanging.runner.run(work())


def test_work_tells_the_call_that_it_is_done_for(world: World) -> None:
    began = world.clock.monotonic()

    def work() -> float:
        world.clock.advance(2)
        note_progress()
        return world.calls.call.since

    async def call() -> float:
        call_volume_as(world.calls)
        return await on_volume_within(LIMIT, work)

    assert world.runner.run(call()) == began + 2
    world.clock.advance(2)
    note_progress()
    assert world.calls.call.since == began + 2
