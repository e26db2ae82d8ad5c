"""Task folders of Terminal-Bench (task.yaml) and Harbor (task.toml)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from securebench.benchmark.reading.plain import PlainProblem, parse_yaml, plain_problem
from securebench.core.json_schema import is_positive, is_text
from securebench.importers.compose import literal_variables, read_compose
from securebench.importers.import_findings import ImportFindings
from securebench.importers.task_toml import check_keys, parse_toml

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
