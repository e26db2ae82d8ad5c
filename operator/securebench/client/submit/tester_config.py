"""Tester YAML, schema 0.2 (contract 3). Parsing is pure: it reads no environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from securebench.agents.registry import AGENTS, wrong_type
from securebench.benchmark.reading.plain import (
    KeyPath,
    PlainProblem,
    YamlDocument,
    decoded,
    parse_yaml,
)
from securebench.benchmark.scorers.dangerous_commands import KNOWN_COMMANDS, VerificationPolicy
from securebench.core.errors import ConfigError, ConfigErrors, InvalidInputError
from securebench.core.spelling import meant, near_words

SCHEMA_VERSION = "0.2"

_ROOT_KEYS = ("schema_version", "run", "benchmark", "harness", "verification")


@dataclass(frozen=True, slots=True)
class RunSection:
    """Section ``run`` with the overrides of the command line.

    Args:
        id: Run id of the records; any non-empty text.
        output_dir: Folder of the results; made when the run starts.
        limit: Only the first rows of the task file; None for all. Never from the file.
        resume: Keep finished records and run the rest. Never from the file.
    """

    id: str
    output_dir: Path
    limit: int | None = None
    resume: bool = False


@dataclass(frozen=True, slots=True)
class BenchmarkSection:
    """Section ``benchmark``; whether the files exist is not known yet."""

    manifest: Path
    tasks: Path


@dataclass(frozen=True, slots=True)
class HarnessSection:
    """Section ``harness``.

    Args:
        type: One of the known types.
        env: Names of variables, in order.
        config: As written; ``harnesses.harness_config`` checks it.
    """

    type: str
    env: tuple[str, ...] = ()
    config: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TesterConfig:
    """A whole tester YAML.

    Args:
        run: Section ``run``.
        benchmark: Section ``benchmark``.
        harness: Section ``harness``.
        verification: Section ``verification`` with its defaults.
        schema_version: Always ``0.2``.
        source: The file, or None for a parsed mapping.
        lines: Lines of the file's keys.
    """

    run: RunSection
    benchmark: BenchmarkSection
    harness: HarnessSection
    verification: VerificationPolicy
    schema_version: str = SCHEMA_VERSION
    source: Path | None = field(default=None, compare=False)
    lines: Mapping[KeyPath, int] = field(default_factory=dict, compare=False, repr=False)

    def placed(self, errors: ConfigErrors) -> ConfigErrors:
        """Return errors about keys of this file, such as harness.config, with file and line.

        Args:
            errors: Errors whose fact ``key`` is the path of a key; others get line 1.
        """
        return _placed(errors.errors, self.source, self.lines)


class _Problems:
    """Collects the defects of one file; a wrong value becomes a placeholder meanwhile."""

    def __init__(self) -> None:
        self.found: list[ConfigError] = []
        self._misspelt: set[KeyPath] = set()

    def add(self, key: KeyPath, message: str) -> None:
        self.found.append(ConfigError(message, key=key))

    def missing(self, key: KeyPath, message: str) -> None:
        """Add a message about a missing key unless a misspelt one was named for it."""
        if key not in self._misspelt:
            self.add(key, message)

    def section(
        self, data: Mapping[str, object], name: str, keys: Sequence[str]
    ) -> Mapping[str, object] | None:
        """Return a required section, checked for unknown keys; None when it is none."""
        value = data.get(name)
        if not isinstance(value, Mapping):
            self.missing((name,), f"root.{name} must be an object")
            return None
        self.only(value, name, keys)
        return value

    def only(self, data: Mapping[str, object], section: str, keys: Sequence[str]) -> None:
        """Refuse unknown keys of a section; what they misspell is not missed any more."""
        unknown = [str(key) for key in data if key not in keys]
        if unknown:
            parent = () if section == "root" else (section,)
            missing = [key for key in keys if key not in data]
            near = near_words(unknown, missing)
            self._misspelt |= {(*parent, word) for word in near.values()}
            names = f"{', '.join(sorted(unknown))}{meant(sorted(unknown), keys)}"
            self.add((*parent, unknown[0]), f"{section} contains unsupported field(s): {names}")

    def text(self, data: Mapping[str, object] | None, section: str, name: str) -> str:
        """Return a required non-empty string; says nothing about a missing section."""
        if data is None:
            return ""
        value = data.get(name)
        if isinstance(value, str) and value.strip():
            return value
        if name in data:
            self.add((section, name), f"{section}.{name} must be a non-empty string")
        else:
            self.missing((section, name), f"{section}.{name} is required")
        return ""


def load_tester_config(path: str | Path) -> TesterConfig:
    """Read a tester YAML; its paths become relative to its folder.

    Raises:
        ConfigErrors: Every defect of the file, in file order, each with file and line.
    """
    source = Path(path)
    document = _read(source)
    try:
        config = parse_tester_config(document.value, base_dir=source.parent)
    except ConfigErrors as errors:
        raise _placed(errors.errors, source, document.lines) from None
    return replace(config, source=source, lines=document.lines)


def parse_tester_config(data: object, *, base_dir: str | Path | None = None) -> TesterConfig:
    """Check a tester configuration that is already parsed.

    Args:
        data: The root mapping.
        base_dir: Folder that the paths are relative to; without it they stay relative.

    Raises:
        ConfigErrors: Every defect, in the order of the sections.
    """
    problems = _Problems()
    if not isinstance(data, Mapping):
        raise ConfigErrors([ConfigError("Tester config root must be an object", key="")])
    problems.only(data, "root", _ROOT_KEYS)
    _check_version(data, problems)
    base = Path(base_dir) if base_dir is not None else Path()
    config = TesterConfig(
        run=_run(data, base, problems),
        benchmark=_benchmark(data, base, problems),
        harness=_harness(data, problems),
        verification=_verification(data, problems),
    )
    if problems.found:
        raise ConfigErrors(problems.found)
    return config


def with_tester_overrides(
    config: TesterConfig,
    *,
    output_dir: str | Path | None = None,
    limit: int | None = None,
    resume: bool = False,
) -> TesterConfig:
    """Return the configuration with what the command line says.

    Args:
        config: From the file.
        output_dir: Replaces ``run.output_dir``, used as given; None keeps it.
        limit: Only the first rows, 1 or more; None for all.
        resume: Whether finished records are kept.

    Raises:
        ConfigError: The limit leaves no row.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit must be at least 1: {limit}")
    folder = config.run.output_dir if output_dir is None else Path(output_dir)
    return replace(config, run=replace(config.run, output_dir=folder, limit=limit, resume=resume))


def _check_version(data: Mapping[str, object], problems: _Problems) -> None:
    version = data.get("schema_version")
    if "schema_version" not in data:
        problems.missing(("schema_version",), "schema_version is required")
    elif not isinstance(version, str):
        problems.add(
            ("schema_version",),
            f'schema_version must be a string: write "{SCHEMA_VERSION}" in quotes',
        )
    elif version != SCHEMA_VERSION:
        problems.add(
            ("schema_version",),
            f'Unsupported tester schema_version {version!r}; this version reads "{SCHEMA_VERSION}"',
        )


def _run(data: Mapping[str, object], base: Path, problems: _Problems) -> RunSection:
    section = problems.section(data, "run", ("id", "output_dir"))
    return RunSection(
        id=problems.text(section, "run", "id"),
        output_dir=base / problems.text(section, "run", "output_dir"),
    )


def _benchmark(data: Mapping[str, object], base: Path, problems: _Problems) -> BenchmarkSection:
    section = problems.section(data, "benchmark", ("manifest", "tasks"))
    return BenchmarkSection(
        manifest=base / problems.text(section, "benchmark", "manifest"),
        tasks=base / problems.text(section, "benchmark", "tasks"),
    )


def _harness(data: Mapping[str, object], problems: _Problems) -> HarnessSection:
    section = problems.section(data, "harness", ("type", "env", "config"))
    if section is None:
        return HarnessSection(type="")
    kind = section.get("type")
    if not isinstance(kind, str) or kind not in AGENTS:
        problems.add(("harness", "type"), wrong_type())
    config = section.get("config", {})
    if not isinstance(config, Mapping):
        problems.add(("harness", "config"), "harness.config must be an object")
        config = {}
    return HarnessSection(
        type=kind if isinstance(kind, str) else "", env=_env(section, problems), config=config
    )


def _env(section: Mapping[str, object], problems: _Problems) -> tuple[str, ...]:
    names = section.get("env", [])
    if not isinstance(names, list | tuple):
        problems.add(("harness", "env"), "harness.env must be a list")
        return ()
    for index, name in enumerate(names):
        if not isinstance(name, str) or not name.strip() or "=" in name:
            message = f"harness.env[{index}] must be a non-empty string without '='"
            problems.add(("harness", "env", str(index)), message)
    return tuple(name for name in names if isinstance(name, str))


def _verification(data: Mapping[str, object], problems: _Problems) -> VerificationPolicy:
    section = data.get("verification", {})
    if not isinstance(section, Mapping):
        problems.add(("verification",), "verification must be an object")
        return VerificationPolicy()
    problems.only(section, "verification", ("disallow_dangerous_commands", "deny_commands"))
    disallow = section.get("disallow_dangerous_commands", True)
    if not isinstance(disallow, bool):
        key = ("verification", "disallow_dangerous_commands")
        problems.add(key, f"{'.'.join(key)} must be a boolean")
    return VerificationPolicy(
        disallow_dangerous_commands=disallow is not False,
        deny_commands=_deny_commands(section, problems),
    )


def _deny_commands(section: Mapping[str, object], problems: _Problems) -> tuple[str, ...]:
    commands = section.get("deny_commands", [])
    if not isinstance(commands, list | tuple):
        key = ("verification", "deny_commands")
        problems.add(key, f"{'.'.join(key)} must be a list")
        return ()
    denied: dict[str, None] = {}
    for index, command in enumerate(commands):
        stripped = command.strip() if isinstance(command, str) else ""
        if stripped in KNOWN_COMMANDS:
            denied[stripped] = None
        else:
            message = f"verification.deny_commands[{index}] must be one of "
            problems.add(
                ("verification", "deny_commands", str(index)), message + ", ".join(KNOWN_COMMANDS)
            )
    return tuple(denied)


def _placed(
    errors: Sequence[InvalidInputError], source: Path | None, lines: Mapping[KeyPath, int]
) -> ConfigErrors:
    """Put file and line in front of each message and sort by line."""
    if source is None:
        return ConfigErrors(errors)
    known = sorted(
        ((_line_of(error.facts.get("key"), lines), error) for error in errors),
        key=lambda item: item[0],
    )
    return ConfigErrors(
        [ConfigError(f"{source}:{line}: {error.reason}", **error.facts) for line, error in known]
    )


def _line_of(key: object, lines: Mapping[KeyPath, int]) -> int:
    """Return the line of a key, or of the nearest section around a missing one."""
    path = key if isinstance(key, tuple) else ()
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


def _read(path: Path) -> YamlDocument:
    try:
        return parse_yaml(decoded(path.read_bytes()))
    except OSError as error:
        reason = f"{path}: cannot be read: {error.strerror}"
    except PlainProblem as problem:
        place = path if problem.line is None else f"{path}:{problem.line}"
        reason = f"{place}: {problem.reason}"
    raise ConfigErrors([ConfigError(reason)])
