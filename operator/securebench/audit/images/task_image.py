"""The image of a task, as archives show it."""

from __future__ import annotations

from securebench.audit.images.archive import Catalogue, Image
from securebench.audit.images.layers import KeptLayers, keep_files
from securebench.audit.images.patched import patched_files, touched_paths
from securebench.audit.images.repository import GIT_FOLDER
from securebench.benchmark.families.audit_rules import TaskRepository
from securebench.benchmark.pack.task import SecureBenchTask


def image_reference(task: SecureBenchTask) -> str:
    """Return the image of a task as its row has it."""
    return str(task.environment.get("image") or "")


def images_of(task: SecureBenchTask, archives: Catalogue | None) -> tuple[Image, ...]:
    """Return the images that a task's reference may mean; none where there is no archive."""
    return () if archives is None else tuple(archives.of(image_reference(task)))


def repository_files(repository: TaskRepository, image: Image) -> KeptLayers:
    """Return the git directory of a task's image, and the files that its patches touch.

    Raises:
        GitError: A patch is not canonical.
        UnreadableImageError: A layer cannot be read.
    """
    folder = repository.folder
    touched = {f"{folder}/{path}" for patch in repository.patches for path in touched_paths(patch)}
    prefix = f"{folder}/{GIT_FOLDER}/"
    return keep_files(image, lambda path: path in touched or path.startswith(prefix))


def gold_files(repository: TaskRepository, kept: KeptLayers) -> dict[str, bytes]:
    """Return the files that differ between an image and its solution, in the latter.

    Args:
        repository: Without patches nothing is known to differ.
        kept: Of ``repository_files``.

    Raises:
        GitError: A patch does not apply.
    """
    if not repository.patches:
        return {}
    prefix = f"{repository.folder}/"
    files = {path.removeprefix(prefix): content for path, content in kept.final.items()}
    return patched_files(files, repository.patches)
