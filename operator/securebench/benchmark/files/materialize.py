"""What lies where for whom: the pure plan and the writer of lanes (contract 9, architecture)."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.files.assets import asset_source
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
    ASSETS,
    CHECKER,
    FileReference,
    asset_root,
    checker_reference,
    eval_reference,
    public_assets,
)
from securebench.benchmark.resources import Component, Lane, Resource, ResourceError
from securebench.core.errors import InvariantViolationError, PackError, StorageError
from securebench.files.durable import fsync_folder, make_folder
from securebench.files.tree_digest import tree_digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from securebench.benchmark.pack.oracle import ReferenceAnswer
    from securebench.benchmark.pack.task import SecureBenchTask

TASK_FILE = "task.json"
"""Default of ``harness.config.task_file``."""

ORACLE = "oracle"
"""Folder beside the lanes, in runs of an oracle only; mounted by its harness Pods alone."""

FILE_MODE = 0o644
KINDS = frozenset({"text", "json"})


class PlannedFile(NamedTuple):
    """One workspace path of a plan.

    Args:
        component: Who gets it.
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
        component: Who gets it.
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
        public_digest: Tree digest of ``lanes/public``.
        evaluation_inputs_digest: Tree digest of ``lanes/evaluation_inputs``.
        hidden_digest: Tree digest of ``lanes/hidden``.
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


def write_lanes(
    task: SecureBenchTask, pack_root: Path, lanes_dir: Path, *, task_file: str = TASK_FILE
) -> LaneSet:
    """Write the lanes of one task and make them durable.

    Args:
        task: A compiled task.
        pack_root: Folder of the manifest, with the asset roots below.
        lanes_dir: Gets the folders ``public``, ``evaluation_inputs`` and ``hidden``; what is
            left of an earlier try is removed.
        task_file: Workspace path of the whole public payload.

    Raises:
        PackError: The plan or an asset does not hold; nothing was written then.
        StorageError: The volume did not do what was asked.
    """
    layout = tuple(_layout(task, task_file))
    check_collisions(path for path, _ in layout)
    sources = [
        (path, item, None if item.reference is None else _source(task, pack_root, item.reference))
        for path, item in layout
    ]
    try:
        _clear(lanes_dir)
        for path, item, source in sources:
            _write(lanes_dir / path, item.content, source)
        _sync_folders(lanes_dir)
    except OSError as error:
        reason = error.strerror or "unknown reason"
        raise StorageError(f"the lanes of a task cannot be written: {reason}") from None
    return LaneSet(
        public_digest=tree_digest(lanes_dir / "public"),
        evaluation_inputs_digest=tree_digest(lanes_dir / "evaluation_inputs"),
        hidden_digest=tree_digest(lanes_dir / "hidden"),
        asset_mounts=tuple(
            AssetMount(path.removeprefix("public/"), item.path, source.is_dir())
            for path, item, source in sources
            if source is not None and path.startswith("public/assets/")
        ),
        checker_is_folder=any(
            source is not None and source.is_dir()
            for _, item, source in sources
            if item.reference is not None and item.reference.name == CHECKER
        ),
    )


def write_answer(answer: ReferenceAnswer, lanes_dir: Path) -> str:
    """Write a reference answer beside the lanes of its task and make it durable.

    Args:
        answer: Of the task.
        lanes_dir: Gets the folder ``oracle`` with one file, named by the form of the answer.

    Returns:
        Tree digest of the folder.

    Raises:
        StorageError: The volume did not do what was asked.
    """
    folder = lanes_dir / ORACLE
    try:
        _empty_folder(folder)
        _write(folder / answer.kind, answer.text.encode(), None)
        _sync_folders(folder)
    except OSError as error:
        reason = error.strerror or "unknown reason"
        raise StorageError(f"a reference answer cannot be written: {reason}") from None
    return tree_digest(folder)


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


def _layout(task: SecureBenchTask, task_file: str) -> Iterator[tuple[str, PlannedFile]]:
    agent = materialization_plan(task, Component.AGENT)
    task_path = check_task_file(agent, task_file)
    payload = PlannedFile(Component.AGENT, task_path, json_file(task.agent_payload()), None)
    read_only = 0
    for item in (*agent.files, payload):
        if item.reference is not None and item.read_only:
            yield f"public/assets/{read_only}", item
            read_only += 1
        else:
            yield f"public/files/{item.path}", item
    for item in materialization_plan(task, Component.TEST_SANDBOX).files:
        if item.path.startswith(f"{EVALUATION_ROOT}/"):
            yield f"evaluation_inputs/{_below(item.path, EVALUATION_ROOT)}", item
    public = {
        f"{EVALUATOR_ROOT}/{resource.name}.json" for resource in task.resources.in_lane(Lane.PUBLIC)
    }
    for item in materialization_plan(task, Component.EVALUATOR).files:
        folder = "hidden/public" if item.path in public else "hidden"
        yield f"{folder}/{_below(item.path, EVALUATOR_ROOT)}", item


def _below(path: str, root: str) -> str:
    return str(PurePosixPath(path).relative_to(root))


def _source(task: SecureBenchTask, pack_root: Path, reference: FileReference) -> Path:
    return asset_source(pack_root, asset_root(task, reference.lane), reference)


def _clear(lanes_dir: Path) -> None:
    for lane in Lane:
        _empty_folder(lanes_dir / lane)


def _empty_folder(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
    make_folder(folder)


def _write(target: Path, content: bytes | None, source: Path | None) -> None:
    make_folder(target.parent)
    if content is not None:
        _write_file(target, (content,))
    elif source is not None and source.is_dir():
        _copy_folder(source, target)
    elif source is not None:
        _copy_file(source, target)
    else:
        raise InvariantViolationError("a planned file has neither content nor source")


def _copy_folder(source: Path, target: Path) -> None:
    make_folder(target)
    for folder, _, names in os.walk(source, followlinks=False):
        for name in names:
            path = Path(folder) / name
            copy = target / path.relative_to(source)
            make_folder(copy.parent)
            _copy_file(path, copy)


def _copy_file(source: Path, target: Path) -> None:
    descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        _write_file(target, iter(lambda: stream.read(1024 * 1024), b""))


def _write_file(target: Path, chunks: Iterable[bytes]) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(target, flags, FILE_MODE), "wb") as stream:
        os.fchmod(stream.fileno(), FILE_MODE)
        for chunk in chunks:
            stream.write(chunk)
        stream.flush()
        os.fsync(stream.fileno())


def _sync_folders(root: Path) -> None:
    for folder, _, _ in os.walk(root, topdown=False):
        fsync_folder(Path(folder))
