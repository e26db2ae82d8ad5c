"""history: a task's repository tells nothing of what came after its base commit (A-003)."""

from __future__ import annotations

from collections.abc import Iterator

from securebench.audit.findings import Finding, FindingProblem, Rule, findings, image_name, summary
from securebench.audit.images.archive import Catalogue, Image, UnreadableImageError
from securebench.audit.images.git import GitError
from securebench.audit.images.repository import Repository, traces
from securebench.audit.images.task_image import (
    gold_files,
    image_reference,
    images_of,
    repository_files,
)
from securebench.audit.rules.image import absent, unreadable
from securebench.audit.subject import Subject
from securebench.benchmark.families.audit_rules import TaskRepository
from securebench.benchmark.pack.task import SecureBenchTask


def check_history(subject: Subject, archives: Catalogue | None) -> tuple[Finding, ...]:
    """Inspect the repository in the image of every task that has one."""
    each = ((task, subject.repository(task)) for task in subject.tasks)
    tasks = [(task, repository) for task, repository in each if repository is not None]
    problems = [
        problem
        for task, repository in tasks
        for problem in (
            *absent([task], archives),
            *(p for image in images_of(task, archives) for p in _problems(task, repository, image)),
        )
    ]
    return findings(
        Rule.HISTORY,
        problems,
        summary(len(tasks), "{} repositories hold their base commit and no more"),
    )


def _problems(
    task: SecureBenchTask, repository: TaskRepository, image: Image
) -> Iterator[FindingProblem]:
    name = image_name(image_reference(task))
    try:
        kept = repository_files(repository, image)
        found = Repository.of(kept, repository.folder)
        if found.is_empty:
            message = f"there is no repository in /{repository.folder}"
            yield FindingProblem(name, message, "correct environment.workdir, or the image")
            return
        for trace in traces(found, repository.base_commit, gold_files(repository, kept)):
            yield FindingProblem(name, f"the repository: {trace.message}", trace.remedy)
    except (UnreadableImageError, GitError) as error:
        yield unreadable(name, error)
