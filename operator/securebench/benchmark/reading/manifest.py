"""The manifest of a pack (contract 5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from securebench.benchmark.families.registry import EVAL_VISIBILITY, family_problems
from securebench.benchmark.pack.environment import environment_schema, unknown_environment_keys
from securebench.benchmark.pack.paths import PathError, safe_relative_path
from securebench.benchmark.reading.plain import KeyPath, PlainProblem, line_of, parse_yaml
from securebench.benchmark.reading.shape import UNKNOWN, SchemaDefect, Shape
from securebench.errors import ConfigErrors, PackError
from securebench.json_values import BOOLEAN, MISSPELT, TEXT, Schema, described, nullable


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


_FAMILY_NAME: Final = (("defaults", "family"), "enum")


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
