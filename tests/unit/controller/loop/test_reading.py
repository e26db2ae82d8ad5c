"""What agents left is read in a process with limits; what ends it is known, and blamed rightly."""

from __future__ import annotations

import asyncio
import json
import operator
import os
import pickle
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from securebench.agents.registry import harness_config
from securebench.benchmark.files.load import load_tasks
from securebench.benchmark.reading.plain import parse_json
from securebench.benchmark.scorers.dangerous_commands import VerificationPolicy
from securebench.controller.capture import SecretMatcher, capture
from securebench.controller.reading import (
    MEMORY_BYTES,
    Reading,
    ReadingEndedError,
    ReadingProcess,
    reading_memory,
)
from securebench.controller.volume.store import RunStore
from securebench.digests import content_digest
from securebench.errors import (
    ConfigErrors,
    InvariantViolationError,
    JournalCorruptError,
    PackError,
    PermanentClusterError,
    SecureBenchError,
)
from securebench.run.artifacts import Part
from securebench.run.decide.attempt import Capture
from securebench.run.observe.stage import Ended
from securebench.run.plan.build import task_plan
from securebench.run.state.entries import Produced
from support.build import (
    HARNESS,
    NOW,
    FakeClock,
    VirtualLoop,
    harness_done,
    inline,
    lead_of,
    seal_message,
    settings_of,
    view_of,
)
from support.manifest_samples import PROVIDER, patch_task, run_plan, text_task
from support.operator_world import World

MIB = 1 << 20
BENCHMARKS = Path(__file__).parents[4] / "benchmarks"
T = TypeVar("T")

# The process


@pytest.fixture(scope="module")
def process() -> Iterator[ReadingProcess]:
    process = ReadingProcess(memory_bytes=32 * MIB, cpu_seconds=1, answer_bytes=9 * MIB)
    yield process
    process.close()


ENDS: dict[str, Callable[[], Any]] = {
    "more memory than it may have": partial(bytes, 64 * MIB),
    "a loop": partial(exec, "while True: pass"),
    "a crash": os.abort,
    "an answer that is too large": partial(bytes, 10 * MIB),
}


@pytest.mark.parametrize("name", ENDS)
def test_what_ends_the_process_ends_nothing_else(name: str, process: ReadingProcess) -> None:
    with pytest.raises(ReadingEndedError, match="ended its process with code"):
        process(ENDS[name])
    assert process(partial(operator.add, 1, 2)) == 3


def test_an_end_from_outside_is_no_candidates_fault(process: ReadingProcess) -> None:
    with pytest.raises(OSError, match="ended from outside with code -9"):
        process(partial(signal.raise_signal, signal.SIGKILL))
    assert process(partial(operator.add, 1, 2)) == 3


def test_an_error_that_cannot_be_made_again_keeps_its_words(process: ReadingProcess) -> None:
    with pytest.raises(InvariantViolationError, match="PlainProblem: invalid JSON"):
        process(partial(parse_json, b"{"))


@pytest.mark.parametrize(
    "error",
    [
        JournalCorruptError("cut", line=3),
        PermanentClusterError("no", status=403),
        ConfigErrors([PackError("bad", path="t", line=1)]),
    ],
)
def test_our_errors_keep_their_class_and_facts(error: SecureBenchError) -> None:
    found = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (type(found), str(found)) == (type(error), str(error))
    assert repr(vars(found)) == repr(vars(error))


def test_memory_counts_for_each_reading(process: ReadingProcess) -> None:
    for _ in range(4):
        assert process(partial(len, bytes(8 * MIB))) == 8 * MIB
        assert len(process(partial(bytes, 8 * MIB))) == 8 * MIB


def test_an_error_is_raised_where_the_work_comes_from(process: ReadingProcess) -> None:
    with pytest.raises(ValueError, match="invalid literal") as raised:
        process(partial(int, "x"))
    assert "in _answer" in raised.value.__notes__[0]


def test_what_cannot_be_handed_over_ends_nothing(process: ReadingProcess) -> None:
    with pytest.raises(AttributeError, match="pickle"):
        process(lambda: 1)
    with pytest.raises(TypeError, match="pickle"):
        process(partial(open, os.devnull))
    assert process(partial(operator.add, 1, 2)) == 3


def test_a_process_that_does_not_start_blames_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    with pytest.raises(OSError, match="did not start"):
        ReadingProcess()(partial(int, "1"))


@pytest.mark.parametrize(
    ("bounds", "want"), [({}, MEMORY_BYTES), ({"patchBytes": 100 * MIB}, 4 * 104 * MIB)]
)
def test_memory_follows_the_bounds(bounds: dict[str, int], want: int, tmp_path: Path) -> None:
    assert reading_memory(settings_of(tmp_path, bounds=bounds)) == want


@pytest.mark.parametrize("name", ["text", "patch"])
def test_it_reads_as_the_operator_would(name: str, process: ReadingProcess, tmp_path: Path) -> None:
    store = RunStore(tmp_path, "u", lead_of(tmp_path))
    store.make_launch_folders(HARNESS)
    patch = b"diff --git a/src/x b/src/x\n--- a/src/x\n+++ b/src/x\n@@ -1 +1 @@\n-a\n+b\n"
    text, task = (patch, patch_task()) if name == "patch" else (b"B\n", text_task())
    store.artifacts.put(store.part(HARNESS, Part.CANDIDATE), "candidate.txt", [text])
    seal = seal_message(digest=content_digest(text))
    job = Capture(HARNESS, view_of(HARNESS, harness_done(0, seal)), Ended(0))
    work = partial(capture, store, task, job, NOW, exposed=SecretMatcher([b"a-long-secret"]))

    found = process(work)

    assert isinstance(found, Produced)
    assert found == work()


PACKS = sorted(path.parent.name for path in BENCHMARKS.glob("*/manifest.yaml"))


@pytest.mark.parametrize("name", PACKS)
def test_plans_of_all_families_reach_the_process(name: str) -> None:
    folder = BENCHMARKS / name
    harness = harness_config("command", {"command": "true"})
    for index, task in enumerate(
        load_tasks(folder / "manifest.yaml", folder / "tasks.jsonl").tasks
    ):
        plan = run_plan(task_plan(index, task, harness, VerificationPolicy()))
        plan = replace(plan, egress=PROVIDER)
        assert pickle.loads(pickle.dumps(plan)) == plan  # noqa: S301 - our own


# Turns


def started(name: str, into: list[str]) -> Callable[[], str]:
    def work() -> str:
        into.append(name)
        return name

    return work


@pytest.mark.parametrize(
    ("seconds", "want"),
    [
        (0.0, ["a0", "a1", "a2", "b0", "b1", "b2"]),
        (1.0, ["a0", "b0", "a1", "b1", "a2", "b2"]),
    ],
)
def test_runs_read_by_turns(
    seconds: float, want: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What takes long keeps other runs waiting once, what takes no time is read at once."""
    clock, order = FakeClock(), list[str]()

    async def slowly(_: float, work: Callable[..., T], *given: Any) -> T:
        await asyncio.sleep(seconds)
        return work(*given)

    monkeypatch.setattr("securebench.controller.reading.on_volume_within", slowly)

    async def both() -> None:
        reading = Reading(lambda work: work())

        async def run(name: str) -> list[str]:
            jobs = [f"{name}{number}" for number in range(3)]
            turns = reading.turns(jobs, lambda job: started(job, order))
            return [str(result) async for turn in turns for _, result in turn]

        assert await asyncio.gather(run("a"), run("b")) == [
            [f"{name}{number}" for number in range(3)] for name in "ab"
        ]

    with asyncio.Runner(loop_factory=lambda: VirtualLoop(clock)) as runner:
        runner.run(both())
    assert order == want


# Blame


class Deadly:
    """Ends its process while it reads a task, or writes the task's record."""

    def __init__(self, task: int, place: str, times: int = 1000) -> None:
        self._task = task
        self._place = place
        self.times = times

    def __call__(self, work: Callable[[], T]) -> T:
        if self._is_deadly(work) and self.times:
            self.times -= 1
            raise ReadingEndedError("a reading ended its process with code -9")
        return work()

    def _is_deadly(self, work: Any) -> bool:
        if self._place == "records":
            ending = getattr(work.func, "__self__", None)
            return ending is not None and ending.finish.key.task == self._task
        return work.func is capture and work.args[1].index == self._task


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(asyncio, "to_thread", inline)
    world = World(tmp_path)
    yield world
    world.runner.run(world.supervisor.close())
    world.runner.close()


def records(world: World, run: Any, **spec: object) -> dict[str, Any]:
    """Return the records by task of a run whose output is read in this way."""
    context = world.new_context()
    world.new_context = lambda: replace(context, reading=Reading(run))  # type: ignore[method-assign]
    world.restart()
    uid = world.apply(**spec)
    world.work(uid, rounds=20)
    assert world.condition()["reason"] == "Completed"
    lines = (world.root / "runs" / uid / "candidates.jsonl").read_text().splitlines()
    return {record["task_id"]: record for record in map(json.loads, lines)}


@pytest.mark.parametrize("place", ["captures", "records"])
def test_what_ends_the_process_twice_is_the_candidates(
    place: str, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    found = records(world, Deadly(0, place), parallelism=2)

    assert (found["a"]["outcome"], found["a"]["failure_reason"], found["a"]["passed"]) == (
        "agent",
        "candidate_invalid",
        False,
    )
    assert "ended the process that read it, twice" in found["a"]["failure_message"]
    assert found["a"]["record_truncated"] is True
    assert "attempt 1 of task 0: reading what the attempt left ended" in caplog.text
    assert (found["b"]["outcome"], found["b"]["passed"]) == ("scored", True)


@pytest.mark.parametrize("place", ["captures", "records"])
def test_a_process_that_ends_once_says_nothing_against_what_it_read(
    place: str, world: World
) -> None:
    found = records(world, Deadly(0, place, times=1), parallelism=2)

    assert {record["outcome"] for record in found.values()} == {"scored"}


def test_a_run_is_read_in_a_process_of_its_own(world: World, process: ReadingProcess) -> None:
    found = records(world, process, parallelism=2)

    assert [found[name]["passed"] for name in "ab"] == [True, True]
    assert found["a"]["candidate_text"]
