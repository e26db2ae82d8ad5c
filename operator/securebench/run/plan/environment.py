"""In what one side of a task works: the agent's, or its verifier's.

A task's plan holds the agent's environment; each verification derives its own from it. The Pod
builders know nothing else of an image, of folders, of users and of limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from securebench.json_values import number_at, object_at, text_at
from securebench.sizes import MIB


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
        limits: What each of its containers may use.
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

    def inside(self, place: str) -> str:
        """Return the absolute path of a place in the workspace."""
        return f"{self.workspace.rstrip('/')}/{place}"


def in_image(
    wanted: Mapping[str, object], timeout_seconds: float | None, image: str = ""
) -> Environment:
    """Return an environment without a workspace, whose commands work on the image's own files.

    Args:
        wanted: As a task folder says it: ``image``, ``workdir``, ``user``, ``env``, ``cpus``,
            ``memory_mb`` and ``storage_mb``; what is absent is as the image or the run has it.
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
        env={name: str(value) for name, value in object_at(wanted, "env").items()},
        limits=EnvironmentLimits(
            number_at(wanted, "cpus"),
            _mebibytes(wanted, "memory_mb"),
            _mebibytes(wanted, "storage_mb"),
        ),
    )


def _name(user: object) -> str:
    return str(user) if isinstance(user, str | int) else ""


def _mebibytes(wanted: Mapping[str, object], key: str) -> int | None:
    value = number_at(wanted, key)
    return None if value is None else int(value * MIB)
