"""From rows to tasks with lanes (contract 7)."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from securebench.benchmark.families.registry import (
    EVAL_VISIBILITY,
    eval_visibility_for,
)
from securebench.benchmark.pack.environment import unknown_environment_keys
from securebench.benchmark.pack.task import ASSETS, SecureBenchTask, resource_kind, task_from_spec
from securebench.benchmark.reading.manifest import in_file_order
from securebench.benchmark.reading.row_errors import row_error
from securebench.benchmark.reading.row_rules import row_problems
from securebench.benchmark.reading.rows import BenchmarkRow, RawLine, parse_rows, row_from_object
from securebench.benchmark.resources import Lane, Resource, ResourceBundle
from securebench.core.errors import ConfigErrors, PackError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from securebench.benchmark.reading.manifest import BenchmarkManifest

__all__ = [
    "EVAL_VISIBILITY",
    "BenchmarkPack",
    "Compiled",
    "CompiledTask",
    "SecureBenchTask",
    "compile_benchmark_pack",
    "compile_benchmark_row",
    "compile_rows",
    "eval_visibility_for",
    "task_from_spec",
]


@dataclass(frozen=True, slots=True)
class BenchmarkPack:
    """A manifest and the lines of a task file; lines are parsed when the pack is compiled.

    Args:
        manifest: A manifest that holds.
        lines: Not blank, in file order.
        tasks_path: Task file as the user named it.
    """

    manifest: BenchmarkManifest
    lines: tuple[RawLine, ...]
    tasks_path: str | None = None


class CompiledTask(NamedTuple):
    """A task and the row that it comes from."""

    row: BenchmarkRow
    task: SecureBenchTask


class Compiled(NamedTuple):
    """Tasks that hold and the defects of the other rows, both in file order."""

    tasks: tuple[CompiledTask, ...]
    errors: tuple[PackError, ...]


def compile_rows(pack: BenchmarkPack, *, limit: int | None = None) -> Compiled:
    """Compile the first rows of a pack without raising.

    Args:
        pack: See BenchmarkPack.
        limit: Rows behind this many are not read at all; None reads all.
    """
    parsed = parse_rows(pack.lines, pack.manifest, path=pack.tasks_path, limit=limit)
    tasks: list[CompiledTask] = []
    errors = list(parsed.errors)
    for row in parsed.rows:
        problems = list(_row_problems(row))
        errors += [
            row_error(row.context, text, path=pack.tasks_path, line=row.line) for text in problems
        ]
        if not problems:
            tasks.append(CompiledTask(row, _task(row, pack.manifest)))
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
    return _task(parsed, manifest)


def _row_problems(row: BenchmarkRow) -> Iterator[str]:
    yield from row_problems(row.family, row.input, row.eval)
    for unknown in unknown_environment_keys(row.environment):
        yield unknown.reason
    names = Counter([*row.input, *([ASSETS] if row.assets else []), *row.eval])
    for name in sorted(name for name, count in names.items() if count > 1):
        yield f"Duplicate compiled resource name {name!r}"


def _task(row: BenchmarkRow, manifest: BenchmarkManifest) -> SecureBenchTask:
    return SecureBenchTask(
        id=row.id,
        benchmark_id=manifest.id,
        task_type=row.family,
        metadata=_metadata(row, manifest),
        resources=ResourceBundle(tuple(_resources(row))),
    )


def _resources(row: BenchmarkRow) -> Iterator[Resource]:
    for name, value in row.input.items():
        yield _resource(name, Lane.PUBLIC, value)
    if row.assets:
        yield _resource(ASSETS, Lane.PUBLIC, [dict(asset) for asset in row.assets])
    for name, value in row.eval.items():
        yield _resource(name, eval_visibility_for(row.family, name), value)


def _resource(name: str, lane: Lane, value: object) -> Resource:
    return Resource(name, lane, resource_kind(value), deepcopy(value))


def _metadata(row: BenchmarkRow, manifest: BenchmarkManifest) -> dict[str, object]:
    return {
        **deepcopy(dict(row.metadata)),
        "benchmark_pack": {
            "id": manifest.id,
            "version": manifest.version,
            "manifest_path": manifest.path,
        },
        "environment": deepcopy({**manifest.default_environment, **row.environment}),
        "asset_roots": {
            "public": manifest.asset_roots.public,
            "eval": manifest.asset_roots.eval,
        },
        "asset_defaults": {"read_only": manifest.asset_read_only},
    }
