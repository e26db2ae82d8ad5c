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
    patches_of,
    repository_files,
    repository_folder,
)
from securebench.audit.rules.image import absent, unreadable
from securebench.audit.subject import Subject
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.core.names import REPO_PATCH


def check_history(subject: Subject, archives: Catalogue | None) -> tuple[Finding, ...]:
    """Look at the repository in the image of every repo_patch task."""
    tasks = subject.of_family(REPO_PATCH)
    problems = [
        problem
        for task in tasks
        for problem in (
            *absent([task], archives),
            *(p for image in images_of(task, archives) for p in _problems(subject, task, image)),
        )
    ]
    return findings(
        Rule.HISTORY,
        problems,
        summary(len(tasks), "{} repositories hold their base commit and no more"),
    )


def _problems(subject: Subject, task: SecureBenchTask, image: Image) -> Iterator[FindingProblem]:
    name = image_name(image_reference(task))
    patches = patches_of(task, subject.gold_patch(task))
    try:
        kept = repository_files(task, image, patches)
        repository = Repository.of(kept, repository_folder(task))
        if repository.is_empty:
            message = f"there is no repository in /{repository_folder(task)}"
            yield FindingProblem(name, message, "correct environment.workdir, or the image")
            return
        base = str(task.resources.value("base_commit"))
        for trace in traces(repository, base, gold_files(task, kept, patches)):
            yield FindingProblem(name, f"the repository: {trace.message}", trace.remedy)
    except (UnreadableImageError, GitError) as error:
        yield unreadable(name, error)
