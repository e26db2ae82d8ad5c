"""Rules that families bring to an audit: a rule that several families have is one in the report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, TypeVar

from securebench.audit.findings import Finding, FindingProblem, findings, summary, task_name
from securebench.audit.subject import Subject
from securebench.benchmark.families.audit_rules import (
    ORACLE,
    AnswerRule,
    AuditRules,
    TaskRule,
    TrialRule,
)
from securebench.benchmark.families.registry import FAMILIES


class _Named(Protocol):
    @property
    def name(self) -> str: ...


RuleT = TypeVar("RuleT", bound=_Named)


def task_rules() -> tuple[TaskRule, ...]:
    """Return the rules about rows, each name once."""
    return _once(rule for audit in _audits() for rule in audit.rules)


def answer_rules() -> tuple[AnswerRule, ...]:
    """Return the rules about reference answers, each name once; the common one comes first."""
    return _once((ORACLE, *(audit.answers for audit in _audits())))


def trial_rules() -> tuple[TrialRule, ...]:
    """Return the rules about runs with other candidates, each name once."""
    return _once(rule for audit in _audits() for rule in audit.trials)


def check_task_rules(subject: Subject) -> tuple[Finding, ...]:
    """Ask the family of each task for what is wrong with its row."""
    return tuple(finding for rule in task_rules() for finding in _findings(subject, rule))


def _findings(subject: Subject, rule: TaskRule) -> tuple[Finding, ...]:
    having = [
        (task, own)
        for task in subject.tasks
        for own in subject.rules_of(task).rules
        if own.name == rule.name
    ]
    problems = (
        FindingProblem(task_name(task.id), *problem)
        for task, own in having
        for problem in own.problems(task, subject.reference_text(task))
    )
    return findings(rule.name, problems, summary(len(having), rule.fulfilled))


def _audits() -> Iterator[AuditRules]:
    return (family.audit for family in FAMILIES.values())


def _once(rules: Iterable[RuleT]) -> tuple[RuleT, ...]:
    first: dict[str, RuleT] = {}
    for rule in rules:
        first.setdefault(rule.name, rule)
    return tuple(first.values())
