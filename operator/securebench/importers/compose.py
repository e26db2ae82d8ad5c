"""Compose files of task folders: one service whose container is an image and nothing else. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from securebench.benchmark.reading.plain import PlainProblem, parse_yaml

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
