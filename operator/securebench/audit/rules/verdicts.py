"""Rules about what runs of the pack said: reference answers, nothing, what families try, flakiness.

Pure: records of a run come in, as they stand in ``candidates.jsonl`` (contract 16).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from securebench.audit.findings import (
    Finding,
    FindingProblem,
    Rule,
    findings,
    not_checked,
    summary,
    task_name,
)
from securebench.audit.rules.families import answer_rules
from securebench.audit.subject import Subject
from securebench.audit.trial_pack import TrialCandidate
from securebench.benchmark.families.audit_rules import AnswerRule, AuditProblem, TrialRule
from securebench.benchmark.families.registry import verifier_for_task_type
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.run.records.reading import Record

Records = Sequence[Record]

_NO_VERDICT = "look at the records of the run, then audit again"


def check_answers(subject: Subject, records: Records) -> tuple[Finding, ...]:
    """Every task passes with the pack's reference answer, in the words of its family."""
    return tuple(
        finding for rule in answer_rules() for finding in _answer_findings(subject, rule, records)
    )


def check_nop(subject: Subject, records: Records) -> tuple[Finding, ...]:
    """No task passes when nothing is handed in."""
    problems = _judged(subject.tasks, records, _nop_problem)
    return findings(Rule.NOP, problems, summary(len(subject.tasks), "{} tasks fail with nothing"))


def check_trial(
    rule: TrialRule,
    subject: Subject,
    made: Mapping[str, Sequence[TrialCandidate]],
    records: Records,
) -> tuple[Finding, ...]:
    """Judge the run of a family's candidates.

    Args:
        rule: The rule.
        subject: The pack.
        made: By id of the tasks that the rule is about; none where a task has none.
        records: Records of the run.
    """
    known = _by_task(records)
    tried = [task for task in subject.tasks if made.get(task.id)]
    without = [name for name, of_task in made.items() if not of_task]
    problems = [
        *(
            replace(problem, message=f"{each.said} {problem.message}".lstrip())
            for task in tried
            for each in made[task.id]
            for problem in _judged_as(task, known.get(each.row_id), rule.problem)
        ),
        *(FindingProblem(task_name(name), *rule.without) for name in without),
    ]
    return findings(rule.name, problems, summary(len(tried), rule.fulfilled))


def check_flaky(subject: Subject, kinds: Mapping[str, Sequence[Records]]) -> tuple[Finding, ...]:
    """Each task has the same verdict in every run of a kind."""
    runs = min(map(len, kinds.values()), default=0)
    if runs <= 1:
        return not_checked(Rule.FLAKY, "the pack ran only once", "use --runs 3 or more")
    problems = [
        problem
        for kind, found in kinds.items()
        for task in subject.tasks
        for problem in _flaky(kind, task, [_by_task(records) for records in found])
    ]
    return findings(Rule.FLAKY, problems, f"{runs} runs of each kind agree")


def _judged(
    tasks: Iterable[SecureBenchTask],
    records: Records,
    problem_of: Callable[[Record], AuditProblem | None],
) -> Iterator[FindingProblem]:
    """Yield what a rule says of each record, and the tasks that have no verdict."""
    known = _by_task(records)
    for task in tasks:
        yield from _judged_as(task, known.get(task.id), problem_of)


def _judged_as(
    task: SecureBenchTask,
    record: Record | None,
    problem_of: Callable[[Record], AuditProblem | None],
) -> Iterator[FindingProblem]:
    name = task_name(task.id)
    if verifier_for_task_type(task.task_type) is None:
        message = f"the family {task.task_type!r} has no verifier"
        yield FindingProblem(name, message, "nothing: its records stay pending", checked=False)
    elif record is None or record.get("passed") is None:
        reason = None if record is None else record.get("failure_reason")
        message = f"the run has no verdict for it: {reason or 'no record'}"
        yield FindingProblem(name, message, _NO_VERDICT, checked=False)
    elif (problem := problem_of(record)) is not None:
        why = "" if record["passed"] else _why(record)
        yield FindingProblem(name, f"{problem.message}{why}", problem.remedy, problem.checked)


def _answer_findings(subject: Subject, rule: AnswerRule, records: Records) -> tuple[Finding, ...]:
    tasks = [task for task in subject.tasks if subject.rules_of(task).answers.name == rule.name]

    def problem(record: Record) -> AuditProblem | None:
        return None if record["passed"] else rule.failure

    return findings(
        rule.name, _judged(tasks, records, problem), summary(len(tasks), rule.fulfilled)
    )


def _nop_problem(record: Record) -> AuditProblem | None:
    if not record["passed"]:
        return None
    message = "it passes although nothing is handed in"
    return AuditProblem(message, "make the check require what is asked for")


def _flaky(
    kind: str, task: SecureBenchTask, runs: Sequence[Mapping[str, Record]]
) -> Iterator[FindingProblem]:
    verdicts = [run.get(task.id, {}).get("passed") for run in runs]
    passed, failed = verdicts.count(True), verdicts.count(False)
    name = task_name(task.id)
    if passed and failed:
        message = f"with the {kind} it passes in {passed} and fails in {failed} runs"
        yield FindingProblem(name, message, "make the check independent of time, order and chance")
    elif passed + failed < len(verdicts) and verifier_for_task_type(task.task_type) is not None:
        message = f"not every run with the {kind} has a verdict"
        yield FindingProblem(name, message, _NO_VERDICT, checked=False)


def _by_task(records: Records) -> dict[str, Record]:
    return {str(record.get("task_id")): record for record in records}


def _why(record: Record) -> str:
    metadata = record.get("verifier_metadata")
    facts = metadata if isinstance(metadata, Mapping) else {}
    reason = record.get("failure_reason") or facts.get("failure_reason")
    return f" ({reason})" if reason else ""
