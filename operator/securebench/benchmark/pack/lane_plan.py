"""Pure plan of one task's files by lane and path, and which files of the pack a task names.

Nothing is looked up on disk. Source: contract 9.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from securebench.benchmark.families.harbor_task import HARBOR, SOLUTION, TASK_FOLDER, listed_files
from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.families.terminal_task import is_source_form
from securebench.benchmark.pack.paths import (
    EVALUATION_ROOT,
    EVALUATOR_ROOT,
    PUBLIC_ROOT,
    PathError,
    author_path,
    check_collisions,
    check_tester_path,
    framework_path,
    is_at_or_below,
    resource_file_name,
    safe_relative_path,
)
from securebench.benchmark.pack.task import ASSETS
from securebench.benchmark.reading.rows import ASSET, ASSET_KEYS
from securebench.benchmark.resources import Component, Lane, Resource, ResourceError
from securebench.errors import PackError
from securebench.json_values import object_at, text_at

if TYPE_CHECKING:
    from collections.abc import Collection

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


def _is_file_reference(value: object) -> bool:
    """Return whether an eval value names a file: it has ``path`` and asset keys only."""
    return isinstance(value, Mapping) and "path" in value and value.keys() <= ASSET_KEYS


def public_assets(task: SecureBenchTask) -> tuple[FileReference, ...]:
    """Return the public assets of a task, in row order.

    Raises:
        PathError: An asset is malformed or its path or mount is not permitted.
    """
    return tuple(_asset(task, f"assets[{index}]", item) for index, item in _asset_items(task))


def _eval_reference(resource: Resource) -> FileReference | None:
    """Return the file that an eval resource stands for, or None when it is plain data.

    Raises:
        PathError: The path or the mount is not permitted.
    """
    value = resource.value
    if resource.visibility is Lane.PUBLIC or not isinstance(value, Mapping):
        return None
    if not _is_file_reference(value):
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
        *(partial(_eval_reference, item) for item in task.resources),
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
    for resource in task.resources:
        try:
            yield from folder_references(task, resource)
        except PathError as error:
            yield error


def folder_references(task: SecureBenchTask, resource: Resource) -> Iterator[FileReference]:
    """Yield the files of the task's own folder that a resource lists.

    Raises:
        PathError: A path is not permitted.
    """
    family = FAMILIES.get(task.task_type)
    folder = None if family is None else family.folders.get(resource.name)
    if folder is None:
        return
    root = EVALUATOR_ROOT if resource.visibility is Lane.HIDDEN else EVALUATION_ROOT
    base = text_at(object_at(task.metadata, HARBOR), TASK_FOLDER)
    name = f"eval.{resource.name}"
    for file in listed_files(resource.value):
        path = safe_relative_path(file, name)
        source = str(PurePosixPath(base, folder, path))
        mount = f"{root}/{path}"
        yield FileReference(name, resource.visibility, source, mount, read_only=True)


def solution_files(task: SecureBenchTask) -> Mapping[str, FileReference]:
    """Return the files of a task's reference solution by their path in it.

    Raises:
        PathError: A path is not permitted.
    """
    resource = task.resources.get(SOLUTION)
    found = () if resource is None else folder_references(task, resource)
    return {_below(file.mount, EVALUATOR_ROOT): file for file in found}


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


TASK_FILE = "task.json"
"""Default of ``harness.config.task_file``."""

KINDS = frozenset({"text", "json"})


class PlannedFile(NamedTuple):
    """One workspace path of a plan.

    Args:
        path: Normal workspace path.
        content: Bytes of a JSON file, or None for a file of the pack.
        reference: The file or folder of the pack, or None for JSON.
    """

    component: Component
    path: str
    content: bytes | None
    reference: FileReference | None

    @property
    def read_only(self) -> bool:
        """Whether it is mounted read-only at its place."""
        if self.reference is not None:
            return self.reference.read_only
        return self.path.startswith(f"{EVALUATION_ROOT}/")


@dataclass(frozen=True, slots=True)
class MaterializationPlan:
    """Everything that a component gets on disk.

    Args:
        files: In resource order; no path equals or lies below another one.

    Raises:
        PathError: Paths collide or a file is for another component.
    """

    component: Component
    files: tuple[PlannedFile, ...]

    def __post_init__(self) -> None:
        """Check the whole plan before a byte is written."""
        for item in self.files:
            if item.component is not self.component:
                raise PathError(
                    f"{item.path!r} does not match plan component {self.component.value}"
                )
        check_collisions(item.path for item in self.files)

    @property
    def paths(self) -> tuple[str, ...]:
        """The planned paths."""
        return tuple(item.path for item in self.files)


@dataclass(frozen=True, slots=True)
class AssetMount:
    """A read-only public asset: its place in the public lane and in the workspace."""

    lane_path: str
    mount: str
    is_folder: bool


@dataclass(frozen=True, slots=True)
class LaneSet:
    """What was written for one task.

    Args:
        asset_mounts: Read-only public assets in row order.
        checker_is_folder: Whether the file that a checker names is a folder.
        oracle_digest: Tree digest of ``lanes/oracle``; empty where there is none.
    """

    public_digest: str
    evaluation_inputs_digest: str
    hidden_digest: str
    asset_mounts: tuple[AssetMount, ...] = ()
    checker_is_folder: bool = False
    oracle_digest: str = ""


class LaneFile(NamedTuple):
    """One file or folder of a task's lanes.

    Attributes:
        path: Below the folder of the lanes.
        place: Below the workspace of whom the lane is for.
        content: Bytes of a JSON file, or None for what the pack has.
        reference: What of the pack it is, or None for JSON.
        root: Asset root of the reference as the manifest has it, else empty.
    """

    path: str
    place: str
    content: bytes | None
    reference: FileReference | None
    root: str


class LanePlan(NamedTuple):
    """Everything that lies in a task's lanes; no path equals or lies below another one."""

    files: tuple[LaneFile, ...]

    def asset_mounts(self, folders: Collection[str]) -> tuple[AssetMount, ...]:
        """Return the read-only public assets in row order.

        Args:
            folders: Paths of the plan that are folders of the pack; only the disk knows.
        """
        return tuple(
            AssetMount(file.path.removeprefix("public/"), file.place, file.path in folders)
            for file in self.files
            if file.path.startswith("public/assets/")
        )

    def has_checker_folder(self, folders: Collection[str]) -> bool:
        """Tell whether what a checker names is one of these folders."""
        return any(
            file.path in folders
            for file in self.files
            if file.reference is not None and file.reference.name == CHECKER
        )


def materialization_plan(task: SecureBenchTask, component: str) -> MaterializationPlan:
    """Return what a component gets on disk; nothing is read or written.

    Args:
        task: A compiled task.
        component: ``agent``, ``test_sandbox`` or ``evaluator``.

    Raises:
        PathError: A path is not permitted or two collide.
        PackError: A value cannot be written.
        ResourceError: The component is none that gets files.

    Source: contract 9.1 to 9.4.
    """
    if component not in {Component.AGENT, Component.TEST_SANDBOX, Component.EVALUATOR}:
        raise ResourceError(f"component {component!r} is never a target of files")
    target = Component(component)
    return MaterializationPlan(target, tuple(_planned(task, target)))


def check_task_file(plan: MaterializationPlan, path: object, what: str = "task_file") -> str:
    """Return the normal form of a path that the tester chose beside the agent's plan.

    Raises:
        PathError: Not permitted, or it collides with a planned path.
    """
    return check_tester_path(path, plan.paths, what)


def json_file(value: object) -> bytes:
    """Return a value as the content of a JSON file.

    Raises:
        PackError: The value has no JSON form.
    """
    try:
        text = json.dumps(value, indent=2, sort_keys=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise PackError("a value is not JSON-serializable") from None
    return f"{text}\n".encode()


def lane_plan(task: SecureBenchTask, task_file: str = TASK_FILE) -> LanePlan:
    """Return what lies in a task's lanes; nothing is read or written.

    Args:
        task: A compiled task.
        task_file: Workspace path of the whole public payload.

    Raises:
        PackError: The plan does not hold.
    """
    files = tuple(_lane_files(task, task_file))
    check_collisions(file.path for file in files)
    return LanePlan(files)


def _planned(task: SecureBenchTask, component: Component) -> Iterator[PlannedFile]:
    evaluator = component is Component.EVALUATOR
    for resource in task.resources.in_lane(Lane.PUBLIC):
        if resource.name != ASSETS:
            root = EVALUATOR_ROOT if evaluator else PUBLIC_ROOT
            yield _json(component, root, resource)
    if evaluator:
        yield from _eval_files(task, component, Lane.HIDDEN, EVALUATOR_ROOT)
        return
    for asset in public_assets(task):
        yield PlannedFile(component, asset.mount, None, asset)
    if component is Component.TEST_SANDBOX:
        yield from _eval_files(task, component, Lane.EVALUATION_INPUTS, EVALUATION_ROOT)


def _eval_files(
    task: SecureBenchTask, component: Component, lane: Lane, root: str
) -> Iterator[PlannedFile]:
    family = FAMILIES.get(task.task_type)
    never_written = frozenset() if family is None else family.never_written
    for resource in task.resources.in_lane(lane):
        if resource.name in never_written:
            continue
        if family is not None and resource.name in family.folders:
            for file in folder_references(task, resource):
                yield PlannedFile(component, framework_path(file.mount, component), None, file)
            continue
        reference = _eval_reference(resource)
        if reference is None:
            yield _json(component, root, resource)
        else:
            path = framework_path(reference.mount, component)
            yield PlannedFile(component, path, None, reference)
    checker = checker_reference(task)
    if checker is not None and lane is Lane.EVALUATION_INPUTS:
        yield PlannedFile(component, framework_path(checker.mount, component), None, checker)


def _json(component: Component, root: str, resource: Resource) -> PlannedFile:
    if resource.kind not in KINDS:
        raise PackError(
            f"resource {resource.name!r} of kind {resource.kind!r} is"
            " not supported for materialization"
        )
    path = framework_path(f"{root}/{resource_file_name(resource.name)}", component)
    return PlannedFile(component, path, json_file(resource.value), None)


def _lane_files(task: SecureBenchTask, task_file: str) -> Iterator[LaneFile]:
    agent = materialization_plan(task, Component.AGENT)
    task_path = check_task_file(agent, task_file)
    payload = PlannedFile(Component.AGENT, task_path, json_file(task.agent_payload()), None)
    read_only = 0
    for item in (*agent.files, payload):
        if item.reference is not None and item.read_only:
            yield _lane_file(f"public/assets/{read_only}", task, item)
            read_only += 1
        else:
            yield _lane_file(f"public/files/{item.path}", task, item)
    for item in materialization_plan(task, Component.TEST_SANDBOX).files:
        if item.path.startswith(f"{EVALUATION_ROOT}/"):
            path = f"evaluation_inputs/{_below(item.path, EVALUATION_ROOT)}"
            yield _lane_file(path, task, item)
    public = {
        f"{EVALUATOR_ROOT}/{resource.name}.json" for resource in task.resources.in_lane(Lane.PUBLIC)
    }
    for item in materialization_plan(task, Component.EVALUATOR).files:
        folder = "hidden/public" if item.path in public else "hidden"
        yield _lane_file(f"{folder}/{_below(item.path, EVALUATOR_ROOT)}", task, item)


def _lane_file(path: str, task: SecureBenchTask, item: PlannedFile) -> LaneFile:
    reference = item.reference
    root = "" if reference is None else asset_root(task, reference.lane)
    return LaneFile(path, item.path, item.content, reference, root)


def _below(path: str, root: str) -> str:
    return str(PurePosixPath(path).relative_to(root))
