"""Rows of a task file (contract 6)."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from json import JSONDecoder
from typing import TYPE_CHECKING, NamedTuple

from securebench.benchmark.families.fields import is_text
from securebench.benchmark.reading.plain import PlainProblem, parse_json
from securebench.benchmark.reading.row_errors import row_error
from securebench.core.errors import PackError
from securebench.core.spelling import meant, near_words

if TYPE_CHECKING:
    from securebench.benchmark.reading.manifest import BenchmarkManifest

ROW_KEYS = frozenset({"id", "family", "input", "eval", "assets", "environment", "metadata"})
ASSET_KEYS = frozenset({"path", "mount", "read_only"})
ASSET_KEYS_WITHOUT_EFFECT = frozenset({"type", "mode"})
"""Known names that nothing reads (contract 6)."""


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
    reader = _RowReader(_context(line), value)
    row = reader.read(value, manifest, line)
    return (None if reader.problems else row), reader.problems


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


class _RowReader:
    """Reads the top level of one row and collects what is wrong with it."""

    def __init__(self, context: str, value: Mapping[str, object]) -> None:
        self._context = context
        self.unknown = tuple(key for key in value if key not in ROW_KEYS)
        self._misspelt = near_words(self.unknown, ROW_KEYS - value.keys())
        self.problems = [
            f"{context}: unknown key {key!r}, did you mean {word!r}?"
            for key, word in self._misspelt.items()
        ]

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
            unknown_keys=self.unknown,
        )

    def _id(self, value: Mapping[str, object]) -> str:
        task_id = value.get("id")
        if "id" not in value:
            self._fail_if_missed("id", ".id is required")
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
            self._fail_if_missed("family", ": family is required")
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

    def _fail_if_missed(self, key: str, problem: str) -> None:
        if key not in self._misspelt.values():
            self.problems.append(f"{self._context}{problem}")

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
    known = ASSET_KEYS | ASSET_KEYS_WITHOUT_EFFECT
    unknown = sorted(asset.keys() - known)
    if unknown:
        yield f" has unknown field(s): {', '.join(unknown)}{meant(unknown, known)}"
