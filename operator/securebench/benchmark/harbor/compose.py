"""The docker-compose.yaml of a Harbor folder: its services, and what a cluster cannot give them."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from securebench.benchmark.harbor.config import (
    MAIN,
    FindingKind,
    FolderFinding,
    refused,
    remark,
)
from securebench.benchmark.harbor.keys import COMPOSE_IGNORED, COMPOSE_READ, COMPOSE_REFUSED
from securebench.benchmark.reading.plain import KeyPath, PlainProblem, line_of, parse_yaml
from securebench.json_values import object_in, text_at

COMPOSE_FILE: Final = "docker-compose.yaml"

_HARBOR_FOLDER: Final = r"\$\{HOST_(VERIFIER_LOGS|AGENT_LOGS|ARTIFACTS)_PATH(:-[^}]*)?\}"
_LOGS: Final = re.compile(_HARBOR_FOLDER)
_LOGS_MOUNT: Final = re.compile(rf"{_HARBOR_FOLDER}:.*")
"""The log folders, which Harbor mounts by itself."""

_VOLUME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_.-]*")
_CONTEXT: Final = "${CONTEXT_DIR}"
"""Harbor's own name of the folder of the compose file."""

_BUILD_READ: Final = frozenset(
    {"context", "dockerfile", "dockerfile_inline", "args", "target", "labels", "platforms"}
)


@dataclass(frozen=True, slots=True)
class Service:
    """One container of a task.

    Attributes:
        image: Name as written, or empty.
        build: Whether an image is built for it.
        environment: Variables; None takes the value from the machine of the run.
        depends_on: Condition by service.
        settings: All keys as they are written.
    """

    name: str
    image: str
    build: bool
    environment: Mapping[str, str | None]
    depends_on: Mapping[str, str]
    has_healthcheck: bool
    settings: Mapping[str, object] = field(default_factory=dict, compare=False)


class ComposeReading(NamedTuple):
    """What a compose file says; without services when it cannot be read at all."""

    services: tuple[Service, ...]
    findings: tuple[FolderFinding, ...]


def read_compose(text: str, file: str) -> ComposeReading:
    """Return the services of a compose file and all that its author should know.

    Args:
        text: The file.
        file: Its path in the task folder.
    """
    try:
        root, lines = parse_yaml(text)
    except PlainProblem as problem:
        return ComposeReading((), (refused(file, "", problem.reason, problem.line or 1),))
    named = object_in(root).get("services")
    if not isinstance(root, Mapping) or not isinstance(named, Mapping) or not named:
        return ComposeReading((), (refused(file, "services", "must name at least one service", 1),))
    findings = [*_root_findings(root, file, lines)]
    services = []
    for name, value in named.items():
        place: KeyPath = ("services", name)
        if not isinstance(value, Mapping):
            findings.append(_refused(file, place, "must be a mapping", lines))
            continue
        findings += _service_findings(value, file, place, lines)
        services.append(_service(name, value))
    known = {service.name for service in services} | {MAIN}
    for service in services:
        for other in service.depends_on.keys() - known:
            reason = f"there is no service {other!r}"
            findings.append(_refused(file, ("services", service.name, "depends_on"), reason, lines))
    return ComposeReading(tuple(services), tuple(findings))


def _root_findings(
    root: Mapping[str, object], file: str, lines: Mapping[KeyPath, int]
) -> Iterator[FolderFinding]:
    for key, value in root.items():
        if key == "include":
            yield _refused(file, (key,), "write the services out in this file", lines)
        elif key in {"secrets", "configs"} and value:
            yield _refused(file, (key,), COMPOSE_REFUSED[key], lines)
        elif key in {"volumes", "networks"}:
            yield from _shared_findings(key, object_in(value), file, lines)
        elif key not in {"services", "version", "name"} and not key.startswith("x-"):
            yield remark(file, key, "unknown key, which is not read")


def _shared_findings(
    key: str, values: Mapping[str, object], file: str, lines: Mapping[KeyPath, int]
) -> Iterator[FolderFinding]:
    """Yield what volumes and networks need from outside of the task."""
    for name, value in values.items():
        settings = object_in(value)
        driver = text_at(settings, "driver")
        if settings.get("external"):
            yield _refused(file, (key, name), "must belong to the task, not be external", lines)
        elif settings.get("driver_opts") or driver not in {"", "local", "bridge"}:
            yield _refused(file, (key, name), "a driver of its own is not possible", lines)


def _service_findings(
    service: Mapping[str, object], file: str, place: KeyPath, lines: Mapping[KeyPath, int]
) -> Iterator[FolderFinding]:
    for key, value in service.items():
        here = (*place, key)
        if key in COMPOSE_REFUSED:
            if value not in (None, "", False, [], {}, "private"):
                yield _refused(file, here, COMPOSE_REFUSED[key], lines)
        elif key == "volumes":
            yield from _volume_findings(value, file, here, lines)
        elif key == "build":
            yield from _build_findings(value, file, here, lines)
        elif key == "network_mode":
            if value == "host" or str(value).startswith("container:"):
                yield _refused(file, here, "services reach only one another", lines)
        elif key in COMPOSE_IGNORED:
            reason = "it says nothing about what the task is"
            yield FolderFinding(FindingKind.IGNORED, file, ".".join(here), reason)
        elif key not in COMPOSE_READ and not key.startswith("x-"):
            yield remark(file, ".".join(here), "unknown key, which is not read")


def _volume_findings(
    value: object, file: str, place: KeyPath, lines: Mapping[KeyPath, int]
) -> Iterator[FolderFinding]:
    for item in value if isinstance(value, list) else [value]:
        if not _is_volume(item):
            reason = "a folder of the machine cannot be mounted; put the files into the image"
            yield _refused(file, place, reason, lines)


def _is_volume(item: object) -> bool:
    """Return whether a mount is a volume of the task, or the log folder that Harbor mounts."""
    if isinstance(item, Mapping):
        source = text_at(item, "source")
        if _LOGS.fullmatch(source):
            return True
        is_known = item.get("type", "volume") in {"volume", "tmpfs"}
        return is_known and (not source or bool(_VOLUME.fullmatch(source)))
    text = str(item)
    source, colon, _ = text.partition(":")
    if not colon:
        return text.startswith("/")
    return bool(_VOLUME.fullmatch(source) or _LOGS_MOUNT.fullmatch(text))


def _build_findings(
    value: object, file: str, place: KeyPath, lines: Mapping[KeyPath, int]
) -> Iterator[FolderFinding]:
    build = value if isinstance(value, Mapping) else {"context": value}
    for key in sorted(build.keys() - _BUILD_READ):
        reason = "an image is built from the files beside this one alone"
        yield _refused(file, (*place, key), reason, lines)
    context = str(build.get("context") or ".")
    folder = "." if context.rstrip("/") == _CONTEXT else context
    dockerfile = str(build.get("dockerfile") or "Dockerfile")
    if not _is_inside(folder) or not _is_inside(posixpath.join(folder, dockerfile)):
        yield _refused(file, place, "must not leave the folder of this file", lines)


def _is_inside(path: str) -> bool:
    """Return whether a path is relative, without variables and URLs, and stays in its folder."""
    return not any(sign in path for sign in ("$", ":", "\\", "\0")) and not (
        path.startswith(("/", "~")) or posixpath.normpath(path).split("/")[0] == ".."
    )


def _refused(file: str, place: KeyPath, reason: str, lines: Mapping[KeyPath, int]) -> FolderFinding:
    return refused(file, ".".join(place), reason, line_of(place, lines))


def _service(name: str, value: Mapping[str, object]) -> Service:
    return Service(
        name=name,
        image=text_at(value, "image"),
        build=bool(value.get("build")),
        environment=_variables(value.get("environment")),
        depends_on=_conditions(value.get("depends_on")),
        has_healthcheck=bool(object_in(value.get("healthcheck"))),
        settings=value,
    )


def _variables(value: object) -> Mapping[str, str | None]:
    if isinstance(value, Mapping):
        return {name: None if item is None else str(item) for name, item in value.items()}
    pairs = [str(item).partition("=") for item in value] if isinstance(value, list) else []
    return {name: text if given else None for name, given, text in pairs}


def _conditions(value: object) -> Mapping[str, str]:
    if isinstance(value, Mapping):
        given = {name: text_at(object_in(item), "condition") for name, item in value.items()}
        return {name: condition or "service_started" for name, condition in given.items()}
    return {str(name): "service_started" for name in value} if isinstance(value, list) else {}
