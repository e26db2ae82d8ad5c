"""The pack that an audit inspects, the findings about it, and copies of it that an audit runs.

A finding belongs to a rule and to an object (a task, an image, a file or the pack). A rule without
any object to check is reported as not checked, never as passed. A copy has some of the pack's rows,
with the pack's own answers or with candidates that a family brings.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, NamedTuple

from securebench.benchmark.families.base import AuditRules, TaskRepository, TrialRule
from securebench.benchmark.families.registry import audit_rules_for
from securebench.benchmark.files.folders import is_folder_pack
from securebench.benchmark.files.load import CheckedPack, check_upload, read_answers
from securebench.benchmark.lint import LintFinding
from securebench.benchmark.pack.lane_plan import TASK_FILE
from securebench.benchmark.pack.oracle import (
    ANSWERS_FILE,
    CANDIDATE,
    ReferenceAnswer,
    reference_answers,
)
from securebench.benchmark.pack.paths import safe_relative_path
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.errors import ConfigErrors, InvalidInputError
from securebench.run.api.models import MANIFEST_FILE, TASKS_FILE

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


_PRINTED = re.compile(r"cat <<'(?P<end>\w+)'\n(?P<text>.*\n)(?P=end)\n*", re.DOTALL)
"""A reference command that prints a text and does nothing else."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A pack on this machine.

    Attributes:
        manifest: Manifest file; assets and answers lie below its folder.
        answers: Reference answers by task id.
        answer_errors: What is wrong with the file of the reference answers.
        limit: Rows behind this many are left out; None for none.
        further_lint: What lint says of the tester YAML that names the pack.
    """

    manifest: Path
    tasks_file: Path
    checked: CheckedPack
    answers: Mapping[str, ReferenceAnswer] = field(default_factory=dict)
    answer_errors: tuple[InvalidInputError, ...] = ()
    limit: int | None = None
    further_lint: tuple[LintFinding, ...] = ()

    def with_lint(self, further: tuple[LintFinding, ...]) -> Subject:
        """Return the subject with what lint says of its tester YAML."""
        return replace(self, further_lint=further)

    @property
    def root(self) -> Path:
        """Return the folder of the pack."""
        return self.manifest.parent

    @property
    def id(self) -> str:
        """Return the pack's id, or its folder's name where the manifest does not hold."""
        pack = self.checked.pack
        return self.manifest.resolve().parent.name if pack is None else pack.manifest.id

    @property
    def tasks(self) -> tuple[SecureBenchTask, ...]:
        """Return the tasks of the rows that hold."""
        return tuple(item.task for item in self.checked.tasks)

    def rules_of(self, task: SecureBenchTask) -> AuditRules:
        """Return what the family of a task brings to the audit."""
        return audit_rules_for(task.task_type)

    def reference_text(self, task: SecureBenchTask) -> str | None:
        """Return a task's reference answer; of a command that only prints a text, that text."""
        answer = self.answers.get(task.id)
        if answer is None:
            return None
        printed = _PRINTED.fullmatch(answer.text)
        return answer.text if printed is None else printed["text"]

    def repository(self, task: SecureBenchTask) -> TaskRepository | None:
        """Return the repository that a task's image holds, or None."""
        return self.rules_of(task).repository(task, self.reference_text(task))


def load_subject(
    manifest: Path, tasks: Path, *, limit: int | None = None, task_file: str = TASK_FILE
) -> Subject:
    """Read a pack; its own defects become findings, not errors.

    Args:
        limit: Rows behind this many are not read.
        task_file: Workspace path of the public payload.
    """
    checked = check_upload(manifest, tasks, limit=limit, task_file=task_file)
    answers: Mapping[str, ReferenceAnswer] = {}
    errors: tuple[InvalidInputError, ...] = ()
    try:
        content = read_answers(manifest.parent)
        if content is not None or is_folder_pack(manifest, tasks):
            compiled = [item.task for item in checked.tasks]
            is_whole = limit is None and not checked.errors
            answers = reference_answers(content, compiled, (), is_whole=is_whole).by_id
    except ConfigErrors as broken:
        errors = broken.errors
    except InvalidInputError as broken:
        errors = (broken,)
    return Subject(manifest, tasks, checked, answers, errors, limit)


class TrialCandidate(NamedTuple):
    """What a trial hands in for one task.

    Attributes:
        row_id: Of its row in the trial's pack.
        said: What it is, where one task has several.
    """

    task_id: str
    row_id: str
    said: str
    text: str


def candidates(subject: Subject, rule: TrialRule) -> dict[str, tuple[TrialCandidate, ...]]:
    """Return the candidates of a family's rule by task id; none where a task has none."""
    return {
        task.id: tuple(_of_task(task.id, own.candidates(task, subject.reference_text(task))))
        for task in subject.tasks
        for own in subject.rules_of(task).trials
        if own.name == rule.name
    }


def _of_task(task_id: str, texts: Mapping[str, str]) -> Iterator[TrialCandidate]:
    for number, (said, text) in enumerate(texts.items(), start=1):
        yield TrialCandidate(task_id, f"{task_id}--{number}" if said else task_id, said, text)


def write_trial_pack(subject: Subject, folder: Path, made: Sequence[TrialCandidate]) -> None:
    """Write a pack with a row for each candidate, which is its reference answer."""
    write_pack(subject, folder, {each.task_id for each in made})
    target = folder / ANSWERS_FILE
    target.parent.mkdir(exist_ok=True)
    answers = [{"id": each.row_id, CANDIDATE: each.text} for each in made]
    _write_lines(target, answers)
    if any(each.row_id != each.task_id for each in made):
        rows = {
            row["id"]: row
            for row in map(
                json.loads, filter(None, (folder / TASKS_FILE).read_bytes().split(b"\n"))
            )
        }
        copies = [{**rows[each.task_id], "id": each.row_id} for each in made]
        _write_lines(folder / TASKS_FILE, copies)


def _write_lines(path: Path, values: Iterable[Mapping[str, object]]) -> None:
    lines = (json.dumps(value) for value in values)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def write_pack(subject: Subject, folder: Path, task_ids: Collection[str]) -> None:
    """Write manifest, some rows, assets and reference answers of a pack under the usual names."""
    pack = subject.checked.pack
    if pack is None:
        return
    shutil.copyfile(subject.manifest, folder / MANIFEST_FILE)
    wanted = {item.row.line for item in subject.checked.tasks if item.task.id in task_ids}
    lines = [line.content for line in pack.lines if line.number in wanted]
    (folder / TASKS_FILE).write_bytes(b"".join(line + b"\n" for line in lines))
    roots = (pack.manifest.asset_roots.public, pack.manifest.asset_roots.eval)
    names = {safe_relative_path(root, "asset root") for root in roots}
    for name in sorted(names | {str(Path(ANSWERS_FILE).parent)}):
        if (subject.root / name).is_dir():
            shutil.copytree(subject.root / name, folder / name, symlinks=True, dirs_exist_ok=True)
