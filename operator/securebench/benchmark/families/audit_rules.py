"""What a family brings to the audit of a pack, beside the rules that hold for every family.

Pure: an audit reads packs and images and runs trials; families say what to look for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from securebench.benchmark.families.base import TaskView


class AuditProblem(NamedTuple):
    """What a rule has to say about one task.

    Attributes:
        message: One sentence; never a hidden value.
        checked: False where the rule could not look.
    """

    message: str
    remedy: str
    checked: bool = True


class TaskRule(NamedTuple):
    """A rule about rows and their reference answers; families may share its name.

    Attributes:
        name: As the report has it.
        fulfilled: Said where no task has a problem, with ``{}`` for the number of tasks.
        problems: Yields what is wrong with a task; the second argument is the text of its
            reference answer, or None.
    """

    name: str
    fulfilled: str
    problems: Callable[[TaskView, str | None], Iterator[AuditProblem]]


class AnswerRule(NamedTuple):
    """The rule that reference answers pass, in the words of a family.

    Attributes:
        name: As the report has it; families with the same rule share it.
        fulfilled: As of ``TaskRule``.
    """

    name: str
    fulfilled: str
    failure: AuditProblem


class TrialRule(NamedTuple):
    """A run with candidates that a family makes from reference answers, and what must come of it.

    Attributes:
        name: As the report has it.
        fulfilled: As of ``TaskRule``.
        candidates: Returns the candidates of a task with that reference answer, by what is said
            of them; empty where a problem needs no more words.
        without: What is said of a task that has no such candidate.
        problem: Says what is wrong with the record of a candidate, or None.
        decides: Whether no audit passed without the rule.
    """

    name: str
    fulfilled: str
    candidates: Callable[[TaskView, str | None], Mapping[str, str]]
    without: AuditProblem
    problem: Callable[[Mapping[str, object]], AuditProblem | None]
    decides: bool = False


class TaskRepository(NamedTuple):
    """The repository in the image of a task.

    Attributes:
        folder: Without slashes at its ends.
        base_commit: Full hash.
        patches: What leads from the image to the solution, in order; empty where nobody knows it.
    """

    folder: str
    base_commit: str
    patches: tuple[str, ...]


ORACLE = AnswerRule(
    "oracle",
    "{} reference answers pass",
    AuditProblem(
        "it fails with the pack's reference answer",
        "correct the answer in oracle/answers.jsonl, or the check",
    ),
)


def no_repository(_task: TaskView, _reference: str | None) -> TaskRepository | None:
    """Return None: what the image holds is no repository of the task."""
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRules:
    """What an audit asks of the tasks of one family.

    Attributes:
        rules: About rows and reference answers.
        answers: That reference answers pass.
        trials: Runs with other candidates.
        asks: Names of public values that put the question; a candidate that only repeats one must
            not pass.
        settings: Keys of ``eval`` whose values say how a check runs, so that instructions may quote
            them; beside those that every family has.
        repository: Returns the repository that a task's image holds, by the task and the text of
            its reference answer, or None.
    """

    rules: tuple[TaskRule, ...] = ()
    answers: AnswerRule = ORACLE
    trials: tuple[TrialRule, ...] = ()
    asks: tuple[str, ...] = ()
    settings: frozenset[str] = frozenset()
    repository: Callable[[TaskView, str | None], TaskRepository | None] = no_repository


def collisions(search: Callable[[TaskView], Iterator[str]]) -> TaskRule:
    """Return the rule that answers which must differ also differ for the scorer (A-084).

    Args:
        search: Yields what collides in one task.
    """
    remedy = (
        "write the answers so that they differ in more than case, blanks and signs at their ends"
    )

    def problems(task: TaskView, _reference: str | None) -> Iterator[AuditProblem]:
        return (AuditProblem(message, remedy) for message in search(task))

    return TaskRule("collisions", "the scorer keeps the listed answers of {} tasks apart", problems)
