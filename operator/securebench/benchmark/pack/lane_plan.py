"""Pure plan of one task's files by lane and path (contract 9, architecture)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.pack.paths import (
    EVALUATION_ROOT,
    EVALUATOR_ROOT,
    PUBLIC_ROOT,
    PathError,
    check_collisions,
    check_tester_path,
    framework_path,
    resource_file_name,
)
from securebench.benchmark.pack.references import (
    CHECKER,
    FileReference,
    asset_root,
    checker_reference,
    eval_reference,
    public_assets,
)
from securebench.benchmark.pack.task import ASSETS
from securebench.benchmark.resources import Component, Lane, Resource, ResourceError
from securebench.errors import PackError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from securebench.benchmark.pack.task import SecureBenchTask

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
        reference = eval_reference(resource)
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
