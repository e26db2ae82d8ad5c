"""The gate notWorse shows every loss that it can, and does not pass where it can show none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from securebench.run.records.reading import DecisiveDigests
from securebench.stats.intervals import TaskVerdicts
from securebench.suite.api import NotWorse
from securebench.suite.gates import CellResults, JudgedCell, not_worse

DIGESTS = frozenset({DecisiveDigests("pack", "verifier", "policy")})


def results(name: str, *tasks: tuple[bool | None, ...]) -> CellResults:
    """Return the results of a run by the verdicts on the attempts of each task; None is lost."""
    verdicts = {
        f"t{index}": dict(enumerate(attempts, start=1)) for index, attempts in enumerate(tasks)
    }
    return CellResults(
        name,
        sum(map(len, tasks)),
        sum(attempts.count(None) for attempts in tasks),
        {
            task: TaskVerdicts(*_counted(list(attempts.values())))
            for task, attempts in verdicts.items()
        },
        dict.fromkeys(verdicts, "row"),
        (),
        DIGESTS,
        verdicts,
    )


def _counted(attempts: list[bool | None]) -> tuple[int, int]:
    return len(attempts) - attempts.count(None), attempts.count(True)


def judged(gate: Mapping[str, Any], old: CellResults, new: CellResults, cells: int = 1) -> Any:
    """Return what the gate says of cells with equal results."""
    cell = [JudgedCell(f"c{index}", new, old) for index in range(cells)]
    return not_worse(NotWorse.parse(dict(gate)), cell)


@pytest.mark.parametrize(
    ("cells", "gate"),
    [
        (11, {"level": "0.001"}),
        (64, {"level": "0.000001"}),
        (64, {"level": "0.01", "looks": 20}),
        (16, {"level": "0.001", "looks": 2}),
    ],
)
def test_a_loss_of_every_attempt_fails_however_small_the_level(
    cells: int, gate: dict[str, Any]
) -> None:
    """Several attempts per task: a p-value from 10,000 random signs was never below 0.0001."""
    old, new = results("old", *[(True,) * 3] * 100), results("new", *[(False,) * 3] * 100)
    found = judged(gate, old, new, cells)
    assert found.passed is False
    assert found.message.startswith("notWorse: c0 is worse by 100.0 points")


def test_a_loss_in_several_steps_fails_at_a_small_level() -> None:
    old = results("old", *[(True,) * 3] * 40)
    new = results("new", *[(True, True, False), (False,) * 3] * 20)
    assert judged({"level": "0.000001"}, old, new).passed is False


@pytest.mark.parametrize("gate", [{}, {"looks": 4}])
def test_runs_that_do_not_differ_pass(gate: dict[str, Any]) -> None:
    old = results("old", *[(True, False)] * 40)
    assert judged(gate, old, results("new", *[(True, False)] * 40)).passed is True


LOST_MOST = {
    "four of forty have a verdict": ([(True,)] * 40, [(False,)] * 4 + [(None,)] * 36),
    "what was lost may have been gained": (
        [(True,), (False,)] * 20,
        [(False,), (None,)] * 20,
    ),
    "one attempt of three is left of each": (
        [(True, True, False)] * 40,
        [(False, None, None)] * 40,
    ),
}


@pytest.mark.parametrize("case", LOST_MOST)
def test_looks_decide_nothing_where_lost_attempts_could_hide_any_loss(case: str) -> None:
    """Every attempt that has a verdict got worse."""
    old, new = LOST_MOST[case]
    found = judged({"looks": 4}, results("old", *old), results("new", *new))
    lost = sum(attempts.count(None) for attempts in new)
    assert (found.passed, found.message) == (
        None,
        f"notWorse: too few tasks to show any loss: c0 ({lost} lost attempts could hide one)",
    )


def test_looks_pass_where_few_attempts_are_lost() -> None:
    old = results("old", *[(True, False)] * 40)
    new = results("new", *[(True, False)] * 38, (None, True), (None, None))
    assert judged({"looks": 4}, old, new).passed is True


def test_looks_that_show_a_gain_could_have_shown_a_loss() -> None:
    old, new = results("old", *[(False,)] * 40), results("new", *[(True,)] * 40)
    assert judged({"looks": 4}, old, new).passed is True
