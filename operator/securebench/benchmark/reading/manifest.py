"""The manifest of a pack (contract 5)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from securebench.benchmark.families.fields import TEXT
from securebench.benchmark.families.registry import EVAL_VISIBILITY, family_problems
from securebench.benchmark.pack.environment import environment_schema, unknown_environment_keys
from securebench.benchmark.pack.paths import PathError, safe_relative_path
from securebench.benchmark.reading.plain import KeyPath, PlainProblem, YamlDocument, parse_yaml
from securebench.core.errors import ConfigErrors, PackError
from securebench.core.spelling import near_words

T = TypeVar("T")

ROOT_KEYS = frozenset({"id", "version", "defaults", "asset_roots", "asset_defaults"})
SECTION_KEYS: Mapping[str, frozenset[str]] = {
    "defaults": frozenset({"family", "environment"}),
    "asset_roots": frozenset({"public", "eval"}),
    "asset_defaults": frozenset({"read_only"}),
}


@dataclass(frozen=True, slots=True)
class AssetRoots:
    """Folders of the pack's files, relative to the manifest, as written."""

    public: str = "assets/"
    eval: str = "hidden/"


@dataclass(frozen=True, slots=True)
class BenchmarkManifest:
    """A manifest that holds.

    Args:
        id: Benchmark id.
        version: Pack version.
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
        return _line_of(key, self.lines)


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
    if not isinstance(document.value, Mapping):
        raise ConfigErrors([PackError("manifest root must be a mapping", path=path, line=1)])
    reader = _ManifestReader(document, path)
    manifest = reader.read(document.value)
    if reader.errors:
        raise ConfigErrors(in_file_order(reader.errors))
    return manifest


def in_file_order(errors: Iterable[PackError]) -> list[PackError]:
    """Return errors sorted by line; those of one line keep their order."""
    return sorted(errors, key=lambda error: error.line or 0)


def manifest_schema() -> dict[str, object]:
    """Return the manifest as JSON Schema."""
    optional: dict[str, object] = {
        "defaults": _section_schema(
            {"family": {"enum": sorted(EVAL_VISIBILITY)}, "environment": environment_schema()}
        ),
        "asset_roots": _section_schema({"public": TEXT, "eval": TEXT}),
        "asset_defaults": _section_schema({"read_only": {"type": "boolean"}}),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "SecureBench pack manifest",
        "type": "object",
        "properties": {"id": TEXT, "version": {"type": "integer"}, **optional},
        "required": ["id", "version"],
    }


def _line_of(key: KeyPath, lines: Mapping[KeyPath, int]) -> int:
    around = (key[:end] for end in range(len(key), 0, -1))
    return next((lines[part] for part in around if part in lines), 1)


def _section_schema(properties: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    nullable = {name: {"anyOf": [rule, {"type": "null"}]} for name, rule in properties.items()}
    return {"type": ["object", "null"], "properties": nullable}


class _ManifestReader:
    """Reads one document and collects what is wrong with it."""

    def __init__(self, document: YamlDocument, path: str | None) -> None:
        self._lines = document.lines
        self._path = path
        self._misspelt: set[KeyPath] = set()
        self.errors: list[PackError] = []

    def read(self, root: Mapping[str, object]) -> BenchmarkManifest:
        unknown_keys = self._unknown(root)
        defaults = self._section(root, "defaults")
        roots = self._section(root, "asset_roots")
        asset_defaults = self._section(root, "asset_defaults")
        read_only = self._typed(asset_defaults, ("asset_defaults", "read_only"), bool, "a boolean")
        family = self._text(defaults, ("defaults", "family"))
        self._check_family(family)
        environment = self._section(defaults, "defaults", "environment")
        self._check_environment(environment)
        return BenchmarkManifest(
            id=self._text(root, ("id",), required=True) or "",
            version=self._version(root),
            default_family=family,
            default_environment=environment,
            asset_roots=AssetRoots(
                public=self._root(roots, "public", AssetRoots().public),
                eval=self._root(roots, "eval", AssetRoots().eval),
            ),
            asset_read_only=read_only is not False,
            path=self._path,
            unknown_keys=unknown_keys,
            lines=self._lines,
        )

    def _section(self, parent: Mapping[str, object], *key: str) -> Mapping[str, object]:
        return self._typed(parent, key, dict, "a mapping") or {}

    def _text(
        self, section: Mapping[str, object], key: KeyPath, *, required: bool = False
    ) -> str | None:
        if required and section.get(key[-1]) is None:
            self._fail_missing(key, section, "must be a non-empty string")
            return None
        text = self._typed(section, key, str, "a non-empty string")
        if text is not None and not text.strip():
            self._fail(key, "must be a non-empty string")
        return text

    def _version(self, root: Mapping[str, object]) -> int:
        version = root.get("version")
        if isinstance(version, int) and not isinstance(version, bool):
            return version
        self._fail_missing(("version",), root, "must be an integer")
        return 0

    def _root(self, roots: Mapping[str, object], name: str, default: str) -> str:
        key = ("asset_roots", name)
        written = self._typed(roots, key, str, "a non-empty relative path")
        if written is None:
            return default
        try:
            safe_relative_path(written, ".".join(key))
        except PathError as error:
            self._fail(key, error.reason.removeprefix(".".join(key)).strip())
        return written

    def _typed(
        self, section: Mapping[str, object], key: KeyPath, kind: type[T], wanted: str
    ) -> T | None:
        value = section.get(key[-1])
        if value is None or isinstance(value, kind):
            return value
        self._fail(key, f"must be {wanted}")
        return None

    def _unknown(self, root: Mapping[str, object]) -> tuple[tuple[str, int | None], ...]:
        """Return unknown keys and refuse those that misspell one that is not there."""
        keys = self._unknown_below((), root, ROOT_KEYS)
        for section, known in SECTION_KEYS.items():
            value = root.get(section)
            if isinstance(value, Mapping):
                keys += self._unknown_below((section,), value, known)
        return tuple((".".join(key), self._lines.get(key)) for key in keys)

    def _unknown_below(
        self, parent: KeyPath, section: Mapping[str, object], known: frozenset[str]
    ) -> list[KeyPath]:
        unknown = [key for key in section if key not in known]
        for key, word in near_words(unknown, known - section.keys()).items():
            self._misspelt.add((*parent, word))
            written, wanted = ".".join((*parent, key)), ".".join((*parent, word))
            problem = f"unknown manifest key {written!r}, did you mean {wanted!r}?"
            self._add((*parent, key), problem)
        return [(*parent, key) for key in unknown]

    def _check_family(self, family: str | None) -> None:
        if family is not None and family.strip():
            for problem in family_problems(family):
                self._add(("defaults", "family"), problem)

    def _check_environment(self, environment: Mapping[str, object]) -> None:
        for problem in unknown_environment_keys(environment):
            self._add(("defaults", "environment", problem.key), problem.reason)

    def _fail_missing(self, key: KeyPath, section: Mapping[str, object], wanted: str) -> None:
        if key[-1] in section:
            self._fail(key, wanted)
        elif key not in self._misspelt:
            self._fail(key, "is required")

    def _fail(self, key: KeyPath, problem: str) -> None:
        self._add(key, f"manifest {'.'.join(key)} {problem}")

    def _add(self, key: KeyPath, reason: str) -> None:
        line = _line_of(key, self._lines)
        self.errors.append(PackError(reason, path=self._path, line=line))
