"""Rows of a task file (contract 6)."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from json import JSONDecoder
from typing import TYPE_CHECKING, Any, NamedTuple

from securebench.benchmark.families.fields import MISSPELT
from securebench.benchmark.pack.paths import is_unicode
from securebench.benchmark.reading.plain import PlainProblem, parse_json
from securebench.benchmark.reading.row_errors import row_error
from securebench.benchmark.reading.row_rules import ROW, ROW_KEYS
from securebench.core.errors import PackError

if TYPE_CHECKING:
    from securebench.benchmark.reading.manifest import BenchmarkManifest


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

    @property
    def context(self) -> str:
        """What begins a message about the row."""
        return f"task {self.id!r} ({self.family}): "


class ParsedRows(NamedTuple):
    """Rows that hold and the defects of the others, both in file order."""

    rows: tuple[BenchmarkRow, ...]
    errors: tuple[PackError, ...]


def split_lines(chunks: Iterable[bytes]) -> Iterator[RawLine]:
    """Yield the lines that are not blank.

    Args:
        chunks: Lines of a file, as iterating over it gives them; a mark of UTF-8 at the beginning
            of the first is left out.
    """
    for number, chunk in enumerate(chunks, start=1):
        content = (chunk.removeprefix(BOM_UTF8) if number == 1 else chunk).strip()
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
        errors += [_error(problem, path, line.number) for problem in problems]
        if row is None:
            continue
        first = first_lines.setdefault(row.id, line.number)
        if first != line.number:
            reason = f"duplicate task id {row.id!r} on lines {first} and {line.number}"
            errors.append(PackError(reason, path=path, line=line.number))
        rows.append(row)
    return ParsedRows(tuple(rows), tuple(errors))


def lines_problem(lines: Sequence[RawLine]) -> str | None:
    """Return that a task file is written otherwise than in one object per line, or None.

    Args:
        lines: At least one, not blank, in file order.
    """
    first = lines[0].content
    is_array = first.startswith(b"[")
    if not first.startswith((b"[", b"{")) or (_is_json(first) and (len(lines) > 1 or not is_array)):
        return None
    if is_array:
        return "benchmark row must be an object: write one object per line, not one JSON array"
    text = b"\n".join(line.content for line in lines).decode("utf-8", "replace")
    try:
        value, end = JSONDecoder(strict=False).raw_decode(text)
    except (ValueError, RecursionError):
        return None
    is_row = isinstance(value, dict) and end > len(first.decode("utf-8", "replace"))
    return "a row lies on several lines; write one object per line" if is_row else None


def _is_json(content: bytes) -> bool:
    try:
        parse_json(content)
    except PlainProblem:
        return False
    return True


def row_from_object(
    value: Mapping[str, object], manifest: BenchmarkManifest, *, line: int | None = None
) -> tuple[BenchmarkRow | None, list[str]]:
    """Return the row of a JSON object, or None, and what is wrong with it.

    Args:
        value: As parsed.
        manifest: Gives the default family.
        line: Number in the task file; stands in the messages.
    """
    context = _context(line)
    defects = ROW.defects(value)
    problems = [defect.said_of(context) for defect in defects]
    task_id, family = value.get("id"), value.get("family")
    if isinstance(task_id, str) and not is_unicode(task_id):
        problems.append(f"{context}.id must not contain half a character")
    if family is None:
        family = manifest.default_family
        if family is None and (MISSPELT, "family") not in {each[1:] for each in defects}:
            problems.append(f"{context}: family is required")
    return (None if problems else _row(value, str(family), line)), problems


def _row(value: Mapping[str, Any], family: str, line: int | None) -> BenchmarkRow:
    return BenchmarkRow(
        id=value["id"],
        family=family,
        input=value.get("input") or {},
        eval=value.get("eval") or {},
        assets=tuple(value.get("assets") or ()),
        environment=value.get("environment") or {},
        metadata=value.get("metadata") or {},
        line=line,
        unknown_keys=tuple(key for key in value if key not in ROW_KEYS),
    )


def _context(line: int | None) -> str:
    return "benchmark row" if line is None else f"benchmark row line {line}"


def _error(reason: str, path: str | None, line: int) -> PackError:
    context = _context(line)
    problem = reason.removeprefix(context)
    return row_error(reason.removesuffix(problem), problem, path=path, line=line)


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
