"""null-answers: an answer that says nothing scores 0 (A-082)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from securebench.audit.findings import Finding, FindingProblem, Rule, findings, summary, task_name
from securebench.audit.subject import Subject
from securebench.benchmark.families.registry import audit_rules_for, text_verifier
from securebench.benchmark.families.verification import passes
from securebench.benchmark.pack.task import SecureBenchTask

NULL_ANSWERS: Mapping[str, str] = MappingProxyType(
    {
        "an empty answer": "",
        "a blank answer": " \n\t\n",
        "the answer {}": "{}",
        "a refusal": "I'm sorry, but I can't help with that.",
    }
)
ECHO = "an echo of the question"


def check_null_answers(subject: Subject) -> tuple[Finding, ...]:
    """Let each text task's own scorer judge answers that say nothing."""
    tasks = [task for task in subject.tasks if text_verifier(task.task_type) is not None]
    problems = [problem for task in tasks for problem in _problems(task)]
    return findings(
        Rule.NULL_ANSWERS, problems, summary(len(tasks), "{} text tasks give nothing for nothing")
    )


def answers_without_content(task: SecureBenchTask) -> Iterator[tuple[str, str]]:
    """Yield answers that say nothing, each with its name.

    A passage is not echoed: by the contract an accepted answer may stand within a longer text, so
    a reading task gives credit for its whole passage.
    """
    yield from NULL_ANSWERS.items()
    for name in audit_rules_for(task.task_type).asks:
        asked = task.resources.value(name)
        if isinstance(asked, str):
            yield ECHO, asked


def _problems(task: SecureBenchTask) -> Iterator[FindingProblem]:
    scorer = text_verifier(task.task_type)
    if scorer is None:
        return
    for name, text in answers_without_content(task):
        if passes(scorer, task.resources, text):
            remedy = "change the accepted answers, or the question, so that this is none of them"
            yield FindingProblem(task_name(task.id), f"{name} passes", remedy)
