"""The phases of a workspace's check: a command of the author, or a file of the pack."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from securebench.protocol.supervise import Phase
from securebench.reasons import FailurePhase
from securebench.run import layout
from securebench.run.pods.containers import PYTHON
from securebench.run.pods.verify.counting import row_variable
from securebench.run.pods.verify.prechecks import (
    PRECHECK_SECONDS,
    SOURCES,
    command_prechecks,
    is_of_candidate,
    runner_text,
)

if TYPE_CHECKING:
    from securebench.benchmark.pack.lane_plan import LaneSet
    from securebench.run.plan.model import CheckPlan, TaskPlan

"""Name of the phase, and the ``phase`` of the record (contract 14.6)."""

TESTS = "tests of the pack"
"""Precheck: what it finds is the pack's fault, whatever the candidate is."""

COLLECTED = f"{layout.OUTPUT}/collected.json"
"""What the tests do before the candidate is there."""

RUNNER = (PYTHON, "-I", "-S", "-B", "-c", runner_text())
"""Isolated mode without ``site``: no variable, no folder of the user, no working folder and no
file among the packages adds a module."""


def checker_phases(task: TaskPlan, check: CheckPlan, lanes: LaneSet) -> list[Phase]:
    """Return what supervise runs one after the other; the last one decides.

    Args:
        task: The task.
        check: Its check.
        lanes: Tells whether the checker's file is a folder.
    """
    if check.source is None:
        is_ready = not is_of_candidate(check, task.workspace)
        phase = Phase(FailurePhase.CHECKER, check.command, check.workdir, check.timeout_seconds)
        return [replace(phase, is_ready=is_ready, is_guarded=True)]
    path = f"{layout.EVALUATOR}/{check.source.path}"
    variables = _variables(task, path, lanes)
    phase = Phase(
        FailurePhase.CHECKER,
        (path,),
        check.workdir,
        check.timeout_seconds,
        variables,
    )
    if not check.is_pytest:
        return [replace(phase, is_script=True, is_ready=True, is_guarded=True, sources=SOURCES)]
    env = variables | row_variable(check)
    command = _pytest(task, "run", path)
    return [replace(phase, command=command, env=env, is_ready=True, is_guarded=True)]


def checker_prechecks(task: TaskPlan, check: CheckPlan, lanes: LaneSet) -> list[Phase]:
    """Return what examines the pack's own part before the candidate is there."""
    if check.source is None:
        return command_prechecks(check, task.workspace)
    if not check.is_pytest:
        return []
    path = f"{layout.EVALUATOR}/{check.source.path}"
    command = _pytest(task, "check", path)
    env = _variables(task, path, lanes) | row_variable(check)
    return [Phase(TESTS, command, check.workdir, PRECHECK_SECONDS, env)]


def _pytest(task: TaskPlan, verb: str, path: str) -> tuple[str, ...]:
    places = (task.workspace, layout.PYTEST_BUNDLE, layout.EVALUATOR, path, COLLECTED)
    return (*RUNNER, verb, *places)


def _variables(task: TaskPlan, path: str, lanes: LaneSet) -> dict[str, str]:
    return {
        "SECUREBENCH_WORKSPACE": task.workspace,
        "SECUREBENCH_EVALUATOR": layout.EVALUATOR,
        "TEST_DIR": path if lanes.checker_is_folder else path.rpartition("/")[0],
    }
