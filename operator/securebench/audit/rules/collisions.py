"""collisions: answers that must differ also differ for the scorer (A-084)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from securebench.audit.findings import Finding, FindingProblem, Rule, findings, summary, task_name
from securebench.audit.rules.null_answers import passes
from securebench.audit.subject import Subject
from securebench.benchmark.families import free_response, multiple_choice
from securebench.benchmark.families.verification import TextVerifier
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.scorers.text import ALPHABET, norm

_CHOOSER = TextVerifier(multiple_choice.verify, multiple_choice.configuration_problem)
_REMEDY = "write the answers so that they differ in more than case, blanks and signs at their ends"


def check_collisions(subject: Subject) -> tuple[Finding, ...]:
    """Compare the listed answers of tasks in which right and wrong ones are listed."""
    tasks = subject.of_family(multiple_choice.NAME, free_response.NAME)
    problems = [problem for task in tasks for problem in _problems(task)]
    return findings(
        Rule.COLLISIONS,
        problems,
        summary(len(tasks), "the scorer keeps the listed answers of {} tasks apart"),
    )


def _problems(task: SecureBenchTask) -> Iterator[FindingProblem]:
    name = task_name(task.id)
    search = _choices if task.task_type == multiple_choice.NAME else _rubric
    for message in search(task):
        yield FindingProblem(name, message, _REMEDY)


def _choices(task: SecureBenchTask) -> Iterator[str]:
    """Yield options that are alike, and wrong ones that the scorer takes for a right one.

    A letter in brackets is read as a letter only, so it tells which options are right. Right ones
    may be alike: they are one answer.
    """
    choices = _texts(task.resources.value("choices"))[: len(ALPHABET)]
    letters = ALPHABET[: len(choices)]
    is_right = [passes(_CHOOSER, task, f"({letter})") for letter in letters]
    alike: dict[str, list[int]] = defaultdict(list)
    for index, choice in enumerate(choices):
        alike[norm(choice)].append(index)
    for same in alike.values():
        if len(same) > 1 and not all(is_right[index] for index in same):
            yield f"the options {_letters(same)} are the same for the scorer"
    for index, choice in enumerate(choices):
        if is_right[index] or len(alike[norm(choice)]) > 1:
            continue
        for what, text in (("letter", letters[index]), ("text", choice)):
            if passes(_CHOOSER, task, text):
                yield f"the {what} of the wrong option {letters[index]} passes"


def _rubric(task: SecureBenchTask) -> Iterator[str]:
    """Yield accepted and rejected answers that are one text for the scorer.

    An accepted answer may quote a rejected one; that is no collision.
    """
    rubric = task.resources.value("rubric")
    lists = rubric if isinstance(rubric, dict) else {}
    rejected = [norm(text) for text in _texts(lists.get("rejected_answers"))]
    for index, text in enumerate(_texts(lists.get("accepted_answers"))):
        if norm(text) in rejected:
            other = f"rejected_answers[{rejected.index(norm(text))}]"
            yield f"accepted_answers[{index}] and {other} of the rubric are the same for the scorer"


def _texts(value: object) -> Sequence[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _letters(indexes: Sequence[int]) -> str:
    return " and ".join(ALPHABET[index] for index in indexes)
