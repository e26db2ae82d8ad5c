"""The services of a compose file as containers of a task's Pod, and what those cannot be.

All containers of the Pod have one network: a service is found by its name, and two services cannot
have one port. Whatever a service says that its container would not have is refused.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Final, NamedTuple

from securebench.benchmark.harbor.compose import COMPOSE_FILE, Service
from securebench.benchmark.harbor.config import MAIN, FolderFinding, refused
from securebench.benchmark.harbor.keys import COMPOSE_IGNORED
from securebench.json_values import number_at, object_at, object_in, text_at, text_in
from securebench.protocol.gateway import PROVIDER_PORT, PROXY_NAME, PROXY_PORT
from securebench.sizes import GIB, KIB, MIB

PLACE: Final = f"environment/{COMPOSE_FILE}"

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")
"""Of a host and of a container."""

_TAKEN: Final = {PROXY_PORT: "the egress proxy", PROVIDER_PORT: "the model provider"}
"""Ports that the Pod has for the run's gateway."""

_OF_MAIN: Final = frozenset({"build", "image", "command", "depends_on", "networks", "volumes"})
_RUN: Final = frozenset(
    {"image", "build", "command", "entrypoint", "environment", "depends_on", "healthcheck", "ports",
     "expose", "user", "working_dir", "cpus", "mem_limit", "deploy", "volumes"}
)  # fmt: skip
_WITHOUT_EFFECT: Final = COMPOSE_IGNORED | {
    "networks", "restart", "stop_grace_period", "stop_signal", "init", "platform"
}  # fmt: skip
_IDLE: Final = re.compile(r".*\bsleep (infinity|\d+)|.*tail -f /dev/null")
"""What ``main`` does in a compose file; its commands come from elsewhere."""

_DURATION: Final = re.compile(
    r"(?:(?P<h>[\d.]+)h)?(?:(?P<m>[\d.]+)m)?(?:(?P<s>[\d.]+)s)?(?:(?P<ms>[\d.]+)ms)?"
)
_SECONDS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_SIZE: Final = re.compile(r"([\d.]+)\s*([bkmg]?)b?", re.IGNORECASE)
_UNITS: Final = {"": 1, "b": 1, "k": KIB, "m": MIB, "g": GIB}
_PORT: Final = re.compile(r"(?:.*:)?(\d+)(?:/tcp)?")

_EVERY: Final = {"timeout": 30.0, "interval": 30.0, "start_period": 0.0}
"""Seconds of a health check that does not say them."""

_RETRIES: Final = 3


class ServedReading(NamedTuple):
    """The services of a task as its Pods have them, in the order of their start."""

    services: tuple[Mapping[str, object], ...]
    findings: tuple[FolderFinding, ...]


class _RefusedKeyError(Exception):
    def __init__(self, key: str, reason: str) -> None:
        super().__init__(reason)
        self.key = key


def served(services: Sequence[Service]) -> ServedReading:
    """Return how the services of a compose file run, and what stops a run of them."""
    findings: list[FolderFinding] = []
    found: dict[str, Mapping[str, object]] = {}
    for service in services:
        try:
            _check_conditions(service)
            if service.name == MAIN:
                _check_main(service)
            else:
                found[service.name] = _container(service, services)
        except _RefusedKeyError as error:
            key = f"services.{service.name}.{error.key}".rstrip(".")
            findings.append(refused(PLACE, key, str(error)))
    findings += _collisions(services)
    try:
        order = list(_order(services))
    except CycleError:
        findings.append(refused(PLACE, "services", "services depend on one another in a circle"))
        order = []
    return ServedReading(tuple(found[name] for name in order if name in found), tuple(findings))


def _order(services: Sequence[Service]) -> Iterable[str]:
    sorter = TopologicalSorter({each.name: tuple(each.depends_on) for each in services})
    return sorter.static_order()


def _check_conditions(service: Service) -> None:
    for name, condition in service.depends_on.items():
        if name == MAIN:
            raise _RefusedKeyError("depends_on", f"{MAIN} starts behind all services")
        if condition not in {"service_started", "service_healthy"}:
            raise _RefusedKeyError(f"depends_on.{name}", f"{condition} is not possible")


def _check_main(service: Service) -> None:
    for key, value in service.settings.items():
        if key in _WITHOUT_EFFECT or key.startswith("x-") or value in (None, [], {}, ""):
            continue
        if key == "command" and _IDLE.fullmatch(" ".join(_words(value, key) or ())):
            continue
        if key not in _OF_MAIN - {"command"}:
            raise _RefusedKeyError(key, f"say it of {MAIN} in task.toml or in its image")
        if key == "image" and not text_in(value).startswith("${"):
            raise _RefusedKeyError(key, "name the image by environment.docker_image in task.toml")
    _check_volumes(service, ())


def _container(service: Service, services: Sequence[Service]) -> dict[str, object]:
    settings = service.settings
    if not _NAME.fullmatch(service.name) or service.name in {"localhost", PROXY_NAME}:
        raise _RefusedKeyError("", "its name must be one of a host: lower case, digits and '-'")
    for key, value in settings.items():
        is_known = key in _RUN | _WITHOUT_EFFECT or key.startswith("x-")
        if not is_known and value not in (None, False, [], {}, ""):
            raise _RefusedKeyError(key, "containers of a Pod cannot have it")
    if not service.image:
        raise _RefusedKeyError("build", "name a ready image by `image`")
    networks = object_at(settings, "networks")
    if any(object_at(networks, name).get("aliases") for name in networks):
        raise _RefusedKeyError("networks", "a service is found by its own name alone")
    _check_volumes(service, services)
    found = {
        "name": service.name,
        "image": _plain(service.image, "image"),
        "entrypoint": _words(settings.get("entrypoint"), "entrypoint"),
        "command": _words(settings.get("command"), "command"),
        "workdir": _plain(text_at(settings, "working_dir"), "working_dir"),
        "user": _user(settings.get("user")),
        "env": _variables(service),
        **_limits(settings),
        "healthcheck": _check(service, services),
    }
    return {key: value for key, value in found.items() if value not in (None, "", {})}


def _plain(text: str, key: str) -> str:
    """Return a text of a compose file without its variables of the machine."""
    if "$" in text.replace("$$", ""):
        raise _RefusedKeyError(key, "variables of the machine are not filled in; write the value")
    return text.replace("$$", "$")


def _words(value: object, key: str) -> list[str] | None:
    if value is None:
        return None
    if isinstance(value, list):
        return [_plain(str(each), key) for each in value]
    try:
        return shlex.split(_plain(str(value), key))
    except ValueError:
        raise _RefusedKeyError(key, "its quotes do not match") from None


def _user(value: object) -> int | None:
    if value in (None, ""):
        return None
    text = "0" if value == "root" else str(value)
    if not text.isdecimal():
        raise _RefusedKeyError("user", "write the number of the user; its group is the image's")
    return int(text)


def _variables(service: Service) -> dict[str, str]:
    found = {}
    for name, value in service.environment.items():
        if value is None:
            reason = f"a run cannot give {name} from the machine; write its value"
            raise _RefusedKeyError("environment", reason)
        found[name] = _plain(value, "environment")
    return found


def _limits(settings: Mapping[str, object]) -> dict[str, object]:
    deploy = object_at(settings, "deploy")
    bounds = object_at(object_at(deploy, "resources"), "limits")
    if deploy.keys() - {"resources", "replicas"} or deploy.get("replicas", 1) != 1:
        raise _RefusedKeyError("deploy", "one container with resources.limits is possible")
    cpus = settings.get("cpus", bounds.get("cpus"))
    memory = settings.get("mem_limit", bounds.get("memory"))
    try:
        found: dict[str, object] = {} if cpus is None else {"cpus": float(str(cpus))}
    except ValueError:
        raise _RefusedKeyError("cpus", "must be a number") from None
    if memory is None:
        return found
    size = _SIZE.fullmatch(str(memory))
    if size is None:
        raise _RefusedKeyError("mem_limit", "must be a size, 512m for one")
    return {**found, "memory_mb": float(size[1]) * _UNITS[size[2].lower()] / MIB}


def _check(service: Service, services: Sequence[Service]) -> dict[str, object] | None:
    check = object_at(service.settings, "healthcheck")
    test = check.get("test")
    words = test if isinstance(test, list) else ["CMD-SHELL", test] if test else []
    if check.get("disable") or words == ["NONE"]:
        words = []
    elif check and not words:
        raise _RefusedKeyError("healthcheck", "write its `test`: that of the image is not known")
    if not words:
        _check_waiting(service, services)
        return None
    command = [_plain(str(each), "healthcheck") for each in words[1:]]
    if words[0] == "CMD-SHELL":
        command = ["/bin/sh", "-c", *command]
    elif words[0] != "CMD" or not command:
        raise _RefusedKeyError("healthcheck.test", "must begin with CMD, CMD-SHELL or NONE")
    seconds = {
        f"{key}_seconds": _seconds(check.get(key), key, default) for key, default in _EVERY.items()
    }
    retries = number_at(check, "retries")
    return {"command": command, **seconds, "retries": _RETRIES if retries is None else retries}


def _check_waiting(service: Service, services: Sequence[Service]) -> None:
    for other in services:
        if other.depends_on.get(service.name) == "service_healthy":
            reason = f"write one with its `test`: {other.name} waits until the service is healthy"
            raise _RefusedKeyError("healthcheck", reason)


def _seconds(value: object, key: str, default: float) -> float:
    if value is None:
        return default
    parts = _DURATION.fullmatch(str(value))
    if parts is None or not any(parts.groups()):
        raise _RefusedKeyError(f"healthcheck.{key}", "must be a duration, 1m30s for one")
    return sum(float(text) * _SECONDS[unit] for unit, text in parts.groupdict().items() if text)


def _check_volumes(service: Service, services: Sequence[Service]) -> None:
    """A volume of one service alone is a folder of its file system, as long as the Pod lives."""
    if service.name == MAIN and _volumes(service):
        raise _RefusedKeyError("volumes", f"{MAIN} can have no volume")
    for other in services:
        shared = () if other is service else sorted(_volumes(service) & _volumes(other))
        if shared:
            raise _RefusedKeyError("volumes", f"{shared[0]} cannot be shared with {other.name}")


def _volumes(service: Service) -> set[str]:
    """Return the names of a service's volumes; mounts of the machine are refused before."""
    value = service.settings.get("volumes")
    items = value if isinstance(value, list) else []
    sources = (
        text_at(object_in(each), "source")
        if isinstance(each, Mapping)
        else str(each).partition(":")[0]
        for each in items
    )
    return {each for each in sources if each and not each.startswith(("/", "$"))}


def _collisions(services: Sequence[Service]) -> Iterator[FolderFinding]:
    owners: dict[int, str] = dict(_TAKEN)
    for service in services:
        own = dict.fromkeys(_ports(service))
        for port in own:
            if port is None or port in owners:
                reason = (
                    "must be single ports of TCP"
                    if port is None
                    else f"{port} is also that of {owners[port]}, in the same network"
                )
                yield refused(PLACE, f"services.{service.name}.ports", reason)
        owners |= {port: service.name for port in own if port is not None and port not in owners}


def _ports(service: Service) -> Iterator[int | None]:
    """Yield the ports of a container; None for what is no single port of TCP."""
    for key in ("ports", "expose"):
        value = service.settings.get(key)
        for item in value if isinstance(value, list) else []:
            target = object_in(item).get("target", item)
            found = _PORT.fullmatch(str(target))
            yield None if found is None else int(found[1])
