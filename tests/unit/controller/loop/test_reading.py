"""What is read of candidates: within one budget, one judgement at a time, and blamed rightly."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from securebench.controller import attempt_keeper, capture, run_ledger
from securebench.controller.capacity import ReadingBudget
from securebench.controller.volume.journal import Journal, read_journal
from securebench.controller.volume_calls import on_volume
from securebench.run.state.entries import Closed, Entry, ReadBegun
from support.build import FakeClock, VirtualLoop, inline
from support.operator_world import World

MIB = 1 << 20


# The budget


class Meter:
    """Counts what is held at once."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.order: list[str] = []

    async def work(self, name: str, size: int, seconds: float = 1.0) -> str:
        self.now += size
        self.most = max(self.most, self.now)
        self.order.append(name)
        await asyncio.sleep(seconds)
        self.now -= size
        return name


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    clock = FakeClock()
    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        yield runner


def test_what_is_held_at_once_stays_within_the_budget(runner: asyncio.Runner) -> None:
    budget, meter = ReadingBudget(10 * MIB), Meter()
    sizes = [4, 4, 4, 10, 1, 6, 3]

    async def all_of_them() -> list[str]:
        jobs = [
            budget.run_within(
                size * MIB, lambda number=number, size=size: meter.work(str(number), size)
            )
            for number, size in enumerate(sizes)
        ]
        return await asyncio.gather(*jobs)

    assert runner.run(all_of_them()) == [str(number) for number in range(len(sizes))]
    assert meter.most == 10
    assert meter.order == sorted(meter.order)


def test_what_needs_more_than_there_is_goes_alone(runner: asyncio.Runner) -> None:
    budget, meter = ReadingBudget(10), Meter()

    async def both() -> None:
        await asyncio.gather(
            budget.run_within(99, lambda: meter.work("much", 10)),
            budget.run_within(1, lambda: meter.work("little", 1)),
        )

    runner.run(both())
    assert (meter.order, meter.most) == (["much", "little"], 10)


TURNS = {
    "a small run among large ones": ((10, 1.0), (10, 1.0), (1, 1.0)),
    "a large run among small ones, which never leave enough": ((4, 1.0), (4, 1.5), (10, 1.0)),
}


@pytest.mark.parametrize("name", TURNS)
def test_every_run_has_its_turn(name: str, runner: asyncio.Runner) -> None:
    """Who frees memory asks for more behind all who wait, whatever they need."""
    budget, meter = ReadingBudget(10), Meter()

    async def run(name: str, size: int, seconds: float) -> None:
        for _ in range(8):
            await budget.run_within(size, lambda: meter.work(name, size, seconds))

    async def all_of_them() -> None:
        await asyncio.gather(
            *(run(f"run {place}", *each) for place, each in enumerate(TURNS[name]))
        )

    runner.run(all_of_them())
    assert meter.order[:3] == ["run 0", "run 1", "run 2"]
    assert meter.order[:12].count("run 2") >= 3


def test_memory_is_held_to_the_end_of_the_work_whoever_gives_up(runner: asyncio.Runner) -> None:
    budget, meter = ReadingBudget(10), Meter()

    async def cancelled() -> None:
        first = asyncio.create_task(budget.run_within(10, lambda: meter.work("thread", 10, 60.0)))
        await asyncio.sleep(0.1)
        first.cancel()
        await budget.run_within(1, lambda: meter.work("next", 1))

    runner.run(cancelled())
    assert (meter.order, meter.most) == (["thread", "next"], 10)


# Blame


class KilledError(BaseException):
    """The kernel ended the operator."""


class Deadly:
    """Kills the operator while it captures a task, or writes its record."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, task: int) -> None:
        self._task = task
        self.is_armed = True
        self.with_others: list[int] = []
        self._capture, self._close = attempt_keeper.capture, Journal.close
        self._texts = run_ledger.read_texts

        def close(of: Journal, last: Sequence[Entry] = ()) -> None:
            self.close(of, last)

        monkeypatch.setattr(Journal, "close", close)

    def of_captures(self, store: Any, task: Any, *given: Any, **named: Any) -> Any:
        self.with_others.append(task.index)
        if self.is_armed and task.index == self._task:
            raise KilledError
        return self._capture(store, task, *given, **named)

    def of_records(self, store: Any, history: Any) -> Any:
        if self.is_armed and history.key.task == self._task:
            raise KilledError
        return self._texts(store, history)

    def close(self, of: Journal, last: Sequence[Entry]) -> None:
        """A process that is killed writes nothing more."""
        self._close(of, () if self.is_armed else last)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:

    monkeypatch.setattr(asyncio, "to_thread", inline)
    world = World(tmp_path)
    world.runner.get_loop().set_exception_handler(lambda *_: None)
    yield world
    world.runner.run(world.supervisor.close())
    world.runner.close()


def until_the_end(world: World, uid: str, rounds: int = 12) -> dict[str, Any]:
    """Start the operator again whenever it was killed; return the records by task."""
    for _ in range(rounds):
        world.work(uid, rounds=2)
        if world.condition().get("status") == "True":
            break
        world.restart()
        world.observe(None)
    lines = (world.root / "runs" / uid / "candidates.jsonl").read_text().splitlines()
    return {record["task_id"]: record for record in map(json.loads, lines)}


def entries(world: World, uid: str) -> tuple[Any, ...]:
    return read_journal(world.root / "runs" / uid, uid).entries


@pytest.mark.parametrize("place", ["captures", "records"])
def test_what_kills_the_operator_alone_is_the_candidates(
    place: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    deadly = Deadly(monkeypatch, task=0)
    target = (attempt_keeper, "capture") if place == "captures" else (run_ledger, "read_texts")
    monkeypatch.setattr(*target, getattr(deadly, f"of_{place}"))
    uid = world.apply(parallelism=2)

    records = until_the_end(world, uid)

    assert (records["a"]["outcome"], records["a"]["failure_reason"]) == (
        "agent",
        "candidate_invalid",
    )
    assert records["a"]["record_truncated"] is True
    assert (records["b"]["outcome"], records["b"]["passed"]) == ("scored", True)
    begun = [each for each in entries(world, uid) if isinstance(each, ReadBegun)]
    assert [each.is_alone for each in begun if each.key.task == 0][-2:] == [False, True]
    assert world.condition()["reason"] == "Completed"


def test_what_was_read_with_it_is_not_blamed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    deadly = Deadly(monkeypatch, task=1)
    monkeypatch.setattr(attempt_keeper, "capture", deadly.of_captures)

    records = until_the_end(world, world.apply(parallelism=2))

    assert records["a"]["passed"] is True
    assert records["b"]["failure_reason"] == "candidate_invalid"


def test_stopping_in_order_says_nothing_against_what_is_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An upgrade may come while a capture lasts, again and again."""
    deadly = Deadly(monkeypatch, task=0)
    deadly.is_armed = False

    async def slowly(work: Any, *given: Any) -> Any:
        if getattr(work, "__name__", "") == "read":
            await asyncio.sleep(1000)
        return work(*given)

    monkeypatch.setattr(capture, "on_volume", slowly)
    uid = world.apply(parallelism=2)
    for _ in range(4):
        world.work(uid, rounds=1)
        world.restart()
        world.observe(None)
    written = entries(world, uid)
    assert sum(isinstance(each, Closed) for each in written) >= 2
    assert not any(each.is_alone for each in written if isinstance(each, ReadBegun))

    monkeypatch.setattr(capture, "on_volume", on_volume)
    world.restart()
    world.observe(None)
    records = until_the_end(world, uid)
    assert {record["outcome"] for record in records.values()} == {"scored"}


def test_an_error_in_the_same_process_says_nothing_either(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = iter([OSError("disk"), OSError("disk"), OSError("disk")])
    real = attempt_keeper.capture

    def capture(*given: Any, **named: Any) -> Any:
        error = next(errors, None)
        if error is not None:
            raise error
        return real(*given, **named)

    monkeypatch.setattr(attempt_keeper, "capture", capture)
    close = Journal.close
    monkeypatch.setattr(Journal, "close", lambda of, _last=(): close(of))
    uid = world.apply(parallelism=1)
    world.work(uid, rounds=40)

    begun = [each for each in entries(world, uid) if isinstance(each, ReadBegun)]
    assert len(begun) > 4
    assert not any(each.is_alone for each in begun)
    assert world.condition()["reason"] == "Completed"
