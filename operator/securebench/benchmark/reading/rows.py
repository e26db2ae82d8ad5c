"""Manifest and rows of a pack: what they must be, how they are read, what is said of defects.

``rendered_schemas`` are the published JSON Schemas; ``controller.install.generate`` writes them.

Source: contract 5, 6, 14.
"""

from __future__ import annotations

import json
from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from json import JSONDecoder
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from securebench.benchmark.families.registry import (
    EVAL_VISIBILITY,
    FAMILIES,
    family_problems,
    row_families,
)
from securebench.benchmark.pack.paths import (
    PathError,
    environment_schema,
    is_unicode,
    safe_relative_path,
    unknown_environment_keys,
)
from securebench.benchmark.reading.plain import (
    KeyPath,
    PlainProblem,
    line_of,
    parse_json,
    parse_yaml,
)
from securebench.benchmark.reading.shape import UNKNOWN, SchemaDefect, Shape
from securebench.errors import ConfigErrors, PackError
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
from securebench.text import listed

if TYPE_CHECKING:
    from securebench.benchmark.families.base import Family, TaskView


_FAMILY_NAME: Final = (("defaults", "family"), "enum")


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


def _section(properties: Mapping[str, Schema]) -> Schema:
    return {
        "type": ["object", "null"],
        MISSPELT: False,
        "properties": properties,
        "description": "a mapping",
    }


_ROOT: Final = nullable({**TEXT, "description": "a non-empty relative path"})


_SECTIONS: Final[Mapping[str, Schema]] = {
    "defaults": _section(
        {
            "family": described(
                {**nullable(TEXT), "enum": [*sorted(EVAL_VISIBILITY), None]},
                "Family of rows that name none.",
                "short_answer",
            ),
            "environment": described(
                {**nullable(environment_schema()), "description": "a mapping"},
                "Lies under the environment of each row; the row wins, key by key.",
                {"image": "python:3.11-slim", "timeout_seconds": 60},
                {},
            ),
        }
    ),
    "asset_roots": _section(
        {
            "public": described(
                _ROOT, "Folder of files that agents may get.", "assets/", "assets/"
            ),
            "eval": described(_ROOT, "Folder of files for verifiers only.", "hidden/", "hidden/"),
        }
    ),
    "asset_defaults": _section(
        {
            "read_only": described(
                nullable(BOOLEAN),
                "Whether agents may not change assets that say nothing about it.",
                False,  # noqa: FBT003 - an example
                True,  # noqa: FBT003 - a default
            )
        }
    ),
}


_ABOUT_SECTIONS: Final = (
    ("What rows have in common.", {"family": "short_answer"}),
    ("Where the pack's files are, relative to the manifest.", {"eval": "checks/"}),
    ("What assets have in common.", {"read_only": False}),
)


MANIFEST: Final = Shape(
    {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "SecureBench pack manifest",
        **_section(
            {
                "id": described(TEXT, "Name of the pack; records have it.", "unit-conversion"),
                "version": described({"type": "integer"}, "Your own count of versions.", 1),
                **{
                    name: described(schema, about, example, {})
                    for (name, schema), (about, example) in zip(
                        _SECTIONS.items(), _ABOUT_SECTIONS, strict=True
                    )
                },
            }
        ),
        "type": "object",
        "required": ["id", "version"],
    }
)


@dataclass(frozen=True, slots=True)
class AssetRoots:
    """Folders of the pack's files, relative to the manifest, as written."""

    public: str = "assets/"
    eval: str = "hidden/"


_PATHS: Final = frozenset(AssetRoots.__slots__)


@dataclass(frozen=True, slots=True)
class BenchmarkManifest:
    """A manifest that holds.

    Args:
        default_family: Family of rows that name none.
        default_environment: Lies under every row's environment.
        asset_roots: Where public and eval files are.
        asset_read_only: Default of an asset's ``read_only``.
        path: As the user named the file; None for a manifest from elsewhere.
        unknown_keys: Keys without a meaning, with their lines; for warnings.
    """

    id: str
    version: int
    default_family: str | None = None
    default_environment: Mapping[str, object] = field(default_factory=dict)
    asset_roots: AssetRoots = field(default_factory=AssetRoots)
    asset_read_only: bool = True
    path: str | None = None
    unknown_keys: tuple[tuple[str, int | None], ...] = ()
    lines: Mapping[KeyPath, int] = field(default_factory=dict)

    def line_of(self, *key: str) -> int:
        """Return the line of a key, or of the nearest section around a missing one."""
        return line_of(key, self.lines)


def parse_manifest(text: str, *, path: str | None = None) -> BenchmarkManifest:
    """Return the manifest that a text holds.

    Args:
        text: YAML.
        path: As the user named the file; stands in the errors.

    Raises:
        ConfigErrors: One PackError per defect, in the order of the file.
    """
    try:
        document = parse_yaml(text)
    except PlainProblem as problem:
        raise ConfigErrors([PackError(problem.reason, path=path, line=problem.line)]) from None
    root, lines = document.value, document.lines
    if not isinstance(root, Mapping):
        raise ConfigErrors([PackError("manifest root must be a mapping", path=path, line=1)])
    problems = [(defect.key, said) for defect in MANIFEST.defects(root) for said in _said(defect)]
    problems += _value_problems(root)
    if problems:
        errors = (PackError(said, path=path, line=line_of(key, lines)) for key, said in problems)
        raise ConfigErrors(in_file_order(errors))
    return _manifest(root, path, lines)


def in_file_order(errors: Iterable[PackError]) -> list[PackError]:
    """Return errors sorted by line; those of one line keep their order."""
    return sorted(errors, key=lambda error: error.line or 0)


def _said(defect: SchemaDefect) -> Iterator[str]:
    """Yield the message about a defect of the shape, unless ``_value_problems`` says it better."""
    name = ".".join(defect.key)
    if defect.keyword == MISSPELT:
        meant = ".".join((*defect.key[:-1], defect.words))
        yield f"unknown manifest key {name!r}, did you mean {meant!r}?"
    elif defect.keyword != UNKNOWN and (defect.key, defect.keyword) != _FAMILY_NAME:
        yield f"manifest {name} {defect.words}"


def _value_problems(root: Mapping[str, object]) -> Iterator[tuple[KeyPath, str]]:
    """Yield where a value that has the right type does not hold."""
    defaults, roots = _mapping(root.get("defaults")), _mapping(root.get("asset_roots"))
    family = defaults.get("family")
    if isinstance(family, str) and family.strip():
        yield from ((("defaults", "family"), said) for said in family_problems(family))
    for unknown in unknown_environment_keys(_mapping(defaults.get("environment"))):
        yield ("defaults", "environment", unknown.key), unknown.reason
    for name, written in roots.items():
        if name in _PATHS and isinstance(written, str) and written.strip():
            try:
                safe_relative_path(written, f"manifest asset_roots.{name}")
            except PathError as error:
                yield ("asset_roots", name), error.reason


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _manifest(
    root: Mapping[str, Any], path: str | None, lines: Mapping[KeyPath, int]
) -> BenchmarkManifest:
    defaults, roots = _mapping(root.get("defaults")), _mapping(root.get("asset_roots"))
    known = {name: value for name, value in roots.items() if name in _PATHS and value is not None}
    return BenchmarkManifest(
        id=root["id"],
        version=root["version"],
        default_family=defaults.get("family"),
        default_environment=defaults.get("environment") or {},
        asset_roots=AssetRoots(**known),
        asset_read_only=_mapping(root.get("asset_defaults")).get("read_only") is not False,
        path=path,
        unknown_keys=tuple((".".join(key), lines.get(key)) for key in _unknown_keys(root)),
        lines=lines,
    )


def _unknown_keys(root: Mapping[str, object]) -> Iterator[KeyPath]:
    yield from ((key,) for key in root if key not in _known(MANIFEST.schema))
    for name, schema in _SECTIONS.items():
        section = _mapping(root.get(name))
        yield from ((name, key) for key in section if key not in _known(schema))


def _known(schema: Schema) -> Mapping[str, object]:
    return _mapping(schema["properties"])


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
    if b"," in first and not first.startswith((b"[", b"{")):
        return "this looks like CSV; write one JSON object per line"
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
    if value and not ROW_KEYS & {*value}:
        keys = listed([repr(key) for key in value])
        return None, [f"{context}: a row has the keys id, input and eval; this one has {keys}"]
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
        hidden = sorted({*row_input} & _eval_keys() - {field.name for field in family.input.fields})
        if hidden:
            names = ", ".join(hidden)
            yield f"input.{names} belongs to eval: the agent sees all of input"
        public = {key: value for key, value in row_input.items() if key not in hidden}
        yield from shapes.input.problems(family.input.name, public)
        yield from shapes.eval.problems(family.eval.name, row_eval)
        yield from family.cross_problems(row_input, row_eval)


@cache
def _eval_keys() -> frozenset[str]:
    """Return what some family has in ``eval``."""
    return frozenset(field.name for family in FAMILIES.values() for field in family.eval.fields)


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


def rendered_schemas() -> dict[str, str]:
    """Return the content of every schema file by its name; the same on every machine."""
    schemas = {
        "manifest.schema.json": MANIFEST.schema,
        **{
            f"row.{name}.schema.json": row_schema(family) for name, family in row_families().items()
        },
    }
    return {
        name: f"{json.dumps(schema, indent=2, sort_keys=True)}\n"
        for name, schema in schemas.items()
    }
