"""Which files of the pack a task names (contract 9.3). Pure: nothing is looked up on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.families.terminal_task import is_source_form
from securebench.benchmark.pack.paths import (
    EVALUATION_ROOT,
    EVALUATOR_ROOT,
    PathError,
    author_path,
    is_at_or_below,
    safe_relative_path,
)
from securebench.benchmark.pack.task import ASSETS
from securebench.benchmark.reading.rows import ASSET, ASSET_KEYS
from securebench.benchmark.resources import Component, Lane, Resource

if TYPE_CHECKING:
    from securebench.benchmark.pack.task import SecureBenchTask

CHECKER = "eval.checker"
"""Name of the reference to a checker's own file or folder."""


@dataclass(frozen=True, slots=True)
class FileReference:
    """A file or folder of the pack and its place in a workspace.

    Args:
        name: As messages show it, for instance ``assets[0]`` or ``eval.test_files``.
        lane: Public assets, evaluation inputs or hidden files.
        source: Normal path below the lane's asset root.
        mount: Normal workspace path.
        read_only: Whether the agent may not change it; always true outside the public lane.
    """

    name: str
    lane: Lane
    source: str
    mount: str
    read_only: bool


def is_file_reference(value: object) -> bool:
    """Return whether an eval value names a file: it has ``path`` and asset keys only."""
    return isinstance(value, Mapping) and "path" in value and value.keys() <= ASSET_KEYS


def public_assets(task: SecureBenchTask) -> tuple[FileReference, ...]:
    """Return the public assets of a task, in row order.

    Raises:
        PathError: An asset is malformed or its path or mount is not permitted.
    """
    return tuple(_asset(task, f"assets[{index}]", item) for index, item in _asset_items(task))


def eval_reference(resource: Resource) -> FileReference | None:
    """Return the file that an eval resource stands for, or None when it is plain data.

    Raises:
        PathError: The path or the mount is not permitted.
    """
    value = resource.value
    if resource.visibility is Lane.PUBLIC or not isinstance(value, Mapping):
        return None
    if not is_file_reference(value):
        return None
    name = f"eval.{resource.name}"
    for problem in ASSET.problems(name, value):
        raise PathError(problem)
    root = EVALUATOR_ROOT if resource.visibility is Lane.HIDDEN else EVALUATION_ROOT
    source = safe_relative_path(value["path"], f"{name}.path")
    mount = value.get("mount")
    target = f"{root}/{source}"
    if mount is not None:
        target = safe_relative_path(mount, f"{name}.mount")
        if not is_at_or_below(target, root) or target == root:
            raise PathError(f"{name}.mount must be under {root}")
    return FileReference(name, resource.visibility, source, target, read_only=True)


def checker_reference(task: SecureBenchTask) -> FileReference | None:
    """Return the file of a source-form checker (contract 14.6), or None.

    Raises:
        PathError: The path is not permitted.
    """
    checker = task.resources.get("checker")
    family = FAMILIES.get(task.task_type)
    if family is None or not family.has_checker or checker is None:
        return None
    if not isinstance(checker.value, Mapping) or not is_source_form(checker.value):
        return None
    source = safe_relative_path(checker.value.get("path"), f"{CHECKER}.path")
    mount = f"{EVALUATION_ROOT}/{source}"
    return FileReference(CHECKER, Lane.EVALUATION_INPUTS, source, mount, read_only=True)


def each_reference(task: SecureBenchTask) -> Iterator[FileReference | PathError]:
    """Yield every file that a task names, or what is wrong with naming it; public ones first."""
    searches: list[Callable[[], FileReference | None]] = [
        *(partial(_asset, task, f"assets[{index}]", item) for index, item in _asset_items(task)),
        *(partial(eval_reference, item) for item in task.resources),
        partial(checker_reference, task),
    ]
    for search in searches:
        try:
            found = search()
        except PathError as error:
            yield error
        else:
            if found is not None:
                yield found


def asset_root(task: SecureBenchTask, lane: Lane) -> str:
    """Return the pack folder of a lane's files, as the manifest has it."""
    roots = task.metadata.get("asset_roots")
    key, default = ("public", "assets/") if lane is Lane.PUBLIC else ("eval", "hidden/")
    written = roots.get(key) if isinstance(roots, Mapping) else None
    return written if isinstance(written, str) else default


def _asset_items(task: SecureBenchTask) -> Iterator[tuple[int, object]]:
    """Yield the items of the asset list; something else than a list counts as one bad item."""
    resource = task.resources.get(ASSETS)
    if resource is None or resource.visibility is not Lane.PUBLIC:
        return iter(())
    items = resource.value
    return enumerate(items if isinstance(items, list | tuple) else [items])


def _asset(task: SecureBenchTask, name: str, item: object) -> FileReference:
    for problem in ASSET.problems(name, item):
        raise PathError(problem)
    fields = item if isinstance(item, Mapping) else {}
    source = safe_relative_path(fields.get("path"), f"{name}.path")
    mount = fields.get("mount")
    read_only = fields.get("read_only")
    return FileReference(
        name,
        Lane.PUBLIC,
        source,
        author_path(source if mount is None else mount, Component.AGENT, f"{name}.mount"),
        read_only=_default_read_only(task) if read_only is None else bool(read_only),
    )


def _default_read_only(task: SecureBenchTask) -> bool:
    defaults = task.metadata.get("asset_defaults")
    return not (isinstance(defaults, Mapping) and defaults.get("read_only") is False)
