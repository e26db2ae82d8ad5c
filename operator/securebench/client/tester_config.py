"""The tester YAML, schema 0.2 (contract 3), parsed without the environment; and its price table.

A price table is the section ``prices`` of the tester YAML, or a file of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from securebench.agents.registry import AGENTS, unknown_type_message
from securebench.benchmark.files.folders import EVERY_FOLDER, FolderOptions
from securebench.benchmark.harbor.folder import holds_tasks
from securebench.benchmark.reading.plain import (
    KeyPath,
    PlainProblem,
    YamlDocument,
    decoded,
    line_of,
    parse_yaml,
)
from securebench.benchmark.reading.shape import REQUIRED, UNKNOWN, SchemaDefect, Shape
from securebench.benchmark.scorers.dangerous_commands import KNOWN_COMMANDS, VerificationPolicy
from securebench.errors import ConfigError, ConfigErrors, InvalidInputError
from securebench.json_values import (
    BOOLEAN,
    OBJECT,
    TEXT,
    TEXT_OR_NUMBER,
    Schema,
    object_at,
    object_of,
)
from securebench.names import kubernetes_name
from securebench.run.api.field_types import MAX_DEADLINE_SECONDS
from securebench.run.api.models import (
    MANIFEST_FILE,
    MAX_ATTEMPTS,
    MAX_BUDGET_TOKENS,
    TASKS_FILE,
    TaskSelector,
)
from securebench.stats.cost import Price

_AMOUNT: Final[Schema] = {
    "type": "integer",
    "minimum": 0,
    "description": "a whole number of micro-dollars per million tokens",
}
PRICES_SCHEMA: Final[Schema] = {
    "type": "array",
    "items": object_of(
        {"model": TEXT, "input": _AMOUNT, "cached_input": _AMOUNT, "output": _AMOUNT},
        "model",
        "input",
        "output",
    ),
    "description": "a list",
}
"""Of a price table, in a tester YAML and in a file."""

_FILE: Final = Shape(object_of({"prices": PRICES_SCHEMA}, "prices"))

Prices = Mapping[str, Price]


def load_prices(path: Path) -> Prices:
    """Read a file whose one key ``prices`` holds a price table.

    Raises:
        ConfigErrors: Lists all defects, each with file and line.
    """
    try:
        document = parse_yaml(decoded(path.read_bytes()))
    except OSError as error:
        raise _error(f"{path}: cannot be read: {error.strerror}") from None
    except PlainProblem as problem:
        place = path if problem.line is None else f"{path}:{problem.line}"
        raise _error(f"{place}: {problem.reason}") from None
    defects = [
        ConfigError(f"{path}:{line_of(each.key, document.lines)}: {each.said_of('price table')}")
        for each in _FILE.defects(document.value)
    ]
    if defects:
        raise ConfigErrors(defects)
    rows: Any = document.value
    twice = repeated_models(rows["prices"])
    if twice:
        raise _error(f"{path}: prices names models twice: {', '.join(twice)}")
    return parse_prices(rows["prices"])


def parse_prices(rows: Iterable[Mapping[str, Any]]) -> Prices:
    """Return a price table by model; cached input costs what input does unless it is given."""
    return {
        row["model"]: Price(row["input"], row.get("cached_input", row["input"]), row["output"])
        for row in rows
    }


def repeated_models(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the models that a table names more than once."""
    seen, twice = set[str](), dict[str, None]()
    for row in rows:
        if row["model"] in seen:
            twice[row["model"]] = None
        seen.add(row["model"])
    return list(twice)


def _error(reason: str) -> ConfigErrors:
    return ConfigErrors([ConfigError(reason)])


SCHEMA_VERSION = "0.2"

TESTER_FILE: Final = "tester.yaml"
"""Name of the file where a folder is named."""

_VARIABLE: Final[Schema] = {
    "type": "string",
    "pattern": r"^(?=[^=]*$)[^=]*[^=\s]",
    "description": "a non-empty string without '='",
}


def _from_1_to(most: int) -> Schema:
    return {
        "type": "integer",
        "minimum": 1,
        "maximum": most,
        "description": f"an integer from 1 to {most}",
    }


_ATTEMPTS: Final = _from_1_to(MAX_ATTEMPTS)
_DEADLINE: Final = _from_1_to(MAX_DEADLINE_SECONDS)
_TASK_PATTERNS: Final[Schema] = {
    "type": "array",
    "minItems": 1,
    "maxItems": 1000,
    "items": {**TEXT, "maxLength": 256, "description": "a text of 1 to 256 characters"},
    "description": "a non-empty list of names or patterns of tasks",
}
_QUANTITIES: Final[Schema] = object_of({"cpu": TEXT_OR_NUMBER, "memory": TEXT_OR_NUMBER})
_RESOURCES: Final[Schema] = object_of(
    {"requests": _QUANTITIES, "limits": _QUANTITIES, "workspace": TEXT_OR_NUMBER}
)
_LABELS: Final[Schema] = {"type": "object", "description": "labels, each as name: value"}
_BUDGET_TOKENS: Final = _from_1_to(MAX_BUDGET_TOKENS)
_COMMAND: Final[Schema] = {
    "type": "string",
    "pattern": rf"^\s*({'|'.join(KNOWN_COMMANDS)})\s*$",
    "description": f"one of {', '.join(KNOWN_COMMANDS)}",
}


_ENV: Final[Schema] = {
    "type": "array",
    "items": _VARIABLE,
    "description": "a list of names of environment variables",
}


def _list_of(items: Schema) -> Schema:
    return {"type": "array", "items": items, "description": "a list"}


TESTER: Final = Shape(
    object_of(
        {
            "schema_version": {"enum": [SCHEMA_VERSION]},
            "run": object_of(
                {
                    "id": TEXT,
                    "output_dir": TEXT,
                    "attempts": _ATTEMPTS,
                    "tasks": _TASK_PATTERNS,
                    "deadline_seconds": _DEADLINE,
                    "budget": object_of({"tokens": _BUDGET_TOKENS}, "tokens"),
                },
                "id",
                "output_dir",
            ),
            "benchmark": object_of({"manifest": TEXT, "tasks": TEXT}, "manifest", "tasks"),
            "pack": TEXT,
            "harness": object_of(
                {"type": {"enum": list(AGENTS)}, "env": _ENV, "config": OBJECT},
                "type",
            ),
            "verification": object_of(
                {"disallow_dangerous_commands": BOOLEAN, "deny_commands": _list_of(_COMMAND)}
            ),
            "pods": object_of({"resources": _RESOURCES, "node_selector": _LABELS}),
            "prices": PRICES_SCHEMA,
        },
        "schema_version",
        "run",
        "harness",
    )
)
_SECTIONS: Final = ("run", "benchmark", "harness")


@dataclass(frozen=True, slots=True)
class RunSection:
    """Section ``run``, and the command line's overrides.

    Args:
        id: Run id of the records; any non-empty text.
        output_dir: Folder for results; created when the run starts.
        limit: Only the first rows of the task file; None for all. Command line only.
        resume: Keep finished records and run the rest. Command line only.
        attempts: Independent attempts per task, all of which count.
        budget_tokens: Tokens that all launches together may use, or None.
        tasks: Ids, or patterns of ids, of the tasks that run; empty for all.
        deadline_seconds: When the whole run is ended; None for the default of a BenchmarkRun.
    """

    id: str
    output_dir: Path
    limit: int | None = None
    resume: bool = False
    attempts: int = 1
    budget_tokens: int | None = None
    tasks: tuple[str, ...] = ()
    deadline_seconds: int | None = None

    @property
    def selector(self) -> TaskSelector:
        """Which rows run."""
        return TaskSelector(limit=self.limit, **({"include": self.tasks} if self.tasks else {}))


@dataclass(frozen=True, slots=True)
class PodsSection:
    """Section ``pods``: what a BenchmarkRun says of its Pods.

    Args:
        resources: As ``spec.resources``.
        node_selector: As ``spec.podTemplate.nodeSelector``.
    """

    resources: Mapping[str, object] = field(default_factory=dict)
    node_selector: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BenchmarkSection:
    """Section ``benchmark``, or the folder that ``pack`` names; the files may not exist.

    Args:
        folder: The folder; None where the files are named.
        folders: What holds for task folders. Command line only.
    """

    manifest: Path
    tasks: Path
    folder: Path | None = None
    folders: FolderOptions = EVERY_FOLDER

    @classmethod
    def of_folder(cls, folder: Path) -> BenchmarkSection:
        """Return the pack of a folder."""
        return cls(folder / MANIFEST_FILE, folder / TASKS_FILE, folder)


@dataclass(frozen=True, slots=True)
class HarnessSection:
    """Section ``harness``.

    Args:
        type: A registered harness type.
        env: Names of environment variables, in order.
        config: As written; ``agents.registry.harness_config`` validates it.
    """

    type: str
    env: tuple[str, ...] = ()
    config: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TesterConfig:
    """A tester YAML.

    Args:
        run: Section ``run``.
        benchmark: Section ``benchmark``, or ``pack``.
        harness: Section ``harness``.
        verification: Section ``verification``, with defaults.
        prices: Section ``prices``, by model.
        pods: Section ``pods``.
        schema_version: Always ``0.2``.
        source: The file, or None for a parsed mapping.
        lines: Line number by key path.
    """

    run: RunSection
    benchmark: BenchmarkSection
    harness: HarnessSection
    verification: VerificationPolicy
    schema_version: str = SCHEMA_VERSION
    prices: Prices = field(default_factory=dict)
    pods: PodsSection = PodsSection()
    source: Path | None = field(default=None, compare=False)
    lines: Mapping[KeyPath, int] = field(default_factory=dict, compare=False, repr=False)

    def placed(self, errors: ConfigErrors) -> ConfigErrors:
        """Add file and line to errors about keys of this file, such as ``harness.config``.

        Args:
            errors: Their fact ``key`` is the path of a key; errors without it get line 1.
        """
        return _placed(errors.errors, self.source, self.lines)


def load_tester_config(path: str | Path) -> TesterConfig:
    """Read a tester YAML and resolve its paths relative to its folder.

    Args:
        path: The file, or the folder with ``tester.yaml``.

    Raises:
        ConfigErrors: Lists all defects in file order, each with file and line.
    """
    source = Path(path)
    if source.is_dir():
        _refuse_harbor_folders(source)
        source /= TESTER_FILE
    document = read_yaml(source)
    _refuse_manifest(document.value, source)
    try:
        config = parse_tester_config(document.value, base_dir=source.parent)
    except ConfigErrors as errors:
        raise _placed(errors.errors, source, document.lines) from None
    return replace(config, source=source, lines=document.lines)


def _refuse_harbor_folders(folder: Path) -> None:
    """Refuse a folder that holds tasks of Harbor but no tester YAML, with how to go on.

    Raises:
        ConfigErrors: It holds them.
    """
    if (folder / TESTER_FILE).exists():
        return
    if holds_tasks(folder):
        reason = f"there is no {TESTER_FILE}; name the agent for the Harbor tasks with --agent"
        raise ConfigErrors([ConfigError(reason, path=str(folder))])
    if holds_tasks(folder / "tasks"):
        reason = f"there is no {TESTER_FILE}; the Harbor task folders are in {folder / 'tasks'}"
        raise ConfigErrors([ConfigError(reason, path=str(folder))])


def _refuse_manifest(value: object, source: Path) -> None:
    """Say what a file is that was given for the tester YAML.

    Raises:
        ConfigErrors: It is the manifest of a pack.
    """
    if isinstance(value, Mapping) and "defaults" in value and "schema_version" not in value:
        reason = "this is a pack's manifest; give the tester YAML that names it"
        raise ConfigErrors([ConfigError(reason, path=str(source))])


def folder_config(folder: Path, agent: str, config: Mapping[str, object]) -> TesterConfig:
    """Return the configuration of a run of a folder that has no tester YAML.

    Args:
        folder: The pack's.
        agent: Harness type.
        config: As ``harness.config``.

    Raises:
        ConfigErrors: There is no such harness type.
    """
    if agent not in AGENTS:
        raise _error(unknown_type_message(agent))
    run_id = f"{folder.resolve().name}-{agent}"
    return TesterConfig(
        run=RunSection(run_id, Path("results", kubernetes_name(run_id))),
        benchmark=BenchmarkSection.of_folder(folder),
        harness=HarnessSection(agent, config=config),
        verification=VerificationPolicy(),
    )


def parse_tester_config(data: object, *, base_dir: str | Path | None = None) -> TesterConfig:
    """Validate a tester configuration that is already parsed from YAML.

    Args:
        data: The root mapping.
        base_dir: Folder that paths are relative to; without it they stay relative.

    Raises:
        ConfigErrors: Lists all defects, in the order of the sections.
    """
    if not isinstance(data, Mapping):
        raise ConfigErrors([ConfigError("Tester config root must be an object", key="")])
    defects = TESTER.defects(data)
    if defects:
        raise ConfigErrors(
            [ConfigError(_defect_message(each, data), key=each.key) for each in defects]
        )
    if ("pack" in data) is ("benchmark" in data):
        reason = "name the pack: with pack, its folder, or with benchmark, manifest and tasks"
        raise ConfigErrors([ConfigError(reason, key=("benchmark",))])
    twice = repeated_models(data.get("prices", ()))
    if twice:
        reason = f"prices names models twice: {', '.join(twice)}"
        raise ConfigErrors([ConfigError(reason, key=("prices",))])
    return _config(data, Path() if base_dir is None else Path(base_dir))


def with_tester_overrides(
    config: TesterConfig,
    *,
    output_dir: str | Path | None = None,
    attempts: int | None = None,
    limit: int | None = None,
    resume: bool = False,
    budget_tokens: int | None = None,
) -> TesterConfig:
    """Apply the command line's overrides.

    Args:
        config: From the file.
        output_dir: Replaces ``run.output_dir``, used as given; None keeps it.
        attempts: Replaces ``run.attempts``; None keeps it.
        limit: Only the first rows, at least 1; None for all.
        resume: Whether finished records are kept.
        budget_tokens: Replaces ``run.budget.tokens``; None keeps it.

    Raises:
        ConfigError: The limit is less than 1, or attempts or tokens are not from 1 to their
            maximum.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit must be at least 1: {limit}")
    if attempts is not None and not 1 <= attempts <= MAX_ATTEMPTS:
        raise ConfigError(f"attempts must be {_ATTEMPTS['description']}: {attempts}")
    if budget_tokens is not None and not 1 <= budget_tokens <= MAX_BUDGET_TOKENS:
        raise ConfigError(f"budget_tokens must be {_BUDGET_TOKENS['description']}: {budget_tokens}")
    run = replace(config.run, limit=limit, resume=resume)
    if output_dir is not None:
        run = replace(run, output_dir=Path(output_dir))
    if attempts is not None:
        run = replace(run, attempts=attempts)
    if budget_tokens is not None:
        run = replace(run, budget_tokens=budget_tokens)
    return replace(config, run=run)


def with_spec_overrides(
    config: TesterConfig,
    *,
    tasks: Sequence[str],
    deadline_seconds: int | None,
    node_selector: Mapping[str, str],
) -> TesterConfig:
    """Apply the command line's overrides about tasks, time and nodes.

    Args:
        config: From the file.
        tasks: Replaces ``run.tasks``; empty keeps it.
        deadline_seconds: Replaces ``run.deadline_seconds``; None keeps it.
        node_selector: Replaces ``pods.node_selector``; empty keeps it.

    Raises:
        ConfigError: A value is out of its bounds.
    """
    run, pods = config.run, config.pods
    for name, schema, value in (
        ("--task", _TASK_PATTERNS, list(tasks) or ["*"]),
        ("--deadline", _DEADLINE, 1 if deadline_seconds is None else deadline_seconds),
    ):
        problem = next(Shape(schema).problems(name, value), None)
        if problem is not None:
            raise ConfigError(problem)
    if tasks:
        run = replace(run, tasks=tuple(tasks))
    if deadline_seconds is not None:
        run = replace(run, deadline_seconds=deadline_seconds)
    if node_selector:
        pods = replace(pods, node_selector=node_selector)
    return replace(config, run=run, pods=pods)


def with_task_overrides(
    config: TesterConfig, *, network: str | None, folders: FolderOptions
) -> TesterConfig:
    """Apply the command line's overrides about tasks that are folders.

    Args:
        config: From the file.
        network: Replaces ``harness.config.network``; None keeps it.
        folders: What holds for task folders.
    """
    harness = config.harness
    if network is not None:
        harness = replace(harness, config={**harness.config, "network": network})
    benchmark = replace(config.benchmark, folders=folders)
    return replace(config, harness=harness, benchmark=benchmark)


def _defect_message(defect: SchemaDefect, data: Mapping[str, object]) -> str:
    if defect.keyword == UNKNOWN:
        place = ".".join(defect.key[:-1])
        said = f"{place or 'root'} contains unsupported {defect.words}"
        return said + (_misplaced(data) if place == "harness" else "")
    name = ".".join(defect.key)
    if name in _SECTIONS:
        return f"root.{name} must be an object"
    if name == "harness.type":
        return unknown_type_message(object_at(data, "harness").get("type"))
    if name == "schema_version" and defect.keyword != REQUIRED:
        version = data[name]
        if isinstance(version, str):
            return (
                f"Unsupported tester schema_version {version!r}; this version reads"
                f' "{SCHEMA_VERSION}"'
            )
        return f'schema_version must be a string: write "{SCHEMA_VERSION}" in quotes'
    return defect.said_of("").removeprefix(".")


def _misplaced(data: Mapping[str, object]) -> str:
    """Return where keys belong that stand under ``harness`` instead of ``harness.config``."""
    harness = object_at(data, "harness")
    known = {
        key for agent in AGENTS.values() for key in object_at(agent.config.schema, "properties")
    }
    names = ", ".join(sorted(known & set(harness)))
    return f"; write {names} one level deeper, under harness.config" if names else ""


def _config(data: Mapping[str, Any], base: Path) -> TesterConfig:
    run, harness = data["run"], data["harness"]
    verification = data.get("verification", {})
    denied = (command.strip() for command in verification.get("deny_commands", ()))
    return TesterConfig(
        run=RunSection(
            run["id"],
            base / run["output_dir"],
            attempts=run.get("attempts", 1),
            budget_tokens=run.get("budget", {}).get("tokens"),
            tasks=tuple(run.get("tasks", ())),
            deadline_seconds=run.get("deadline_seconds"),
        ),
        pods=PodsSection(**data.get("pods", {})),
        benchmark=_benchmark(data, base),
        harness=HarnessSection(
            harness["type"], tuple(harness.get("env", ())), harness.get("config", {})
        ),
        verification=VerificationPolicy(
            disallow_dangerous_commands=verification.get("disallow_dangerous_commands", True),
            deny_commands=tuple(dict.fromkeys(denied)),
        ),
        prices=parse_prices(data.get("prices", ())),
    )


def _benchmark(data: Mapping[str, Any], base: Path) -> BenchmarkSection:
    if "pack" in data:
        return BenchmarkSection.of_folder(base / data["pack"])
    benchmark = data["benchmark"]
    return BenchmarkSection(base / benchmark["manifest"], base / benchmark["tasks"])


def _placed(
    errors: Sequence[InvalidInputError], source: Path | None, lines: Mapping[KeyPath, int]
) -> ConfigErrors:
    """Add file and line to each error, and sort by line."""
    if source is None:
        return ConfigErrors(errors)
    located = sorted(
        ((line_of(_key_of(error), lines), error) for error in errors), key=lambda item: item[0]
    )
    return ConfigErrors(
        [
            ConfigError(error.reason, path=str(source), line=line, **error.facts)
            for line, error in located
        ]
    )


def _key_of(error: InvalidInputError) -> KeyPath:
    key = error.facts.get("key")
    return key if isinstance(key, tuple) else ()


def read_yaml(path: Path) -> YamlDocument:
    """Return the document of a file that configures a run.

    Raises:
        ConfigErrors: It cannot be read, or is no plain YAML.
    """
    if path.suffix == ".jsonl":
        reason = "this is a pack's task file; give the tester YAML that names it"
        raise ConfigErrors([ConfigError(reason, path=str(path))])
    try:
        return parse_yaml(decoded(path.read_bytes()))
    except OSError as error:
        reason, line = f"cannot be read: {error.strerror}", None
    except PlainProblem as problem:
        reason, line = problem.reason, problem.line
    raise ConfigErrors([ConfigError(reason, path=str(path), line=line)])
