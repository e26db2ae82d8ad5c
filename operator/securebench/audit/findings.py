"""What an audit finds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

PACK = "pack"
"""Object of a finding that concerns no single task."""


class FindingOutcome(StrEnum):
    """How a check ended; an unchecked rule is never a passed one."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_CHECKED = "not_checked"


class Rule(StrEnum):
    """The rules that hold for every pack; families bring more (``Family.audit``)."""

    LINT = "lint"
    PAYLOAD = "payload"
    NULL_ANSWERS = "null-answers"
    IMAGE = "image"
    HISTORY = "history"
    NOP = "nop"
    FLAKY = "flaky"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report.

    Attributes:
        object: Task, image, file or the pack.
        message: One sentence; never a hidden value.
        remedy: What to do; empty where there is nothing to do.
    """

    rule: str
    outcome: FindingOutcome
    object: str
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class FindingProblem:
    """What a rule has to say about one object; everything else is in order.

    Attributes:
        object: Task, image, file or the pack.
        message: One sentence; never a hidden value.
        checked: False where the rule could not look.
    """

    object: str
    message: str
    remedy: str
    checked: bool = True


def task_name(task_id: str) -> str:
    """Return a task as findings name it."""
    return f"task {task_id!r}"


def image_name(reference: str) -> str:
    """Return an image as findings name it."""
    return f"image {reference!r}"


def findings(rule: str, problems: Iterable[FindingProblem], summary: str) -> tuple[Finding, ...]:
    """Return the findings of one rule.

    Args:
        rule: The rule.
        problems: All that it has to say, in any order; equal ones count once.
        summary: What was inspected; the message where there is no problem.
    """
    found = tuple(
        Finding(
            rule,
            FindingOutcome.FAILED if problem.checked else FindingOutcome.NOT_CHECKED,
            problem.object,
            problem.message,
            problem.remedy,
        )
        for problem in dict.fromkeys(problems)
    )
    return found or (Finding(rule, FindingOutcome.PASSED, PACK, summary),)


NO_TASK: Final = "the pack has no task that this rule is about"
"""Message of a rule that has passed because it has nothing to look at."""


def summary(count: int, text: str) -> str:
    """Return what a rule inspected.

    Args:
        count: Tasks.
        text: What is in order with so many tasks, with ``{}`` for their number.
    """
    return text.format(count) if count else NO_TASK


def not_checked(rule: str, message: str, remedy: str) -> tuple[Finding, ...]:
    """Return the finding of a rule that inspected nothing."""
    return (Finding(rule, FindingOutcome.NOT_CHECKED, PACK, message, remedy),)
