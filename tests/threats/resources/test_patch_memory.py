"""F10: patches that take the operator's memory, or whose record no line can hold."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from securebench.benchmark.patch.judgement import PatchProblem
from securebench.run.plan.model import TaskLimits
from support.release import OPERATOR, Record
from threats.honest import GOLD_PATCH, REPO_DEFAULTS, REPO_INPUT, REPO_ROW, assert_passed
from threats.kit.arena import Arena
from threats.kit.batch import Batch, Trial
from threats.resources.patch_readings import Read, judged, recorded

MEBIBYTE: Final = 1 << 20
LOCAL_BYTES = 4 * MEBIBYTE
"""As much as the first attack had; the reader's own memory is small beside it."""
TIMES = 4
"""Memory for a patch, in times of its size (issue: at most four)."""
LIVE_BYTES = 10_485_000
"""A patch of 10 MiB is the largest that the operator takes."""

SHAPES = Path(__file__).parents[2] / "support" / "memory_shapes.py"
WRITE_PATCH = """
import sys
sys.stdout.buffer.write(PATCHES[{shape!r}]({size}))
"""
NAMED, WIDE, MANY = "a long name in quotes", "wide paths", "many sections"
AT_ONCE = 8

HERE = Batch("f10-patches", "repo_patch", defaults=REPO_DEFAULTS, spec={"parallelism": AT_ONCE})


def printing(name: str, shape: str) -> Trial:
    """Return a task whose agent prints a hostile patch as large as it may be."""
    agent = SHAPES.read_text(encoding="utf-8") + WRITE_PATCH.format(shape=shape, size=LIVE_BYTES)
    return HERE.task(name, agent=agent, given=REPO_INPUT, grading=REPO_ROW["eval"])


def repairing(name: str) -> Trial:
    """Return a task whose agent repairs the repository."""
    return HERE.task(name, candidate=GOLD_PATCH, given=REPO_INPUT, grading=REPO_ROW["eval"])


NAME, RECORD = printing("name", NAMED), printing("record", WIDE)
SECTIONS = [printing(f"sections-{number}", MANY) for number in range(AT_ONCE)]
FIRST, LAST = repairing("first"), repairing("last")
BESIDE = (FIRST, NAME, RECORD, *SECTIONS, LAST)


def fits(read: Read) -> bool:
    """Tell whether reading took no more memory than it may."""
    return read.kib <= TIMES * LOCAL_BYTES // 1024


def assert_refused(record: Record) -> None:
    """Assert that the candidate, and nobody else, answers for a patch."""
    seen = (record["outcome"], record["failure_reason"], record["passed"])
    assert seen == ("agent", PatchProblem.TOO_LARGE.value, False)


def assert_operator_lives(arena: Arena) -> None:
    """Assert that the operator was never started again."""
    (status,) = arena.place(HERE).release.get("pod", OPERATOR)["status"]["containerStatuses"]
    assert (status["ready"], status["restartCount"]) == (True, 0), status


# a name that backtracks


@pytest.mark.short
def test_a_330_attack_on_memory() -> None:
    read = judged(NAMED, LOCAL_BYTES)

    assert fits(read)
    assert read.problem


@pytest.mark.short
def test_a_330_twin_that_backtracks() -> None:
    assert not fits(judged(NAMED, LOCAL_BYTES, "names"))


@pytest.mark.trials(*BESIDE)
def test_a_330_attack_on_a_run(arena: Arena) -> None:
    assert_refused(arena.record(NAME))
    assert_operator_lives(arena)


# a record that cannot be shortened


@pytest.mark.short
def test_a_331_attack_on_the_record() -> None:
    assert 0 < recorded(WIDE, LIVE_BYTES).record_bytes < TaskLimits().record_bytes


@pytest.mark.short
def test_a_331_twin_that_lists_all_paths() -> None:
    assert recorded(WIDE, LIVE_BYTES, "lists").record_bytes > TaskLimits().record_bytes


@pytest.mark.trials(*BESIDE)
def test_a_331_attack_on_a_run(arena: Arena) -> None:
    assert_refused(arena.record(RECORD))
    assert_operator_lives(arena)


# many sections at once, beside honest work


@pytest.mark.short
def test_a_332_attack_on_memory() -> None:
    assert fits(judged(MANY, LOCAL_BYTES))


@pytest.mark.short
def test_a_332_twin_that_reads_all_sections() -> None:
    assert not fits(judged(MANY, LOCAL_BYTES, "sections"))


@pytest.mark.trials(*BESIDE)
def test_a_332_attack_on_a_run(arena: Arena) -> None:
    for trial in SECTIONS:
        assert_refused(arena.record(trial))
    assert_operator_lives(arena)


# Honest work beside them


def assert_repaired(arena: Arena) -> None:
    """Assert that the run's honest tasks passed, the first and the last of its rows."""
    assert_passed(arena, FIRST)
    assert_passed(arena, LAST)


@pytest.mark.trials(*BESIDE)
def test_a_330_honest(arena: Arena) -> None:
    assert_repaired(arena)


@pytest.mark.trials(*BESIDE)
def test_a_331_honest(arena: Arena) -> None:
    assert_repaired(arena)


@pytest.mark.trials(*BESIDE)
def test_a_332_honest(arena: Arena) -> None:
    assert_repaired(arena)
