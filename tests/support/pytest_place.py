"""A workspace beside the pack's evaluation files, and the exact command lines of a Pod."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from securebench.run.verification.checks import CheckPlan, SourcePlan
from securebench.run.verification.command import (
    CommandVerification,
    checker_phases,
    checker_prechecks,
)
from support.manifest_samples import LANES, terminal_task

IMPORTING = (
    "import os, sys\n"
    "sys.path.insert(0, os.environ['SECUREBENCH_WORKSPACE'])\n"
    "def test_it():\n"
    "    import solution\n"
    "    assert solution.answer() == 42\n"
)


def task(kind="pytest", path="lab/tests", workspace="/app", **row):
    check = CheckPlan((), workspace, 40.0, (), source=SourcePlan(kind, path), **row)
    verification = CommandVerification(check)
    return terminal_task(verification=verification, workspace=workspace, workdir=workspace)


def phases(one, *, is_folder=False):
    return checker_phases(one, one.verification.check, replace(LANES, checker_is_folder=is_folder))


def prechecks(one, *, is_folder=False):
    return checker_prechecks(
        one, one.verification.check, replace(LANES, checker_is_folder=is_folder)
    )


class Place:
    """Runs the exact command lines of a Pod."""

    def __init__(self, evaluator: Path, workspace: Path) -> None:
        self.evaluator = evaluator
        self.workspace = workspace

    def add(self, name: str, text: str, folder: Path | None = None) -> None:
        target = (folder or self.evaluator) / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")

    def candidate(self, name: str, text: str) -> None:
        self.add(name, text, self.workspace)

    def run(
        self,
        path: str,
        *,
        is_precheck: bool = False,
        python: str = sys.executable,
        **row: tuple[str, ...],
    ) -> subprocess.CompletedProcess[str]:
        (one,) = (prechecks if is_precheck else phases)(
            task(path=path, workspace=str(self.workspace), **row)
        )
        environment = {**os.environ, **one.env, "HOME": str(self.workspace.parent)}
        return subprocess.run(
            [python, *one.command[1:]],
            cwd=self.workspace,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
