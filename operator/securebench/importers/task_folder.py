"""Task folders of Terminal-Bench (task.yaml) and Harbor (task.toml), and their compose files.

A key that an import does not carry over is refused, never ignored. Refusals and remarks are
collected, so that all of them are reported together.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

from securebench.benchmark.reading.plain import (
    MAX_DEPTH,
    PlainProblem,
    is_too_deep,
    parse_yaml,
    plain_problem,
)
from securebench.errors import PackError
from securebench.json_values import is_positive, is_text
from securebench.text import did_you_mean


@dataclass(frozen=True, slots=True)
class ImportFindings:
    """Collects while a task folder is read, so that everything is reported together."""

    errors: list[PackError] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def refuse(self, path: Path, reason: str, line: int | None = None) -> None:
        """Note why a task cannot be imported."""
        self.errors.append(PackError(reason, path=str(path), line=line))

    def remark(self, path: Path, text: str) -> None:
        """Note something that the user should know."""
        self.remarks.append(f"{path}: {text}")


Accepts = Callable[[object], bool]


def _nothing(value: object) -> bool:
    """Accept what the key means where it is absent."""
    return value in ("", 0, [], {})


def _anything(_value: object) -> bool:
    return True


def _never(_value: object) -> bool:
    return False


def _text(value: object) -> bool:
    return isinstance(value, str)


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table.

    Args:
        accepts: Values that mean the same here; others are refused.
        hint: Says in a refusal what is possible.
        has_no_effect: The value is dropped with a remark: it says nothing about grading.
    """

    accepts: Accepts = _nothing
    hint: str = ""
    has_no_effect: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """Known keys of a table and the tables in it.

    Args:
        carried: Keys of an open table that are carried over; its others have no effect. None for
            a table with known keys only.
    """

    keys: Mapping[str, Key] = field(default_factory=dict)
    tables: Mapping[str, Table] = field(default_factory=dict)
    carried: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class KeyFindings:
    """What the keys of one file say.

    Args:
        refused: Why the task cannot be imported, each beginning with the key.
        without_effect: Keys that are dropped because they say nothing about grading.
    """

    refused: list[str] = field(default_factory=list)
    without_effect: list[str] = field(default_factory=list)


_CARRIED = Key(_anything)
"""Checked where it is read."""
_ABOUT = Key(_anything, has_no_effect=True)
_VERSION = Key(_text, "it must be a string")
_RESOURCES = Key(_never, "the run's resources limit every task alike")
_USER = Key(_never, "harness and checks run as the image's user")
_NETWORK = {
    "network_mode": Key(
        lambda value: value == "no-network",
        hint="only 'no-network' means the same here; see harness.config.allowed_domains",
    ),
    "allowed_hosts": Key(hint="name hosts in harness.config.allowed_domains and take it away"),
}
_OPEN = Table(carried=frozenset())

_TASK_TOML = Table(
    keys={
        "schema_version": _VERSION,
        "version": _VERSION,
        "source": _ABOUT,
        "artifacts": Key(hint="checks see the working folder only"),
        "steps": Key(hint="tasks of several steps have no counterpart here"),
        "multi_step_reward_strategy": Key(),
    },
    tables={
        "task": _OPEN,
        "metadata": Table(carried=frozenset({"difficulty", "category", "tags"})),
        "environment": Table(
            keys={
                "docker_image": Key(_text, "it must be a string"),
                "build_timeout_sec": _ABOUT,
                "os": Key(
                    lambda value: isinstance(value, str) and value.lower() == "linux",
                    hint="tasks run on linux",
                ),
                **dict.fromkeys(("cpus", "memory_mb", "storage_mb"), _RESOURCES),
                **dict.fromkeys(("memory", "storage"), _RESOURCES),
                **dict.fromkeys(("gpus", "gpu_types", "tpu"), Key(hint="tasks get no GPU here")),
                "env": _CARRIED,
                "workdir": Key(hint="write it as WORKDIR of the Dockerfile"),
                **_NETWORK,
                "allow_internet": Key(
                    lambda value: value is False,
                    hint="only false means the same here; see harness.config.allowed_domains",
                ),
                "healthcheck": Key(),
                "mcp_servers": Key(),
                "skills_dir": Key(),
            }
        ),
        "agent": Table(keys={"timeout_sec": _CARRIED, "user": _USER, **_NETWORK}),
        "verifier": Table(
            keys={
                "timeout_sec": _CARRIED,
                "env": Key(),
                "user": _USER,
                "environment_mode": Key(
                    lambda value: value == "shared",
                    hint="checks run in the task's own image",
                ),
                "environment": Key(_never, "checks run in the task's own image"),
                "collect": Key(hint="nothing runs between the agent and the checks"),
                **_NETWORK,
            }
        ),
        "solution": Table(keys={"env": Key()}),
    },
)


def parse_toml(text: str) -> Mapping[str, object]:
    """Return the values of a file; dates, and numbers that are not finite, among them.

    Raises:
        PlainProblem: Not TOML, or too deeply nested values. Its reason has the line.
    """
    try:
        config = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PlainProblem(f"invalid TOML: {error}", None) from None
    except RecursionError:
        raise PlainProblem("invalid TOML: values are nested too deeply", None) from None
    except ValueError:
        raise PlainProblem("invalid TOML: a number has too many digits", None) from None
    if is_too_deep(config):
        raise PlainProblem(f"invalid TOML: more than {MAX_DEPTH} nested values", None)
    return config


def check_keys(config: Mapping[str, object]) -> KeyFindings:
    """Return what of a file is not carried over: nothing is dropped in silence.

    Source: harbor 2; the configuration classes of its release 0.25 (schema versions 1.0 to 1.4).
    """
    found = KeyFindings()
    _check(config, _TASK_TOML, "", found)
    return found


def _check(section: Mapping[str, object], table: Table, parent: str, found: KeyFindings) -> None:
    for key, value in section.items():
        name = f"{parent}{key}"
        if key in table.tables:
            _check_table(value, table.tables[key], name, found)
        elif key in table.keys:
            _check_value(value, table.keys[key], name, found)
        elif table.carried is None:
            known = table.keys.keys() | table.tables.keys()
            found.refused.append(f"{name} is an unknown key{did_you_mean([key], known)}")
        elif key not in table.carried:
            found.without_effect.append(name)


def _check_table(value: object, table: Table, name: str, found: KeyFindings) -> None:
    if isinstance(value, Mapping):
        _check(value, table, f"{name}.", found)
    else:
        found.refused.append(f"{name} must be a table")


def _check_value(value: object, key: Key, name: str, found: KeyFindings) -> None:
    if not key.accepts(value):
        hint = f": {key.hint}" if key.hint else ""
        found.refused.append(f"{name} has no counterpart here{hint}")
    elif key.has_no_effect:
        found.without_effect.append(name)


SERVICES = ("client", "main")
"""Names that Terminal-Bench and Harbor give to the container of the agent."""

WITHOUT_MEANING = frozenset({"image", "container_name", "stdin_open", "tty", "init", "pull_policy"})
"""Keys that say nothing about what the task is."""

LIMITS = frozenset({"cpus", "mem_limit", "deploy", "memswap_limit", "shm_size"})
"""Limits that a run sets for all its tasks alike."""

_DOCKERFILES = ("Dockerfile", "./Dockerfile")

HARNESS_VARIABLES = ("T_BENCH_", "TEST_DIR")


class Compose(NamedTuple):
    """What a compose file says.

    Args:
        problems: Why it cannot be mapped.
        remarks: What has no effect here.
    """

    variables: Mapping[str, str]
    problems: tuple[str, ...]
    remarks: tuple[str, ...] = ()


def read_compose(text: str) -> Compose:
    """Return what a compose file of a task folder says."""
    try:
        root = parse_yaml(text).value
    except PlainProblem as problem:
        return Compose({}, (problem.reason,))
    services = root.get("services") if isinstance(root, Mapping) else None
    if not isinstance(root, Mapping) or not isinstance(services, Mapping):
        return Compose({}, ("there are no services",))
    problems = [
        f"{key!r} has no counterpart here" for key in root if key not in {"services", "version"}
    ]
    names = list(services)
    if len(names) != 1 or names[0] not in SERVICES:
        listed = ", ".join(names) or "none"
        problems.append(
            f"only one service called {' or '.join(SERVICES)} can be mapped, not {listed}"
        )
        return Compose({}, tuple(problems))
    service = services[names[0]]
    if not isinstance(service, Mapping):
        return Compose({}, (*problems, f"services.{names[0]} must be a mapping"))
    variables, wrong = _variables(service.get("environment"))
    problems += [f"services.{names[0]}.{text}" for text in [*wrong, *_service_problems(service)]]
    remarks = [f"{key} has no effect" for key in service if key in LIMITS]
    return Compose(variables, tuple(problems), tuple(remarks))


def _service_problems(service: Mapping[str, object]) -> Iterator[str]:
    for key, value in service.items():
        if key == "build":
            yield from _build_problems(value)
        elif key == "volumes":
            yield from _volume_problems(value)
        elif key == "command":
            yield from _command_problems(value)
        elif key == "working_dir":
            yield "working_dir has no counterpart here; write it as WORKDIR of the Dockerfile"
        elif key != "environment" and key not in WITHOUT_MEANING | LIMITS:
            yield f"{key} has no counterpart here"


def _build_problems(value: object) -> Iterator[str]:
    build = {"context": value} if isinstance(value, str) else value
    if not isinstance(build, Mapping):
        yield "build must be a folder or a mapping"
        return
    if str(build.get("context", ".")).rstrip("/") not in {".", "", "${CONTEXT_DIR}"}:
        yield "build.context must be the folder of the compose file"
    if build.get("dockerfile", "Dockerfile") not in _DOCKERFILES:
        yield "build.dockerfile must be Dockerfile"
    for key in sorted(build.keys() - {"context", "dockerfile"}):
        yield f"build.{key} has no counterpart here"


def _volume_problems(value: object) -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        source = item.get("source") if isinstance(item, Mapping) else item
        if not str(source).startswith(("${T_BENCH_", "${HOST_", "${ENV_")):
            yield "volumes may only name the logs of the harness"


def _command_problems(value: object) -> Iterator[str]:
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    if "sleep infinity" not in text and "tail -f /dev/null" not in text:
        yield "command starts a program; containers of a run start the task's command only"


def _variables(value: object) -> tuple[dict[str, str], list[str]]:
    pairs: list[tuple[str, str | None]] = []
    if isinstance(value, Mapping):
        pairs = [(str(key), None if item is None else str(item)) for key, item in value.items()]
    elif isinstance(value, list):
        for item in value:
            name, given, text = str(item).partition("=")
            pairs.append((name, text if given else None))
    elif value is not None:
        return {}, ["environment must be a list or a mapping"]
    return literal_variables(pairs)


def literal_variables(
    pairs: list[tuple[str, str | None]],
) -> tuple[dict[str, str], list[str]]:
    """Return the variables with a fixed value, and what is wrong with the others.

    Args:
        pairs: Name and value; None takes the value from the machine of the harness.
    """
    known: dict[str, str] = {}
    wrong = []
    for name, text in pairs:
        if name.startswith(HARNESS_VARIABLES):
            continue
        if text is None or "$" in text:
            wrong.append(f"environment: {name} has no fixed value")
        else:
            known[name] = text
    return known, wrong


TERMINAL_BENCH = "task.yaml"
HARBOR = "task.toml"

COMPOSE_NAMES = ("docker-compose.yaml", "docker-compose.yml", "compose.yaml", "compose.yml")
AGENT_SECONDS = {TERMINAL_BENCH: 360.0, HARBOR: 600.0}
TEST_SECONDS = {TERMINAL_BENCH: 60.0, HARBOR: 600.0}
"""Time limits that the two formats have where a task names none."""

_KEPT = ("difficulty", "category", "tags")
_HARBOR_FILES = ("trajectory.json", ".harborignore", "steps")
"""Names of a Harbor task folder that change what agent or tests get."""


@dataclass(frozen=True, slots=True)
class TaskFolder:
    """What a task folder says.

    Args:
        name: Name of the folder; the row's id.
        labels: Difficulty, category and tags.
        image: Ready image of a task without a Dockerfile, or None.
        solution: Reference solution as a shell script, or None.
    """

    name: str
    folder: Path
    instruction: str
    agent_seconds: float
    test_seconds: float
    labels: Mapping[str, object]
    context: Path
    image: str | None
    variables: Mapping[str, str]
    script: Path
    solution: Path | None

    @property
    def tests(self) -> Path:
        """Folder of the tests."""
        return self.folder / "tests"

    @property
    def dockerfile(self) -> Path:
        """The image's Dockerfile."""
        return self.context / "Dockerfile"


def is_task_folder(folder: Path) -> bool:
    """Return whether a folder holds a task of a known format."""
    return (folder / TERMINAL_BENCH).is_file() or (folder / HARBOR).is_file()


def read_task(folder: Path, findings: ImportFindings) -> TaskFolder | None:
    """Return a task folder; None when its configuration cannot be read at all.

    Args:
        folder: Holds ``task.toml`` or ``task.yaml``.
        findings: Gets what is wrong.
    """
    if (folder / HARBOR).is_file():
        return _harbor(folder, findings)
    return _terminal_bench(folder, findings)


def text_of(path: Path, findings: ImportFindings) -> str | None:
    """Return the text of a file that must be there, or None."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        findings.refuse(path, f"cannot be read: {error.strerror or 'unknown reason'}")
    except UnicodeDecodeError:
        findings.refuse(path, "not UTF-8 text")
    return None


def _terminal_bench(folder: Path, findings: ImportFindings) -> TaskFolder | None:
    source = folder / TERMINAL_BENCH
    text = text_of(source, findings)
    if text is None:
        return None
    try:
        config = parse_yaml(text).value
    except PlainProblem as problem:
        findings.refuse(source, problem.reason, problem.line)
        return None
    if not isinstance(config, Mapping):
        findings.refuse(source, "must be a mapping", 1)
        return None
    if not _is_unicode(config):
        findings.refuse(source, "holds half of a surrogate pair (\\ud800 to \\udfff), no text")
        return None
    note = partial(findings.refuse, source)
    instruction = config.get("instruction") or _base_description(config.get("descriptions"))
    if not is_text(instruction):
        findings.refuse(source, "there is no instruction")
    solution = folder / "solution.sh"
    if (folder / "solution.yaml").is_file() and not solution.is_file():
        findings.remark(folder / "solution.yaml", "key strokes are no command; no oracle is made")
    return TaskFolder(
        name=folder.name,
        folder=folder,
        instruction=str(instruction),
        agent_seconds=_seconds(config, "max_agent_timeout_sec", AGENT_SECONDS[source.name], note),
        test_seconds=_seconds(config, "max_test_timeout_sec", TEST_SECONDS[source.name], note),
        labels={key: config[key] for key in _KEPT if key in config},
        context=folder,
        image=None,
        variables=_compose_variables(folder, findings),
        script=folder / "run-tests.sh",
        solution=solution if solution.is_file() else None,
    )


def _harbor(folder: Path, findings: ImportFindings) -> TaskFolder | None:
    source = folder / HARBOR
    text = text_of(source, findings)
    if text is None:
        return None
    try:
        config = parse_toml(text)
    except PlainProblem as problem:
        findings.refuse(source, problem.reason)
        return None
    note = partial(findings.refuse, source)
    _check_harbor(config, folder, findings)
    environment = _table(config, "environment")
    context = folder / "environment"
    image = environment.get("docker_image") if not (context / "Dockerfile").is_file() else None
    solution = folder / "solution" / "solve.sh"
    return TaskFolder(
        name=folder.name,
        folder=folder,
        instruction=text_of(folder / "instruction.md", findings) or "",
        agent_seconds=_seconds(_table(config, "agent"), "timeout_sec", AGENT_SECONDS[HARBOR], note),
        test_seconds=_seconds(
            _table(config, "verifier"), "timeout_sec", TEST_SECONDS[HARBOR], note
        ),
        labels=_harbor_labels(_table(config, "metadata"), note),
        context=context,
        image=image if isinstance(image, str) and image else None,
        variables={
            **_table_variables(environment, source, findings),
            **_compose_variables(context, findings),
        },
        script=folder / "tests" / "test.sh",
        solution=solution if solution.is_file() else None,
    )


def _check_harbor(config: Mapping[str, object], folder: Path, findings: ImportFindings) -> None:
    """Refuse what an import would lose."""
    source = folder / HARBOR
    keys = check_keys(config)
    for reason in keys.refused:
        findings.refuse(source, reason)
    if keys.without_effect:
        findings.remark(source, f"not kept, no effect on grading: {', '.join(keys.without_effect)}")
    has_dockerfile = (folder / "environment" / "Dockerfile").is_file()
    if _table(config, "environment").get("docker_image") and has_dockerfile:
        reason = "environment.docker_image stands beside a Dockerfile; keep one of them"
        findings.refuse(source, reason)
    for name in _HARBOR_FILES:
        if (folder / name).exists():
            findings.refuse(folder / name, "has no counterpart here")


def _base_description(descriptions: object) -> object:
    for item in descriptions if isinstance(descriptions, list) else []:
        if isinstance(item, Mapping) and item.get("key") == "base":
            return item.get("description")
    return None


def _table(config: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = config.get(name)
    return value if isinstance(value, Mapping) else {}


def _harbor_labels(
    metadata: Mapping[str, object], note: Callable[[str], None]
) -> Mapping[str, object]:
    """Return the labels that have a JSON form; TOML has dates and numbers without one."""
    problems = {key: plain_problem(metadata[key]) for key in _KEPT if key in metadata}
    for key, reason in problems.items():
        if reason:
            note(f"metadata.{key}: {reason}")
    return {key: metadata[key] for key, reason in problems.items() if not reason}


def _is_unicode(value: object) -> bool:
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _seconds(
    section: Mapping[str, object], key: str, default: float, note: Callable[[str], None]
) -> float:
    value = section.get(key, default)
    if isinstance(value, int | float) and is_positive(value):
        return float(value)
    note(f"{key} must be a positive number")
    return default


def _table_variables(
    environment: Mapping[str, object], source: Path, findings: ImportFindings
) -> dict[str, str]:
    given = _table(environment, "env")
    for name, value in given.items():
        if not isinstance(value, str):
            findings.refuse(source, f"environment.env.{name} must be a string")
    pairs = [(name, value) for name, value in given.items() if isinstance(value, str)]
    known, wrong = literal_variables([*pairs])
    for problem in wrong:
        findings.refuse(source, problem)
    return known


def _compose_variables(folder: Path, findings: ImportFindings) -> Mapping[str, str]:
    for name in COMPOSE_NAMES:
        path = folder / name
        if not path.is_file():
            continue
        text = text_of(path, findings)
        compose = read_compose(text or "")
        for problem in compose.problems:
            findings.refuse(path, problem)
        for remark in compose.remarks:
            findings.remark(path, remark)
        return compose.variables
    return {}
