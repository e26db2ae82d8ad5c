"""The phases of a workspace's check: a command of the author, or a file of the pack."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

from securebench.manifests import layout
from securebench.manifests.commands import PYTHON, Phase
from securebench.verifiers import pytest_runner

if TYPE_CHECKING:
    from securebench.packs.materialize import LaneSet
    from securebench.plan.model import CheckPlan, SourcePlan, TaskPlan

CHECKER = "checker"
"""Name of the phase, and the ``phase`` of the record (contract 14.6)."""

PYTEST = "pytest"
"""The other kind of a checker's file is ``script``."""

FIND_PYTEST = "finding pytest in the task image"
"""Phase that fails before any test: then the verifier cannot work, whatever the candidate did."""

FIND_SECONDS = 120.0
"""Python starts and looks into a few folders: far more than a busy node needs."""

RUNNER = (PYTHON, "-I", "-B", "-c", inspect.getsource(pytest_runner))
"""Isolated mode: no variable, no folder of the user and no working folder adds a module."""


def checker_phases(task: TaskPlan, check: CheckPlan, lanes: LaneSet) -> list[Phase]:
    """Return what supervise runs one after the other; the last one decides.

    Args:
        task: The task.
        check: Its check.
        lanes: Tells whether the checker's file is a folder.
    """
    if check.source is None:
        return [Phase(CHECKER, check.command, check.workdir, check.timeout_seconds)]
    path = f"{layout.EVALUATOR}/{check.source.path}"
    env = _variables(task, path, lanes)
    if check.source.kind != PYTEST:
        return [Phase(CHECKER, (path,), check.workdir, check.timeout_seconds, env, is_script=True)]
    places = (task.workspace, layout.PYTEST_BUNDLE)
    find = Phase(FIND_PYTEST, (*RUNNER, "find", *places), check.workdir, FIND_SECONDS)
    tests = (*RUNNER, "run", *places, layout.EVALUATOR, path)
    return [find, Phase(CHECKER, tests, check.workdir, check.timeout_seconds, env)]


def needs_pytest(source: SourcePlan | None) -> bool:
    """Return whether a check may need a pytest of ours."""
    return source is not None and source.kind == PYTEST


def _variables(task: TaskPlan, path: str, lanes: LaneSet) -> dict[str, str]:
    return {
        "SECUREBENCH_WORKSPACE": task.workspace,
        "SECUREBENCH_EVALUATOR": layout.EVALUATOR,
        "TEST_DIR": path if lanes.checker_is_folder else path.rpartition("/")[0],
    }
