"""Looks at a comparison: how the level is spent, and what decides."""

from __future__ import annotations

import pytest

from securebench.stats.paired import LEVEL, Pair
from securebench.stats.sequential import course, look_levels, look_tasks
from securebench.stats.verdicts import TaskVerdicts

WON, LOST, SAME = (
    Pair(TaskVerdicts(1, old), TaskVerdicts(1, new)) for old, new in ((0, 1), (1, 0), (1, 1))
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


def test_what_has_no_verdict_in_both_is_done_and_counts_for_nothing() -> None:
    found = course([LOST, None, SAME, None], 4, 1)
    (look,) = found.taken
    assert (look.tasks, look.value, look.p_value) == (4, -0.5, 1.0)
    assert (found.decision, found.next_tasks) == (None, None)


def test_without_any_verdict_nothing_is_decided() -> None:
    assert course([None] * 4, 4, 2).decision is None
    assert course([], 0, 1).decision is None
