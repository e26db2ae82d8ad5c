"""Files as they are when the gold patch is applied."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from securebench.audit.images.git import Git, GitError, temporary_folder
from securebench.benchmark.patch.candidate_policy import is_hard_denied
from securebench.benchmark.patch.reader import read_patch
from securebench.benchmark.patch.sections import NoncanonicalPatchError, changed_paths, unique_paths


def touched_paths(patch: str) -> tuple[str, ...]:
    """Return the paths that a patch names, relative to the repository.

    Raises:
        GitError: It is no canonical patch, or a path leads out of the repository.
    """
    return _paths(patch, unique_paths)


def patched_files(files: Mapping[str, bytes], patches: Sequence[str]) -> dict[str, bytes]:
    """Return what the last of some patches leaves at the paths that it changes.

    Args:
        files: Content of the touched files in the image, by path in the repository.
        patches: Applied one after another, for instance the setup patch and the gold patch.

    Raises:
        GitError: A patch does not apply.
    """
    with temporary_folder() as folder:
        for path in {path for patch in patches for path in touched_paths(patch)}:
            if path in files:
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(files[path])
        git = Git(folder)
        for patch in patches:
            git.run(["apply", "--whitespace=nowarn", "-"], given=patch.encode())
        changed = _paths(patches[-1], changed_paths)
        return {path: (folder / path).read_bytes() for path in changed if (folder / path).is_file()}


def _paths(patch: str, select: Callable[..., tuple[str, ...]]) -> tuple[str, ...]:
    try:
        paths = select(read_patch(patch))
    except NoncanonicalPatchError as error:
        raise GitError(f"the patch is not canonical: {error}") from None
    if any(map(is_hard_denied, paths)):
        raise GitError("the patch touches a path outside of the repository")
    return paths
