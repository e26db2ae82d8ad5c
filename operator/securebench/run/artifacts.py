"""The port of artifacts: what goes between the Pods of a run and the operator, by name.

A name says what an artifact is, never where it is kept. A Pod builder declares for each container
what it takes in and what it gives out; ``pod`` asks the run's medium, which answers with volumes,
mounts and init containers. The operator's side is in ``controller.volume.artifacts``, with the
medium that there is today: a shared volume. A medium whose Pods mount no claim has an init
container that brings what a Pod takes, and a folder of the Pod for what it gives.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from securebench.protocol.supervise import CourierSpec


@dataclass(frozen=True, slots=True)
class TaskPrograms:
    """The programs of task containers, by the tree digest of their folder."""

    digest: str


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lanes of a task: a folder for each, which containers take one by one."""

    run_uid: str
    task: int


class Part(StrEnum):
    """What a launch leaves."""

    CANDIDATE = "candidate"
    """Sealed by the courier of a harness Pod."""
    PRODUCER = "producer"
    """The streams of a harness."""
    VERIFICATION = "verification"
    """The streams and reports of a verifier."""


@dataclass(frozen=True, slots=True)
class LaunchPart:
    """One part of what a launch left.

    Harness and verifier launches of the same number share a name: the first gives candidate and
    producer, the second verification.
    """

    run_uid: str
    task: int
    attempt: int
    launch: int
    part: Part


@dataclass(frozen=True, slots=True)
class GatewayFiles:
    """The configuration of a run's gateway, which the operator puts, and the gateway's reports."""

    run_uid: str


@dataclass(frozen=True, slots=True)
class MountProbe:
    """Nothing: canary Pods take it to show that a Pod can take what the medium has."""

    run_uid: str


Artifact = TaskPrograms | Lanes | LaunchPart | GatewayFiles | MountProbe


class Taken(NamedTuple):
    """What a container only reads.

    Attributes:
        artifact: Its name.
        path: Absolute path in the container.
        part: A file or folder of the artifact, relative; all of it when empty.
    """

    artifact: Artifact
    path: str
    part: str = ""


class Given(NamedTuple):
    """A folder that a container writes; what the operator put before is there.

    Attributes:
        artifact: Its name.
        path: Absolute folder in the container.
    """

    artifact: Artifact
    path: str


Mount = dict[str, object] | Taken | Given
"""A mount of a container: as Kubernetes has it, or an artifact that the medium makes one of."""


class Attached(NamedTuple):
    """What a Pod needs for its artifacts.

    Attributes:
        mounts: One for each artifact that was asked for, in that order.
        volumes: Of the Pod, before its own.
        init: Containers that run before every other one.
    """

    mounts: Sequence[dict[str, object]]
    volumes: Sequence[dict[str, object]]
    init: Sequence[dict[str, object]] = ()


class PodMedium(Protocol):
    """The side of a medium that Pods are built with; equal for equal settings."""

    def attach(self, wanted: Sequence[Taken | Given]) -> Attached:
        """Return what a Pod needs for the artifacts of its containers."""
        ...

    def courier(self, spec: CourierSpec, given: Sequence[Given]) -> CourierSpec:
        """Return the work of a courier, with what the medium needs of it.

        Args:
            spec: What it seals or collects.
            given: Where the courier puts it.
        """
        ...
