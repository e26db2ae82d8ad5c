"""The pack that is audited: its tasks and the reference answers that lie beside them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from securebench.benchmark.families.audit_rules import AuditRules, TaskRepository
from securebench.benchmark.families.registry import audit_rules_for
from securebench.benchmark.files.load import CheckedPack, check_upload, read_answers
from securebench.benchmark.lint.pack_lint import LintFinding
from securebench.benchmark.pack.lane_plan import TASK_FILE
from securebench.benchmark.pack.oracle import ReferenceAnswer, reference_answers
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.core.errors import ConfigErrors, InvalidInputError

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
        manifest: Manifest file.
        tasks: Task file.
        limit: Rows behind this many are not read.
        task_file: Workspace path of the public payload.
    """
    checked = check_upload(manifest, tasks, limit=limit, task_file=task_file)
    answers: Mapping[str, ReferenceAnswer] = {}
    errors: tuple[InvalidInputError, ...] = ()
    try:
        content = read_answers(manifest.parent)
        if content is not None:
            compiled = [item.task for item in checked.tasks]
            is_whole = limit is None and not checked.errors
            answers = reference_answers(content, compiled, (), is_whole=is_whole).by_id
    except ConfigErrors as broken:
        errors = broken.errors
    except InvalidInputError as broken:
        errors = (broken,)
    return Subject(manifest, tasks, checked, answers, errors, limit)
