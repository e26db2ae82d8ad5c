"""null-answers: an answer that says nothing scores 0 (A-082)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from securebench.audit.findings import Finding, FindingProblem, Rule, findings, summary, task_name
from securebench.audit.subject import Subject
from securebench.benchmark.families.registry import text_verifier
from securebench.benchmark.families.verification import TextVerifier
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.scorers.result import VerifierConfigurationError

NULL_ANSWERS: Mapping[str, str] = MappingProxyType(
    {
        "an empty answer": "",
        "a blank answer": " \n\t\n",
        "the answer {}": "{}",
        "a refusal": "I'm sorry, but I can't help with that.",
    }
)
ECHO = "an echo of the question"
QUESTIONS = ("question", "prompt")
"""Names of what is asked. A passage is not echoed: by the contract an accepted answer may stand
within a longer text, so a reading task gives credit for its whole passage."""


def check_null_answers(subject: Subject) -> tuple[Finding, ...]:
    """Let each text task's own scorer judge answers that say nothing."""
    tasks = [task for task in subject.tasks if text_verifier(task.task_type) is not None]
    problems = [problem for task in tasks for problem in _problems(task)]
    return findings(
        Rule.NULL_ANSWERS, problems, summary(len(tasks), "{} text tasks give nothing for nothing")
    )


def answers_without_content(task: SecureBenchTask) -> Iterator[tuple[str, str]]:
    """Yield answers that say nothing, each with its name."""
    yield from NULL_ANSWERS.items()
    for name in QUESTIONS:
        asked = task.resources.value(name)
        if isinstance(asked, str):
            yield ECHO, asked


def passes(scorer: TextVerifier, task: SecureBenchTask, text: str) -> bool:
    """Tell whether an answer passes; with a row that cannot be judged none does."""
    try:
        return scorer.verify(text, task.agent_payload(), task.hidden_payload()).passed
    except VerifierConfigurationError:
        return False


def _problems(task: SecureBenchTask) -> Iterator[FindingProblem]:
    scorer = text_verifier(task.task_type)
    if scorer is None:
        return
    for name, text in answers_without_content(task):
        if passes(scorer, task, text):
            remedy = "change the accepted answers, or the question, so that this is none of them"
            yield FindingProblem(task_name(task.id), f"{name} passes", remedy)
