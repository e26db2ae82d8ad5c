"""Two runs compared after each part of the baseline's tasks, also while the candidate goes on."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import takewhile

from securebench.stats.intervals import TaskVerdicts
from securebench.stats.paired import LEVEL
from securebench.stats.sequential import Course, DoneTask, Look, course

AttemptVerdicts = Mapping[str, Mapping[int, bool | None]]
"""By task in the order of the records, then by attempt; None for an attempt that was lost. What was
cancelled is left out."""


def compare_in_looks(
    baseline: AttemptVerdicts,
    candidate: AttemptVerdicts,
    changed: Collection[str],
    looks: int,
    level: float = LEVEL,
) -> Course:
    """Compare two runs after each part of the baseline's tasks.

    A task is done when the candidate has a record of each attempt that counts and none of them was
    cancelled. Looks end at the first task that is not done, also once the candidate has ended:
    whoever cancels a run cannot choose what is tested.

    Args:
        baseline: Of a run that has ended; alone gives the tasks, their order and the attempts that
            count (those with a verdict), so that nothing which the candidate does moves a look.
        candidate: Of a run that perhaps goes on.
        changed: Tasks whose row differs; they are done and count for nothing.
        looks: How many looks are planned.
        level: What all looks together may spend.
    """
    old = {task: _counted(attempts) for task, attempts in baseline.items()}
    counted = {task: attempts for task, attempts in old.items() if attempts}
    done = takewhile(lambda task: counted[task].keys() <= candidate.get(task, {}).keys(), counted)
    tasks = [
        None if task in changed else _done_task(counted[task], candidate[task]) for task in done
    ]
    return course(tasks, len(counted), looks, level)


def _counted(attempts: Mapping[int, bool | None]) -> dict[int, bool]:
    return {number: passed for number, passed in attempts.items() if passed is not None}


def _done_task(old: Mapping[int, bool], new: Mapping[int, bool | None]) -> DoneTask:
    verdicts = [passed for number in old if (passed := new[number]) is not None]
    return DoneTask(
        TaskVerdicts(len(old), sum(old.values())), TaskVerdicts(len(verdicts), sum(verdicts))
    )


def look_evidence(look: Look, tasks: int) -> str:
    """Return what a look rests on, in brackets.

    Args:
        look: The look.
        tasks: Tasks of the whole comparison.
    """
    sign = "<=" if look.is_decisive else ">"
    attempts = "1 lost attempt counts" if look.lost == 1 else f"{look.lost} lost attempts count"
    lost = f", {attempts} against it" if look.lost else ""
    return f"(p = {look.p_value:.3g} {sign} {look.level:.3g}, {look.tasks} of {tasks} tasks{lost})"
