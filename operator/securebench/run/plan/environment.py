"""In what one side of a task works: the agent's, or its verifier's.

A task's plan holds the agent's environment; each verification derives its own from it. The Pod
builders know nothing else of an image, of folders, of users and of limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from securebench.json_values import number_at, object_at, objects_at, text_at
from securebench.sizes import MIB

HEALTHCHECK: Final = "healthcheck"
"""Phase of supervise in which a task's own check runs, before anything of the agent."""


@dataclass(frozen=True, slots=True)
class EnvironmentLimits:
    """What a container may use; None: as the run says.

    Attributes:
        cpus: Processors, also parts of one.
        memory_bytes: Memory.
        storage_bytes: What may be written to the image's file system.
    """

    cpus: float | None = None
    memory_bytes: int | None = None
    storage_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class ReadyCheck:
    """A command that succeeds when a service is ready.

    Attributes:
        command: The argv.
        timeout_seconds: Of one try.
        patience_seconds: For the first success.
    """

    command: tuple[str, ...]
    timeout_seconds: float
    patience_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentService:
    """A further container of a side, which serves its commands.

    Attributes:
        name: Host name by which the commands and the other services find it, on the loopback.
        entrypoint: Replaces that of the image; None keeps it.
        command: Replaces that of the image; None keeps it.
        workdir: Absolute; empty: the image's own.
        user: Number; None: the image's own user.
        env: Its variables, besides those of the image; nobody else has them.
        ready: Succeeds before the next service and the commands start; None where nothing says it.
    """

    name: str
    image: str
    entrypoint: tuple[str, ...] | None = None
    command: tuple[str, ...] | None = None
    workdir: str = ""
    user: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    limits: EnvironmentLimits = EnvironmentLimits()
    ready: ReadyCheck | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One side of a task.

    Attributes:
        image: Image of its containers, as written.
        workspace: Absolute folder that is a volume of the Pod; empty: there is none, and commands
            work on the image's own files.
        workdir: Absolute working folder of its commands; empty: the image's own.
        timeout_seconds: Time limit of its command, or None.
        starts_filled: Whether the workspace begins with what the image has there.
        writable_root: Whether its commands may change the image's own files.
        user: Whom its commands run as, a name of the image or a number; empty: the image's own.
        env: Variables of its commands, besides those of the image.
        limits: What the container of its commands may use.
        services: Containers that start before its commands, in this order.
        check: Command that has to succeed before its command begins; empty: none.
        check_seconds: Time limit of the check.
    """

    image: str
    workspace: str
    workdir: str
    timeout_seconds: float | None = None
    starts_filled: bool = False
    writable_root: bool = False
    user: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    limits: EnvironmentLimits = EnvironmentLimits()
    services: tuple[EnvironmentService, ...] = ()
    check: tuple[str, ...] = ()
    check_seconds: float = 0.0

    def inside(self, place: str) -> str:
        """Return the absolute path of a place in the workspace."""
        return f"{self.workspace.rstrip('/')}/{place}"


def in_image(
    wanted: Mapping[str, object], timeout_seconds: float | None, image: str = ""
) -> Environment:
    """Return an environment without a workspace, whose commands work on the image's own files.

    Args:
        wanted: As a task folder says it: ``image``, ``workdir``, ``user``, ``env``, ``cpus``,
            ``memory_mb``, ``storage_mb``, ``check``, ``check_seconds``, and ``services`` with the
            same and ``name``, ``entrypoint``, ``command`` and ``healthcheck``; what is absent is as
            the image or the run has it.
        timeout_seconds: Time limit of its command, or None.
        image: Used where ``wanted`` names none.
    """
    return Environment(
        image=text_at(wanted, "image") or image,
        workspace="",
        workdir=text_at(wanted, "workdir"),
        timeout_seconds=timeout_seconds,
        writable_root=True,
        user=_name(wanted.get("user")),
        env=_variables(wanted),
        limits=_limits(wanted),
        services=tuple(map(_service, objects_at(wanted, "services"))),
        check=_words(wanted.get("check")) or (),
        check_seconds=number_at(wanted, "check_seconds") or 0.0,
    )


def _service(wanted: Mapping[str, object]) -> EnvironmentService:
    user, check = number_at(wanted, "user"), object_at(wanted, "healthcheck")
    return EnvironmentService(
        name=text_at(wanted, "name"),
        image=text_at(wanted, "image"),
        entrypoint=_words(wanted.get("entrypoint")),
        command=_words(wanted.get("command")),
        workdir=text_at(wanted, "workdir"),
        user=None if user is None else int(user),
        env=_variables(wanted),
        limits=_limits(wanted),
        ready=None if not check else _ready(check),
    )


def _ready(check: Mapping[str, object]) -> ReadyCheck:
    numbers = (
        number_at(check, key)
        for key in ("timeout_seconds", "interval_seconds", "retries", "start_period_seconds")
    )
    timeout, interval, retries, begin = (number or 0.0 for number in numbers)
    return ReadyCheck(_words(check.get("command")) or (), timeout, begin + interval * retries)


def _words(value: object) -> tuple[str, ...] | None:
    return tuple(map(str, value)) if isinstance(value, list | tuple) else None


def _variables(wanted: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in object_at(wanted, "env").items()}


def _limits(wanted: Mapping[str, object]) -> EnvironmentLimits:
    return EnvironmentLimits(
        number_at(wanted, "cpus"),
        _mebibytes(wanted, "memory_mb"),
        _mebibytes(wanted, "storage_mb"),
    )


def _name(user: object) -> str:
    return str(user) if isinstance(user, str | int) else ""


def _mebibytes(wanted: Mapping[str, object], key: str) -> int | None:
    value = number_at(wanted, key)
    return None if value is None else int(value * MIB)
