"""Rows of a task file: what they must be, by family, how they are read, what is said of defects.

Source: contract 6, 14.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from json import JSONDecoder
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from securebench.benchmark.families.registry import FAMILIES, family_problems
from securebench.benchmark.pack.environment import environment_schema
from securebench.benchmark.pack.paths import is_unicode
from securebench.benchmark.reading.plain import PlainProblem, parse_json
from securebench.benchmark.reading.shape import Shape
from securebench.errors import PackError
from securebench.json_values import (
    ANYTHING,
    BOOLEAN,
    MISSPELT,
    OBJECT,
    TEXT,
    Schema,
    described,
    nullable,
    object_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from securebench.benchmark.families.base import Family, TaskView
    from securebench.benchmark.reading.manifest import BenchmarkManifest


_ASSET_FIELDS: Final[Mapping[str, Schema]] = {
    "path": described(TEXT, "File or folder below the public root.", "server.log"),
    "mount": described(
        nullable(TEXT), "Its place in the workspace; without it `path`.", "logs/server.log"
    ),
    "read_only": described(
        nullable(BOOLEAN),
        "Whether the agent may not change it; without it as the manifest says for all.",
        False,  # noqa: FBT003 - an example
    ),
}
ASSET_KEYS: Final = frozenset(_ASSET_FIELDS)
ASSET_KEYS_WITHOUT_EFFECT: Final = frozenset({"type", "mode"})
"""Known names that nothing reads (contract 6)."""

ASSET: Final = Shape(
    object_of(
        {
            **_ASSET_FIELDS,
            **dict.fromkeys(
                sorted(ASSET_KEYS_WITHOUT_EFFECT), described(ANYTHING, "Has no effect.", "file")
            ),
        },
        "path",
    )
)
_ROW_FIELDS: Final[Mapping[str, Schema]] = {
    "id": described(TEXT, "Name of the task, once in a pack.", "km-to-m"),
    "family": described(
        nullable(TEXT),
        "Kind of task; without it `defaults.family` of the manifest.",
        "short_answer",
    ),
    "input": described(nullable(OBJECT), "What the agent gets.", {"question": "How many?"}, {}),
    "eval": described(
        nullable(OBJECT), "What only the verifier gets.", {"accepted_answers": ["2"]}, {}
    ),
    "assets": described(
        {
            "type": ["array", "null"],
            "items": ASSET.schema,
            "description": "a list of objects",
        },
        "Files of the pack that the agent gets.",
        [{"path": "server.log"}],
        [],
    ),
    "environment": described(
        nullable(OBJECT),
        "Lies over the environment of the manifest, key by key.",
        {"timeout_seconds": 600},
        {},
    ),
    "metadata": described(
        nullable(OBJECT), "Notes of your own; records have them.", {"difficulty": "easy"}, {}
    ),
}
ROW_KEYS: Final = frozenset(_ROW_FIELDS)
_ROW: Final[Schema] = {"type": "object", MISSPELT: False}
ROW: Final = Shape({**_ROW, "properties": _ROW_FIELDS, "required": ["id"]})
"""What rows of all families have in common."""


class _FamilyShapes(NamedTuple):
    input: Shape
    eval: Shape
    needs: Mapping[str, Shape]


_SHOWN_LINES = 5
"""Lines that a message about many rows names."""


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
        eval: Becomes resources in the lanes of the family.
        assets: Objects as written.
        environment: The row's own part.
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
    is_checked: bool = False,
) -> ParsedRows:
    """Return the rows of a task file and all their defects.

    Args:
        lines: Not blank, in file order.
        manifest: Gives the default family.
        path: Task file as the user named it; stands in the errors.
        limit: Lines from here on are not read at all; None reads all.
        is_checked: Whether the top level of each row is known to hold.
    """
    rows: list[BenchmarkRow] = []
    errors: list[PackError] = []
    first_lines: dict[str, int] = {}
    for line in islice(lines, limit):
        row, problems = _parse_line(line, manifest, is_checked=is_checked)
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
    """Return the row of a JSON object, or None, and what is wrong with it."""
    context = _context(line)
    defects = ROW.defects(value)
    problems = [defect.said_of(context) for defect in defects]
    task_id, family = value.get("id"), _family(value, manifest)
    if isinstance(task_id, str) and not is_unicode(task_id):
        problems.append(f"{context}.id must not contain half a character")
    if family is None and (MISSPELT, "family") not in {each[1:] for each in defects}:
        problems.append(f"{context}: family is required")
    return (None if problems else _row(value, family, line)), problems


def _family(value: Mapping[str, object], manifest: BenchmarkManifest) -> object:
    family = value.get("family")
    return manifest.default_family if family is None else family


def _row(value: Mapping[str, Any], family: object, line: int | None) -> BenchmarkRow:
    return BenchmarkRow(
        id=value["id"],
        family=str(family),
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
    line: RawLine, manifest: BenchmarkManifest, *, is_checked: bool
) -> tuple[BenchmarkRow | None, list[str]]:
    try:
        value = parse_json(line.content)
    except PlainProblem as problem:
        return None, [problem.reason]
    if not isinstance(value, dict):
        return None, ["benchmark row must be an object"]
    if is_checked:
        return _row(value, _family(value, manifest), line.number), []
    return row_from_object(value, manifest, line=line.number)


def row_schema(family: Family) -> dict[str, object]:
    """Return the rows of a family as JSON Schema; unknown top-level keys are accepted."""
    own: Mapping[str, Schema] = {
        "family": {"enum": [family.name, None]},
        "input": family.input.schema,
        "eval": family.eval.schema,
        "environment": nullable(environment_schema()),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"SecureBench row of family {family.name}",
        **_ROW,
        "properties": {**_ROW_FIELDS, **own},
        "required": ["eval", "id", "input"],
    }


def row_problems(
    name: str, row_input: Mapping[str, object], row_eval: Mapping[str, object]
) -> Iterator[str]:
    """Yield what is wrong with a row, without its context; deferred families are permissive."""
    yield from family_problems(name)
    family = FAMILIES.get(name)
    if family is not None:
        shapes = _shapes_of(family)
        yield from shapes.input.problems(family.input.name, row_input)
        yield from shapes.eval.problems(family.eval.name, row_eval)
        yield from family.cross_problems(row_input, row_eval)


def verifier_configuration_problem(task: TaskView) -> str | None:
    """Return why the verifier of the task's family cannot work with it, or None."""
    family = FAMILIES.get(task.task_type)
    if family is None:
        return None
    resources = task.resources
    for name, shape in _shapes_of(family).needs.items():
        for problem in shape.problems(name, resources.value(name)):
            return f"{family.name} {problem}"
    if family.own_problem is not None:
        return family.own_problem(task)
    if family.scorer is None:
        return None
    return family.scorer.configuration_problem(
        resources.agent_payload(), resources.hidden_payload()
    )


@cache
def _shapes_of(family: Family) -> _FamilyShapes:
    needs = {name: Shape(schema) for name, schema in family.needs.items()}
    return _FamilyShapes(Shape(family.input.schema), Shape(family.eval.schema), needs)


def row_error(context: str, problem: str, *, path: str | None, line: int | None) -> PackError:
    """Return the error of one row.

    Args:
        context: Begins the message and names the row.
        problem: The rest; the same defect has the same text in every row.
        path: Task file as the user named it.
        line: Line of the row.
    """
    return PackError(f"{context}{problem}", path=path, line=line, problem=problem)


def once_per_cause(errors: Iterable[PackError]) -> list[PackError]:
    """Return each defect once, where it occurs first, with the lines of the other rows.

    Args:
        errors: In file order; those that ``row_error`` did not make stay as they are.
    """
    groups: dict[object, list[PackError]] = {}
    for error in errors:
        problem = error.facts.get("problem")
        groups.setdefault(id(error) if problem is None else problem, []).append(error)
    return [_of_many(group) for group in groups.values()]


def _of_many(errors: Sequence[PackError]) -> PackError:
    first, *others = errors
    if not others:
        return first
    lines = [str(error.line) for error in others[:_SHOWN_LINES]]
    more = ", …" if len(others) > _SHOWN_LINES else ""
    rows = f"{len(others)} more row{'s' if len(others) > 1 else ''}"
    reason = f"{first.reason} (the same in {rows}: line {', '.join(lines)}{more})"
    return PackError(reason, path=first.path, line=first.line, **first.facts)
