"""Evidence about a launch's Pod: what the cluster said of it, kept after the Pod is gone.

Only the journal holds it. Nothing is decided by it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from securebench.run.plan.keys import AttemptKey


@dataclass(frozen=True, slots=True)
class ContainerUsage:
    """What a container took, as our program in it read it from its cgroup; 0 is not known.

    Attributes:
        memory_peak_bytes: The most memory at once since its start, file cache included.
        cpu_periods: Periods of its CPU limit in which its command ran, or our program worked.
        cpu_throttled: Those of them in which the limit held it up.
    """

    memory_peak_bytes: int = 0
    cpu_periods: int = 0
    cpu_throttled: int = 0


@dataclass(frozen=True, slots=True)
class ContainerEvidence:
    """One container of a launch.

    Attributes:
        name: Its name.
        image: As the Pod names it.
        image_id: Resolved image with its digest, or empty if it never came.
        started_at: Seconds since the epoch, or None if it never started.
        finished_at: Its end, or None.
        exit_code: Exit code of its last end, or None.
        reason: The kubelet's reason of its end, or why it was waiting; else empty.
        message: The kubelet's message about a container that was waiting, truncated.
        restarts: How often it was started again.
        requests: Resources that the scheduler set aside, by name.
        limits: Resources that it could not exceed, by name.
        usage: What it took, or None where nobody said so.
    """

    name: str
    image: str = ""
    image_id: str = ""
    started_at: float | None = None
    finished_at: float | None = None
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    restarts: int = 0
    requests: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    usage: ContainerUsage | None = None


@dataclass(frozen=True, slots=True)
class LaunchEvidence:
    """The Pod of a launch when its end was journalled.

    Attributes:
        pod: Name of the Pod.
        node: Name of its node, or empty if it never got one.
        created_at: Seconds since the epoch.
        scheduled_at: When it got its node, or None.
        sandbox_at: When the node had its sandbox, or None.
        reason: The Pod's own reason such as ``Evicted``, or empty.
        message: Message of the Pod or of the scheduler, truncated.
        containers: In the order of the Pod's status.
    """

    pod: str
    node: str = ""
    created_at: float = 0.0
    scheduled_at: float | None = None
    sandbox_at: float | None = None
    reason: str = ""
    message: str = ""
    containers: tuple[ContainerEvidence, ...] = ()


EvidenceByAttempt = Mapping[AttemptKey, LaunchEvidence]
"""Evidence of the live launches of attempts; those without a Pod of their own are missing."""

NO_EVIDENCE: Final[EvidenceByAttempt] = MappingProxyType({})
