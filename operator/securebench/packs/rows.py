"""Rows of a task file (contract 6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from securebench.errors import PackError
from securebench.families.fields import is_text
from securebench.packs.plain import PlainProblem, parse_json

if TYPE_CHECKING:
    from securebench.packs.manifest import BenchmarkManifest

ROW_KEYS = frozenset({"id", "family", "input", "eval", "assets", "environment", "metadata"})
ASSET_KEYS = frozenset({"path", "mount", "read_only"})


class RawLine(NamedTuple):
    """A line of a task file that is not blank; numbers count from 1 and include blank lines."""

    number: int
    content: bytes


@dataclass(frozen=True, slots=True)
class BenchmarkRow:
    """A row whose top level holds; its family schema is not checked yet.

    Args:
        id: Unique in a pack.
        family: Its own or the manifest's default.
        input: Becomes public resources.
        eval: Becomes resources in the lanes of the family.
        assets: Objects as written.
        environment: The row's own part.
        metadata: Free.
        line: Number in the task file, from 1; None for a row from elsewhere.
        unknown_keys: Top-level keys without a meaning; for warnings.
    """

    id: str
    family: str
    input: Mapping[str, object] = field(default_factory=dict)
    eval: Mapping[str, object] = field(default_factory=dict)
    assets: tuple[Mapping[str, object], ...] = ()
    environment: Mapping[str, object] = field(default_factory=dict)
    metadata: Mapping[str, object] = field(default_factory=dict)
    line: int | None = None
    unknown_keys: tuple[str, ...] = ()


class ParsedRows(NamedTuple):
    """Rows that hold and the defects of the others, both in file order."""

    rows: tuple[BenchmarkRow, ...]
    errors: tuple[PackError, ...]


def split_lines(chunks: Iterable[bytes]) -> Iterator[RawLine]:
    """Yield the lines that are not blank.

    Args:
        chunks: Lines of a file, as iterating over it gives them.
    """
    for number, chunk in enumerate(chunks, start=1):
        content = chunk.strip()
        if content:
            yield RawLine(number, content)


def parse_rows(
    lines: Iterable[RawLine],
    manifest: BenchmarkManifest,
    *,
    path: str | None = None,
    limit: int | None = None,
) -> ParsedRows:
    """Return the rows of a task file and all their defects.

    Args:
        lines: Not blank, in file order.
        manifest: Gives the default family.
        path: Task file as the user named it; stands in the errors.
        limit: Lines from here on are not read at all; None reads all.
    """
    rows: list[BenchmarkRow] = []
    errors: list[PackError] = []
    first_lines: dict[str, int] = {}
    for line in islice(lines, limit):
        row, problems = _parse_line(line, manifest)
        errors += [PackError(problem, path=path, line=line.number) for problem in problems]
        if row is None:
            continue
        first = first_lines.setdefault(row.id, line.number)
        if first != line.number:
            reason = f"duplicate task id {row.id!r} on lines {first} and {line.number}"
            errors.append(PackError(reason, path=path, line=line.number))
        rows.append(row)
    return ParsedRows(tuple(rows), tuple(errors))


def row_from_object(
    value: Mapping[str, object], manifest: BenchmarkManifest, *, line: int | None = None
) -> tuple[BenchmarkRow | None, list[str]]:
    """Return the row of a JSON object, or None, and what is wrong with it.

    Args:
        value: As parsed.
        manifest: Gives the default family.
        line: Number in the task file; stands in the messages.
    """
    reader = _RowReader("benchmark row" if line is None else f"benchmark row line {line}")
    row = reader.read(value, manifest, line)
    return (None if reader.problems else row), reader.problems


def _parse_line(
    line: RawLine, manifest: BenchmarkManifest
) -> tuple[BenchmarkRow | None, list[str]]:
    try:
        value = parse_json(line.content)
    except PlainProblem as problem:
        return None, [problem.reason]
    if not isinstance(value, dict):
        return None, ["benchmark row must be an object"]
    return row_from_object(value, manifest, line=line.number)


class _RowReader:
    """Reads the top level of one row and collects what is wrong with it."""

    def __init__(self, context: str) -> None:
        self._context = context
        self.problems: list[str] = []

    def read(
        self, value: Mapping[str, object], manifest: BenchmarkManifest, line: int | None
    ) -> BenchmarkRow:
        return BenchmarkRow(
            id=self._id(value),
            family=self._family(value, manifest),
            input=self._object(value, "input"),
            eval=self._object(value, "eval"),
            assets=self._assets(value),
            environment=self._object(value, "environment"),
            metadata=self._object(value, "metadata"),
            line=line,
            unknown_keys=tuple(key for key in value if key not in ROW_KEYS),
        )

    def _id(self, value: Mapping[str, object]) -> str:
        task_id = value.get("id")
        if "id" not in value:
            self._fail("id", "is required")
        elif not isinstance(task_id, str) or not task_id.strip():
            self._fail("id", "must be a non-empty string")
        elif any("\ud800" <= character <= "\udfff" for character in task_id):
            self._fail("id", "must not contain half a character")
        else:
            return task_id
        return ""

    def _family(self, value: Mapping[str, object], manifest: BenchmarkManifest) -> str:
        family = value.get("family")
        if family is None:
            family = manifest.default_family
        if family is None:
            self.problems.append(f"{self._context}: family is required")
        elif isinstance(family, str) and is_text(family):
            return family
        else:
            self._fail("family", "must be a non-empty string")
        return ""

    def _object(self, value: Mapping[str, object], key: str) -> Mapping[str, object]:
        section = value.get(key)
        if section is None:
            return {}
        if isinstance(section, dict):
            return section
        self._fail(key, "must be an object")
        return {}

    def _assets(self, value: Mapping[str, object]) -> tuple[Mapping[str, object], ...]:
        assets = value.get("assets")
        if assets is None:
            return ()
        if not isinstance(assets, list):
            self._fail("assets", "must be a list of objects")
            return ()
        for index, asset in enumerate(assets):
            self._asset(f"assets[{index}]", asset)
        return tuple(asset for asset in assets if isinstance(asset, dict))

    def _asset(self, key: str, asset: object) -> None:
        for problem in asset_problems(asset):
            self.problems.append(f"{self._context}.{key}{problem}")

    def _fail(self, key: str, problem: str) -> None:
        self.problems.append(f"{self._context}.{key} {problem}")


def asset_problems(asset: object) -> Iterator[str]:
    """Yield what is wrong with the types of an asset object, to be put behind its name."""
    if not isinstance(asset, Mapping):
        yield " must be an object"
        return
    if "path" not in asset:
        yield ".path is required"
    elif not is_text(asset["path"]):
        yield ".path must be a non-empty string"
    if asset.get("mount") is not None and not is_text(asset["mount"]):
        yield ".mount must be a non-empty string"
    if asset.get("read_only") is not None and not isinstance(asset["read_only"], bool):
        yield ".read_only must be a boolean"
