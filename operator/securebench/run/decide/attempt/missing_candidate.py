"""Why an agent handed nothing in: the cause stands in the record, not only its trace.

Source: contract 15.1, 21.10, decision 0025.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from signal import Signals
from typing import Final

from securebench.benchmark.patch.judgement import PatchProblem
from securebench.core.reasons import (
    EMPTY_CANDIDATE,
    HARNESS_FAILED,
    HARNESS_NOT_STARTED,
    OOM_KILLED,
    FailurePhase,
)
from securebench.protocol.extraction import Problem
from securebench.run.api.outcomes import Outcome
from securebench.run.plan.keys import AttemptKey
from securebench.run.state.attempts import CommandReport, Finish, HarnessResult

NOTHING_HANDED_IN: Final = frozenset(
    {Problem.MISSING.value, EMPTY_CANDIDATE, PatchProblem.EMPTY.value}
)
"""Reasons that say what is missing and not why."""

_SIGNALLED: Final = range(129, 129 + 64)
"""Exit codes after a signal, as supervise and shells give them: 128 and its number."""

_SHELL_WORDS: Final[Mapping[int, str]] = {
    126: ", as when a program cannot be executed",
    127: ", as when a program is not found",
}


def harness_not_started(key: AttemptKey, production: HarnessResult) -> Finish | None:
    """Return the end of an attempt whose harness program does not exist or cannot be executed.

    Args:
        key: The attempt.
        production: Its harness launch.
    """
    command = production.command
    if not command.unstarted:
        return None
    message = f"the harness cannot be started (exit code {command.exit_code}): {command.error}"
    return Finish(
        key, Outcome.AGENT, HARNESS_NOT_STARTED, FailurePhase.PRODUCER, message, passed=False
    )


def with_failure_cause(end: Finish | None, production: HarnessResult) -> Finish | None:
    """Return an end that says why nothing was handed in, where that is what it says.

    Args:
        end: What was judged.
        production: The harness launch that it was judged by.

    Returns:
        The end with the memory limit or the exit code as its reason; an end for other reasons as it
        is, one after exit code 0 with the last words of the harness.
    """
    if end is None or end.reason not in NOTHING_HANDED_IN:
        return end
    command = production.command
    if command.memory_kills:
        message = "a process of the harness was killed at the memory limit of its container, and "
        message += f"nothing was handed in: {end.message}{_last_words(production)}"
        known = replace(end, outcome=Outcome.RESOURCE, reason=OOM_KILLED)
    elif command.exit_code:
        message = f"the harness handed nothing in and ended with {_ended_with(command)}: "
        message += f"{end.message}{_last_words(production)}"
        known = replace(end, reason=HARNESS_FAILED)
    else:
        return replace(end, message=end.message + _last_words(production))
    return replace(known, phase=FailurePhase.PRODUCER, message=message)


def _ended_with(command: CommandReport) -> str:
    code = command.exit_code or 0
    words = _SHELL_WORDS.get(code, "")
    if code in _SIGNALLED:
        number = code - _SIGNALLED.start + 1
        known = {signal.value: signal.name for signal in Signals}
        words = f", as after {known.get(number, f'signal {number}')}"
    return f"exit code {code}{words}"


def _last_words(production: HarnessResult) -> str:
    said = production.last_words
    return f"; last line of stderr: {said}" if said else ""
