"""Test commands of repositories whose tests are counted: those that certainly start pytest.

Source: contract 21.14, docs/reference/checks.md, decisions 0021 and 0105.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from securebench.benchmark.families.counted_commands import counted_calls, with_runner
from securebench.protocol.grading import ROW_VARIABLE, RUNNER_VARIABLE
from securebench.protocol.supervise import Phase
from securebench.reasons import FailurePhase
from securebench.run import layout
from securebench.run.pods.verify.prechecks import runner_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.run.plan.model import CheckPlan

INCOMPLETE = "the report of the tests is no pass"
"""Stderr ends with it when a command succeeds and its tests did not."""

ISOLATED = ("-I", "-S", "-B", "-c")
LOADER = f"import os; exec(os.environ[{RUNNER_VARIABLE!r}])"
"""The runner of an argv; its text is long, and a specification is one argument."""

CONTROL_RUN = "control run of the tests"
CONTROL_REPORT = f"{layout.OUTPUT}/control.json"
"""What the tests do on the base, before the candidate is there."""

ANYHOW = ("sh", "-c", '"$@"; exit 0', "sh")
"""Runs a command whose exit code says nothing."""


def counted(check: CheckPlan, known: str = CONTROL_REPORT) -> Phase:
    """Return the phase that runs a repository's tests.

    Args:
        check: Its check. A command that certainly starts pytest gets our runner in its place and
            has to prove a pass; every other one is judged by its exit code alone.
        known: File with the report of the control run.
    """
    phase = Phase(FailurePhase.CHECKS, check.command, check.workdir, check.timeout_seconds)
    if not check.counts_tests:
        return phase
    return Phase(
        FailurePhase.CHECKS,
        _command(check, known, "patch", "script"),
        check.workdir,
        check.timeout_seconds,
        env=_variables(check),
        proof=INCOMPLETE,
    )


def control_run(check: CheckPlan, known: str = CONTROL_REPORT) -> list[Phase]:
    """Return the precheck that runs counted tests on the base; it finds no fault with anybody."""
    if not check.counts_tests:
        return []
    command = (*ANYHOW, *_command(check, known, "base", "base-script"))
    env = _variables(check)
    return [Phase(CONTROL_RUN, command, check.workdir, check.timeout_seconds, env=env)]


def row_variable(check: CheckPlan) -> dict[str, str]:
    """Return what the runner is told of a row, as a variable."""
    calls = counted_calls(check.command) or 1
    row = {"skips": check.skips, "plugins": check.plugins, "calls": calls}
    return {ROW_VARIABLE: json.dumps(row)}


def _variables(check: CheckPlan) -> Mapping[str, str]:
    return {RUNNER_VARIABLE: runner_text(), **row_variable(check)}


def _command(check: CheckPlan, known: str, module: str, script: str) -> tuple[str, ...]:
    def words(name: str) -> tuple[str, ...]:
        return (script, known, name) if name else (module, known)

    return with_runner(
        check.command,
        lambda name: (*ISOLATED, LOADER, *words(name)),
        lambda name: (*ISOLATED, f'"${RUNNER_VARIABLE}"', *words(name)),
    )
