"""Tasks: rows compiled to resources with lanes (contract 7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from securebench.benchmark.families.registry import (
    FAMILIES,
    eval_visibility_for,
)
from securebench.benchmark.pack.paths import unknown_environment_keys
from securebench.benchmark.reading.rows import (
    BenchmarkRow,
    RawLine,
    in_file_order,
    parse_rows,
    row_error,
    row_from_object,
    row_problems,
)
from securebench.benchmark.resources import Lane, Resource, ResourceBundle, lane_named
from securebench.digests import json_digest
from securebench.errors import ConfigErrors, PackError
from securebench.json_values import object_in

if TYPE_CHECKING:
    from collections.abc import Iterator

    from securebench.benchmark.reading.rows import BenchmarkManifest

ASSETS = "assets"
"""Name of the resource that lists a task's public assets; never written as JSON."""


@dataclass(frozen=True, slots=True)
class SecureBenchTask:
    """One row, compiled: what may be shown to whom.

    Args:
        id: Row id, unique in its pack.
        task_type: Family name; need not be an active family.
        metadata: The row's metadata plus ``benchmark_pack``, ``environment``,
            ``asset_roots`` and ``asset_defaults``.
        resources: In the order input, assets, eval.

    Raises:
        PackError: A resource is missing that the family cannot do without.
    """

    id: str
    benchmark_id: str
    task_type: str
    metadata: Mapping[str, object] = field(default_factory=dict)
    resources: ResourceBundle = field(default_factory=ResourceBundle)

    def __post_init__(self) -> None:
        """Check the resources that the family cannot do without."""
        family = FAMILIES.get(self.task_type)
        if family is None:
            return
        for name in family.required_resources:
            if self.resources.get(name) is None:
                raise PackError(
                    f"task {self.id!r} ({self.task_type}): resource {name!r} is required"
                )

    @property
    def environment(self) -> Mapping[str, object]:
        """The merged environment of manifest and row."""
        return object_in(self.metadata.get("environment"))

    def view_for(self, component: str) -> dict[str, object]:
        """Return what a component may see, by name."""
        return self.resources.view_for(component)

    def public_payload(self) -> dict[str, object]:
        """Return the public values by name."""
        return self.resources.public_payload()

    def agent_payload(self) -> dict[str, object]:
        """Return what the agent sees."""
        return self.resources.agent_payload()

    def evaluation_payload(self) -> dict[str, object]:
        """Return what a test sandbox sees."""
        return self.resources.evaluation_payload()

    def hidden_payload(self) -> dict[str, object]:
        """Return what the evaluator sees."""
        return self.resources.hidden_payload()

    def resource_summary(self) -> list[dict[str, object]]:
        """Return name, lane and kind of every resource; values of public ones only."""
        return self.resources.resource_summary()


@dataclass(frozen=True, slots=True)
class BenchmarkPack:
    """A manifest and the lines of a task file; lines are parsed when the pack is compiled.

    Args:
        lines: Not blank, in file order; none where folders are the tasks.
        tasks_path: Task file as the user named it.
    """

    manifest: BenchmarkManifest
    lines: tuple[RawLine, ...]
    tasks_path: str | None = None


class LoadedPack(NamedTuple):
    """A pack without errors: its tasks are all rows up to the limit, in file order."""

    pack: BenchmarkPack
    tasks: tuple[SecureBenchTask, ...]


class CompiledTask(NamedTuple):
    """A task and the row that it comes from."""

    row: BenchmarkRow
    task: SecureBenchTask


class Compiled(NamedTuple):
    """Tasks that hold and the defects of the other rows, both in file order."""

    tasks: tuple[CompiledTask, ...]
    errors: tuple[PackError, ...]


def compile_rows(
    pack: BenchmarkPack, *, limit: int | None = None, is_checked: bool = False
) -> Compiled:
    """Compile the first rows of a pack without raising.

    Args:
        pack: See BenchmarkPack.
        limit: Rows behind this many are not read at all; None reads all.
        is_checked: Whether all rows are known to hold.
    """
    parsed = parse_rows(
        pack.lines, pack.manifest, path=pack.tasks_path, limit=limit, is_checked=is_checked
    )
    tasks: list[CompiledTask] = []
    errors = list(parsed.errors)
    shared = _pack_metadata(pack.manifest)
    for row in parsed.rows:
        problems = [] if is_checked else list(_row_problems(row))
        errors += [
            row_error(row.context, text, path=pack.tasks_path, line=row.line) for text in problems
        ]
        if not problems:
            tasks.append(CompiledTask(row, _task(row, pack.manifest, shared)))
    return Compiled(tuple(tasks), tuple(in_file_order(errors)))


def compile_benchmark_pack(
    pack: BenchmarkPack, *, limit: int | None = None
) -> tuple[SecureBenchTask, ...]:
    """Return the tasks of a pack, in file order.

    Args:
        pack: See BenchmarkPack.
        limit: Rows behind this many are not read at all; None reads all.

    Raises:
        ConfigErrors: One PackError per defect, in file order.
    """
    compiled = compile_rows(pack, limit=limit)
    if compiled.errors:
        raise ConfigErrors(compiled.errors)
    return tuple(item.task for item in compiled.tasks)


def compile_benchmark_row(
    row: BenchmarkRow | Mapping[str, object], *, manifest: BenchmarkManifest
) -> SecureBenchTask:
    """Return the task of one row.

    Args:
        row: A row, or a JSON object in the form of one.
        manifest: Its pack's manifest.

    Raises:
        ConfigErrors: One PackError per defect.
    """
    if isinstance(row, BenchmarkRow):
        parsed: BenchmarkRow | None = row
        problems: list[str] = []
    else:
        parsed, problems = row_from_object(row, manifest)
    if parsed is not None:
        problems += [f"{parsed.context}{problem}" for problem in _row_problems(parsed)]
    if parsed is None or problems:
        raise ConfigErrors([PackError(problem) for problem in problems])
    return task_of(parsed, manifest)


def task_of(row: BenchmarkRow, manifest: BenchmarkManifest) -> SecureBenchTask:
    """Return the task of a row that holds."""
    return _task(row, manifest, _pack_metadata(manifest))


def _row_problems(row: BenchmarkRow) -> Iterator[str]:
    yield from row_problems(row.family, row.input, row.eval)
    for unknown in unknown_environment_keys(row.environment):
        yield unknown.reason
    names = Counter([*row.input, *([ASSETS] if row.assets else []), *row.eval])
    for name in sorted(name for name, count in names.items() if count > 1):
        yield f"Duplicate compiled resource name {name!r}"


def _task(
    row: BenchmarkRow, manifest: BenchmarkManifest, shared: Mapping[str, object]
) -> SecureBenchTask:
    return SecureBenchTask(
        id=row.id,
        benchmark_id=manifest.id,
        task_type=row.family,
        metadata=_metadata(row, shared),
        resources=ResourceBundle(tuple(_resources(row))),
    )


def _resources(row: BenchmarkRow) -> Iterator[Resource]:
    for name, value in row.input.items():
        yield _resource(name, Lane.PUBLIC, value)
    if row.assets:
        yield _resource(ASSETS, Lane.PUBLIC, [dict(asset) for asset in row.assets])
    family = FAMILIES.get(row.family)
    evaluation = row.eval if family is None else family.completed(row.input, row.eval)
    for name, value in evaluation.items():
        yield _resource(name, eval_visibility_for(row.family, name), value)


def _resource(name: str, lane: Lane, value: object) -> Resource:
    return Resource(name, lane, _resource_kind(value), deepcopy(value))


def _metadata(row: BenchmarkRow, shared: Mapping[str, object]) -> dict[str, object]:
    found = {**deepcopy(dict(row.metadata)), **shared}
    if row.environment:
        defaults = object_in(shared["environment"])
        found["environment"] = deepcopy({**defaults, **row.environment})
    return found


def _pack_metadata(manifest: BenchmarkManifest) -> Mapping[str, object]:
    """Return what the metadata of all rows have in common; thousands of tasks share one copy."""
    return {
        "benchmark_pack": {
            "id": manifest.id,
            "version": manifest.version,
            "manifest_path": manifest.path,
        },
        "environment": deepcopy(dict(manifest.default_environment)),
        "asset_roots": {
            "public": manifest.asset_roots.public,
            "eval": manifest.asset_roots.eval,
        },
        "asset_defaults": {"read_only": manifest.asset_read_only},
    }


def row_digest(task: SecureBenchTask) -> str:
    """Return the digest of a compiled row: everything but the place of the pack."""
    pack = task.metadata.get("benchmark_pack")
    metadata = {
        **task.metadata,
        "benchmark_pack": {**pack, "manifest_path": None} if isinstance(pack, Mapping) else None,
    }
    row = {
        "id": task.id,
        "benchmark_id": task.benchmark_id,
        "task_type": task.task_type,
        "metadata": metadata,
        "resources": [
            [item.name, item.visibility.value, item.kind, item.value] for item in task.resources
        ],
    }
    return json_digest(row)


def task_from_spec(spec: Mapping[str, object]) -> SecureBenchTask:
    """Return the task of a mapping with the fields of SecureBenchTask.

    Args:
        spec: ``id``, ``benchmark_id`` and ``task_type`` are non-empty strings; ``metadata``
            is an optional mapping; ``resources`` is a list of mappings with ``name``,
            ``visibility``, ``kind`` (default: by the value) and ``value``, or a mapping
            from names to such mappings.

    Raises:
        PackError: A field is missing or has the wrong type.
        ResourceError: An unknown lane or a name that occurs twice.
    """
    return SecureBenchTask(
        id=_required_text(spec, "id"),
        benchmark_id=_required_text(spec, "benchmark_id"),
        task_type=_required_text(spec, "task_type"),
        metadata=dict(_optional_mapping(spec, "metadata")),
        resources=_bundle(spec.get("resources") or []),
    )


def _resource_kind(value: object) -> str:
    """Return the kind of a value: ``text`` for a string, else ``json``."""
    return "text" if isinstance(value, str) else "json"


def _bundle(resources: object) -> ResourceBundle:
    if isinstance(resources, Mapping):
        return ResourceBundle.from_mapping(
            {
                key: _spec_resource({"name": key, **_object(item, key)})
                for key, item in resources.items()
            }
        )
    if isinstance(resources, list | tuple):
        return ResourceBundle(
            tuple(
                _spec_resource(_object(item, f"resources[{index}]"))
                for index, item in enumerate(resources)
            )
        )
    raise PackError("task spec resources must be a list or an object")


def _spec_resource(item: Mapping[str, object]) -> Resource:
    kind = item.get("kind", _resource_kind(item.get("value")))
    if not isinstance(kind, str):
        raise PackError("task spec resource kind must be a string")
    return Resource(
        name=_required_text(item, "name"),
        visibility=lane_named(_required_text(item, "visibility")),
        kind=kind,
        value=item.get("value"),
    )


def _object(item: object, name: str) -> Mapping[str, object]:
    if not isinstance(item, Mapping):
        raise PackError(f"task spec {name} must be an object")
    return item


def _required_text(spec: Mapping[str, object], key: str) -> str:
    value = spec.get(key)
    if not isinstance(value, str) or not value.strip():
        raise PackError(f"task spec {key} must be a non-empty string")
    return value


def _optional_mapping(spec: Mapping[str, object], key: str) -> Mapping[str, object]:
    value = spec.get(key)
    return {} if value is None else _object(value, key)
