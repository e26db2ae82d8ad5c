"""The image of a task, as archives show it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from securebench.audit.images.archive import Catalogue, Image
from securebench.audit.images.layers import KeptLayers, keep_files
from securebench.audit.images.patched import patched_files, touched_paths
from securebench.audit.images.repository import GIT_FOLDER
from securebench.benchmark.pack.task import SecureBenchTask


def image_reference(task: SecureBenchTask) -> str:
    """Return the image of a task as its row has it."""
    return str(task.environment.get("image") or "")


def images_of(task: SecureBenchTask, archives: Catalogue | None) -> tuple[Image, ...]:
    """Return the images that a task's reference may mean; none where there is no archive."""
    return () if archives is None else tuple(archives.of(image_reference(task)))


def repository_folder(task: SecureBenchTask) -> str:
    """Return the folder of a repo_patch task's repository, without slashes at its ends."""
    tests = task.resources.value("tests")
    own = tests.get("workdir") if isinstance(tests, Mapping) else None
    base = str(task.environment.get("workdir") or "")
    folder = own if isinstance(own, str) else base
    return (folder if folder.startswith("/") else f"{base}/{folder}").strip("/")


def repository_files(task: SecureBenchTask, image: Image, patches: list[str]) -> KeptLayers:
    """Return the git directory of a task's image, and the files that patches touch.

    Raises:
        GitError: A patch is not canonical.
        UnreadableImageError: A layer cannot be read.
    """
    folder = repository_folder(task)
    touched = {f"{folder}/{path}" for patch in patches for path in touched_paths(patch)}
    prefix = f"{folder}/{GIT_FOLDER}/"
    return keep_files(image, lambda path: path in touched or path.startswith(prefix))


def gold_files(task: SecureBenchTask, kept: KeptLayers, patches: list[str]) -> dict[str, bytes]:
    """Return the files that differ between an image and its gold-patched form, in the latter.

    Args:
        task: A repo_patch task.
        kept: Of ``repository_files``.
        patches: Setup patch, where there is one, and gold patch; empty without a gold patch.

    Raises:
        GitError: A patch does not apply.
    """
    if not patches:
        return {}
    prefix = f"{repository_folder(task)}/"
    files = {path.removeprefix(prefix): content for path, content in kept.final.items()}
    return patched_files(files, patches)


def patches_of(task: SecureBenchTask, gold: str | None) -> list[str]:
    """Return what is applied to the base for the gold-patched form; empty without a gold patch."""
    return [] if gold is None else [*_setup(task), gold]


def _setup(task: SecureBenchTask) -> Iterator[str]:
    tests = task.resources.value("tests")
    setup = tests.get("setup_patch") if isinstance(tests, Mapping) else None
    text = setup.get("patch") if isinstance(setup, Mapping) else setup
    if isinstance(text, str):
        yield text
