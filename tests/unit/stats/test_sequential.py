"""Looks at a comparison: how the level is spent, and what decides."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from securebench.stats.intervals import TaskVerdicts
from securebench.stats.paired import LEVEL, Pair, paired_test
from securebench.stats.sequential import DoneTask, course, look_levels, look_tasks

WON, LOST, SAME = (
    DoneTask(TaskVerdicts(1, old), TaskVerdicts(1, new)) for old, new in ((0, 1), (1, 0), (1, 1))
)


@pytest.mark.parametrize("looks", [1, 2, 4, 20])
def test_the_looks_spend_the_level_and_no_more(looks: int) -> None:
    levels = look_levels(looks)
    assert len(levels) == looks
    assert sum(levels) == pytest.approx(LEVEL)
    assert min(levels) > 0


def test_the_shares_are_those_of_the_literature() -> None:
    """Lan and DeMets 1983, O'Brien-Fleming, five looks at a two-sided level of 5 %."""
    spent = [round(sum(look_levels(5)[:number]), 4) for number in range(1, 6)]
    assert spent == [0.0, 0.0019, 0.0114, 0.0284, 0.05]


def test_a_look_needs_its_part_of_the_tasks() -> None:
    assert [look_tasks(number, 4, 10) for number in range(1, 5)] == [3, 5, 8, 10]


def test_a_clear_loss_decides_early_and_a_later_gain_changes_nothing() -> None:
    found = course([LOST] * 20 + [WON] * 20, 40, 4)
    assert found.decision is not None
    assert found.decision[:3] == (2, 20, -1.0)
    assert found.decision == found.taken[-1]


def test_between_two_looks_nothing_is_tested() -> None:
    """Whoever asks after each task has no more chances than whoever asks at the looks."""
    asked = [course([LOST] * done, 40, 4).taken for done in range(20)]
    assert {len(taken) for taken in asked[:10]} == {0}
    assert len(set(asked[10:])) == 1


def test_what_cannot_be_compared_is_done_and_counts_for_nothing() -> None:
    found = course([LOST, None, SAME, None], 4, 1)
    (look,) = found.taken
    assert (look.tasks, look.value, look.p_value) == (4, -0.5, 1.0)
    assert (found.decision, found.next_tasks) == (None, None)


def lost(*, passed: int, attempts: int = 1, seen: tuple[int, int] = (0, 0)) -> DoneTask:
    """Return a task whose attempts the baseline passed so often, with what the candidate has."""
    return DoneTask(TaskVerdicts(attempts, passed), TaskVerdicts(*seen))


LOSSES = {
    "a pass that may have stayed": ([LOST] * 9 + [lost(passed=1)], (-0.9, 1 / 256, 1)),
    "a failure that may be a pass": ([LOST] * 9 + [lost(passed=0)], (-0.8, 22 / 1024, 1)),
    "a gain that may be none": ([WON] * 9 + [lost(passed=0)], (0.9, 1 / 256, 1)),
    "what may be equal": ([LOST] * 5 + [lost(passed=0)] * 5, (0.0, 1.0, 5)),
    "what may be turned": ([LOST] * 2 + [lost(passed=0)] * 8, (0.0, 1.0, 8)),
    "one attempt of two": (
        [lost(passed=2, attempts=2, seen=(2, 0))] * 9 + [lost(passed=0, attempts=2, seen=(1, 0))],
        (-0.85, 1 / 256, 1),
    ),
}


@pytest.mark.parametrize("case", LOSSES)
def test_lost_attempts_count_as_what_makes_the_runs_differ_least(case: str) -> None:
    done, want = LOSSES[case]
    (look,) = course(done, 10, 1).taken
    assert (look.value, look.p_value, look.lost) == pytest.approx(want)


@settings(deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)),
        min_size=1,
        max_size=6,
    )
)
def test_no_verdicts_of_lost_attempts_give_a_larger_p_value(tasks: list[tuple[int, ...]]) -> None:
    """Two attempts per task; of the candidate's some may be lost."""
    made = [DoneTask(TaskVerdicts(2, old), TaskVerdicts(n, min(new, n))) for old, n, new in tasks]
    (look,) = course(made, len(made), 1).taken
    for gained in product(*(range(task.lost + 1) for task in made)):
        whole = [
            Pair(task.baseline, TaskVerdicts(2, task.candidate.passed + more))
            for task, more in zip(made, gained, strict=True)
        ]
        assert paired_test(whole).p_value <= look.p_value


def test_without_any_verdict_nothing_is_decided() -> None:
    assert course([None] * 4, 4, 2).decision is None
    assert course([], 0, 1).decision is None
