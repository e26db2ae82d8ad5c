"""Test commands of repositories whose tests are counted: those that call pytest as a module.

Source: contract 21.14, docs/reference/checks.md, decision 0021.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from securebench.agents.harness_config import SHELL
from securebench.core.reasons import FailurePhase
from securebench.protocol.grading import RUNNER_VARIABLE
from securebench.protocol.supervise import Phase
from securebench.run.pods.verify.prechecks import PYTHON_NAME, runner_text

if TYPE_CHECKING:
    from securebench.run.plan.model import CheckPlan

"""Name of the phase, and the ``phase`` of the record."""

INCOMPLETE = "the report of the tests is no pass"
"""Stderr ends with it when a command succeeds and its tests did not."""

MODULE = ("-m", "pytest")
ISOLATED = ("-I", "-S", "-B", "-c")
CALL = re.compile(rf"(?<![\w./-])({PYTHON_NAME.pattern})[ \t]+-m[ \t]+pytest(?![\w./-])")


def counted(check: CheckPlan, declared: str) -> Phase:
    """Return the phase that runs a repository's tests.

    Args:
        check: Its check. A command that calls ``python3 -m pytest`` exactly once gets our runner in
            its place and has to prove a pass; every other one is judged by its exit code alone.
        declared: File that names what the candidate changed.
    """
    phase = Phase(FailurePhase.CHECKS, check.command, check.workdir, check.timeout_seconds)
    command = _with_runner(check.command, declared)
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


def _with_runner(command: tuple[str, ...], declared: str) -> tuple[str, ...] | None:
    if command[: len(SHELL)] == SHELL:
        text = _text_with_runner(command[-1], declared)
        return None if text is None else (*SHELL, text)
    if command[1:3] != MODULE or not PYTHON_NAME.fullmatch(command[0]):
        return None
    return (command[0], *ISOLATED, runner_text(), "patch", declared, *command[3:])


def _text_with_runner(text: str, declared: str) -> str | None:
    calls = list(CALL.finditer(text))
    if len(calls) != 1 or text[: calls[0].start()].count('"') % 2:
        return None
    words = f'{calls[0][1]} {" ".join(ISOLATED)} "${RUNNER_VARIABLE}" patch {declared}'
    return text[: calls[0].start()] + words + text[calls[0].end() :]
