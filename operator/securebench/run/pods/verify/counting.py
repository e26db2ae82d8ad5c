"""Test commands of repositories whose tests are counted: those that call pytest as a module.

Source: contract 21.14, docs/reference/checks.md, decision 0021.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.benchmark.families.counted_commands import with_runner
from securebench.core.reasons import FailurePhase
from securebench.protocol.grading import RUNNER_VARIABLE
from securebench.protocol.supervise import Phase
from securebench.run.pods.verify.prechecks import runner_text

if TYPE_CHECKING:
    from securebench.run.plan.model import CheckPlan

"""Name of the phase, and the ``phase`` of the record."""

INCOMPLETE = "the report of the tests is no pass"
"""Stderr ends with it when a command succeeds and its tests did not."""

ISOLATED = ("-I", "-S", "-B", "-c")


def counted(check: CheckPlan, declared: str) -> Phase:
    """Return the phase that runs a repository's tests.

    Args:
        check: Its check. A command that calls ``python3 -m pytest`` exactly once gets our runner in
            its place and has to prove a pass; every other one is judged by its exit code alone.
        declared: File that names what the candidate changed.
    """
    phase = Phase(FailurePhase.CHECKS, check.command, check.workdir, check.timeout_seconds)
    words = (*ISOLATED, runner_text(), "patch", declared)
    text = f'{" ".join(ISOLATED)} "${RUNNER_VARIABLE}" patch {declared}'
    command = with_runner(check.command, words, text)
    if command is None:
        return phase
    env = {RUNNER_VARIABLE: runner_text()}
    return Phase(
        FailurePhase.CHECKS,
        command,
        check.workdir,
        check.timeout_seconds,
        env=env,
        proof=INCOMPLETE,
    )
