"""Rules about what runs of the pack said: oracle, nop, base-fails, gold-passes, flaky.

Pure: records of a run come in, as they stand in ``candidates.jsonl`` (contract 16).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from securebench.audit.findings import (
    Finding,
    FindingProblem,
    Rule,
    findings,
    not_checked,
    summary,
    task_name,
)
from securebench.audit.subject import Subject
from securebench.benchmark.families.registry import verifier_for_task_type
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.core.names import REPO_PATCH
from securebench.core.reasons import FailurePhase

Record = Mapping[str, object]
Records = Sequence[Record]

"""Phase of a repo_patch record whose tests ran (contract 14.5.1)."""

_NO_VERDICT = "look at the records of the run, then audit again"


def check_oracle(subject: Subject, records: Records) -> tuple[Finding, ...]:
    """Every task passes with the pack's reference answer; repo_patch has a rule of its own."""
    tasks = [task for task in subject.tasks if task.task_type != REPO_PATCH]
    problems = _judged(tasks, records, _oracle_problem)
    return findings(Rule.ORACLE, problems, summary(len(tasks), "{} reference answers pass"))


def check_gold_passes(subject: Subject, records: Records) -> tuple[Finding, ...]:
    """The tests of every repo_patch task pass with the gold patch."""
    tasks = subject.of_family(REPO_PATCH)
    problems = _judged(tasks, records, _gold_problem)
    return findings(
        Rule.GOLD_PASSES, problems, summary(len(tasks), "the tests of {} gold patches pass")
    )


def check_nop(subject: Subject, records: Records) -> tuple[Finding, ...]:
    """No task passes when nothing is handed in."""
    problems = _judged(subject.tasks, records, _nop_problem)
    return findings(Rule.NOP, problems, summary(len(subject.tasks), "{} tasks fail with nothing"))


def check_base_fails(
    subject: Subject, records: Records, without: Iterable[SecureBenchTask] = ()
) -> tuple[Finding, ...]:
    """The tests of every repo_patch task fail on the base.

    Args:
        subject: The pack.
        records: Of a run whose patches change nothing that a test could see.
        without: Tasks for which there is no such patch.
    """
    left_out = {task.id: task for task in without}
    tasks = [task for task in subject.of_family(REPO_PATCH) if task.id not in left_out]
    problems = [
        *_judged(tasks, records, _base_problem),
        *(_no_base_patch(task) for task in left_out.values()),
    ]
    return findings(Rule.BASE_FAILS, problems, summary(len(tasks), "the tests of {} bases fail"))


def check_flaky(subject: Subject, kinds: Mapping[str, Sequence[Records]]) -> tuple[Finding, ...]:
    """Each task has the same verdict in every run of a kind.

    Args:
        subject: The pack.
        kinds: The runs by their kind.
    """
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
    problem_of: Callable[[Record], tuple[str, str] | None],
) -> Iterator[FindingProblem]:
    """Yield what a rule says of each record, and the tasks that have no verdict."""
    known = _by_task(records)
    for task in tasks:
        name = task_name(task.id)
        record = known.get(task.id)
        if verifier_for_task_type(task.task_type) is None:
            message = f"the family {task.task_type!r} has no verifier"
            yield FindingProblem(name, message, "nothing: its records stay pending", checked=False)
        elif record is None or record.get("passed") is None:
            reason = None if record is None else record.get("failure_reason")
            message = f"the run has no verdict for it: {reason or 'no record'}"
            yield FindingProblem(name, message, _NO_VERDICT, checked=False)
        elif (problem := problem_of(record)) is not None:
            yield FindingProblem(name, *problem)


def _oracle_problem(record: Record) -> tuple[str, str] | None:
    if record["passed"]:
        return None
    message = f"it fails with the pack's reference answer{_why(record)}"
    return message, "correct the answer in oracle/answers.jsonl, or the check"


def _gold_problem(record: Record) -> tuple[str, str] | None:
    if record["passed"]:
        return None
    message = f"its tests fail with the gold patch{_why(record)}"
    return message, "correct the gold patch, the tests, base_commit or the image"


def _nop_problem(record: Record) -> tuple[str, str] | None:
    if not record["passed"]:
        return None
    return "it passes although nothing is handed in", "make the check require what is asked for"


def _base_problem(record: Record) -> tuple[str, str] | None:
    if record["passed"]:
        return "its tests pass on the base, without any fix", "add a test that needs the fix"
    metadata = record.get("verifier_metadata")
    phase = metadata.get("phase") if isinstance(metadata, Mapping) else None
    if phase != FailurePhase.CHECKS:
        return f"its tests did not run on the base{_why(record)}", "correct tests and image"
    return None


def _no_base_patch(task: SecureBenchTask) -> FindingProblem:
    message = "the pack has no gold patch that changes a file, so no patch without effect is known"
    remedy = "add the gold patch, or see yourself that the tests fail on the base"
    return FindingProblem(task_name(task.id), message, remedy, checked=False)


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
