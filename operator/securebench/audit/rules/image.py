"""image: no layer and no setting of a task's image holds a hidden value (A-005)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from securebench.audit.findings import Finding, FindingProblem, Rule, findings, image_name, summary
from securebench.audit.images.archive import Catalogue, Image, UnreadableImageError
from securebench.audit.images.git import GitError
from securebench.audit.images.layers import PROBE_BYTES, LayerScanner
from securebench.audit.images.task_image import (
    gold_files,
    image_reference,
    images_of,
    repository_files,
)
from securebench.audit.rules.payload import joined
from securebench.audit.search.values import HiddenValue, find, hidden_values, strings
from securebench.audit.subject import Subject
from securebench.benchmark.pack.environment import DEFAULT_TARGET
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.core.errors import SecureBenchError

_REMEDY = "build the image without it; a later layer that removes a file does not take it away"
_EXPORT = (
    "export it (docker save -o FOLDER/NAME.tar IMAGE, or skopeo copy docker://IMAGE"
    " docker-archive:FOLDER/NAME.tar:IMAGE) and use --images FOLDER"
)
_SETTINGS = ("config", "history", "container_config", "comment", "author")
"""Parts of an image's configuration that people write."""


def check_image(subject: Subject, archives: Catalogue | None) -> tuple[Finding, ...]:
    """Search the layers and settings of every task's image."""
    problems = list(absent(subject.tasks, archives))
    tasks = [task for task in subject.tasks if images_of(task, archives)]
    values: dict[str, Sequence[HiddenValue]] = {}
    for task in tasks:
        found, trouble = _values(subject, task, images_of(task, archives))
        values[task.id] = found
        problems += trouble
    unique = {value.content: None for found in values.values() for value in found}
    scanner = LayerScanner([content for content in unique if len(content) >= PROBE_BYTES])
    for task in tasks:
        for image in images_of(task, archives):
            problems += _problems(task, image, scanner, values[task.id])
    return findings(
        Rule.IMAGE, problems, summary(len(tasks), "the images of {} tasks were searched")
    )


def absent(
    tasks: Iterable[SecureBenchTask], archives: Catalogue | None
) -> Iterator[FindingProblem]:
    """Yield the images of which there is no archive."""
    for reference in dict.fromkeys(map(image_reference, tasks)):
        if archives is not None and archives.of(reference):
            continue
        bad = () if archives is None else archives.unreadable.items()
        unread = "".join(f"; {file} was not read: {reason}" for file, reason in bad)
        where = "no folder of archives was named" if archives is None else "it is in no archive"
        yield FindingProblem(image_name(reference), f"{where}{unread}", _EXPORT, checked=False)


def unreadable(name: str, error: SecureBenchError) -> FindingProblem:
    """Return the finding about an image that cannot be inspected."""
    remedy = "export the image anew without zstd compression, install git, or correct the row"
    return FindingProblem(name, error.reason, remedy, checked=False)


def _values(
    subject: Subject, task: SecureBenchTask, images: Iterable[Image]
) -> tuple[list[HiddenValue], list[FindingProblem]]:
    """Return hidden values and gold-patched files, and why the latter may be missing."""
    values = list(hidden_values(task, subject.root, subject.reference_text(task)))
    repository = subject.repository(task)
    problems: list[FindingProblem] = []
    if repository is None or not repository.patches:
        return values, problems
    for image in images:
        try:
            files = gold_files(repository, repository_files(repository, image))
        except (UnreadableImageError, GitError) as error:
            problems.append(unreadable(image_name(image_reference(task)), error))
            continue
        values += [HiddenValue(f"the gold-patched {path!r}", files[path]) for path in files]
    return values, problems


def _problems(
    task: SecureBenchTask, image: Image, scanner: LayerScanner, values: Sequence[HiddenValue]
) -> Iterator[FindingProblem]:
    name = image_name(image_reference(task))
    for part in _SETTINGS:
        for hit in find(values, joined(strings(image.config.get(part)))):
            where = "its history" if part == "history" else f"its {part}: ENV, LABEL or the like"
            yield FindingProblem(name, f"{hit.value.name} is in {where} ({hit.how})", _REMEDY)
    by_content = {value.content: value for value in values}
    workdir = f"{str(task.environment.get('workdir') or DEFAULT_TARGET).strip('/')}/"
    for number, layer in enumerate(image.layers, start=1):
        try:
            scan = scanner.scan(image, layer)
        except UnreadableImageError as error:
            yield unreadable(name, error)
            continue
        for path in scan.too_large:
            message = f"the file {path!r} of layer {number} is too large to be searched"
            yield FindingProblem(name, message, "look at it yourself", checked=False)
        for path, needle in scan.hits:
            value = by_content.get(needle)
            if value is not None and not (path.startswith(workdir) and value.is_input(task, path)):
                message = f"{value.name} is in the file {path!r} of layer {number}"
                yield FindingProblem(name, message, _REMEDY)
