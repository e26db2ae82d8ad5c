"""Journal entries: facts about a run, in the words of its journal.

Evidence is what the cluster reported of a launch's Pod, kept after the Pod is gone. Only the
journal holds it, and no decision reads it. Resource noise, at the end, marks the launches that met
the limits of their containers, whatever became of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from securebench.run.api.field_types import quantity
from securebench.run.layout import COURIER
from securebench.run.plan.model import AttemptKey, LaunchKey
from securebench.run.state.attempts import (
    Finish,
    HarnessResult,
    Lost,
    ProducerNetwork,
    Usage,
    VerifierResult,
)


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


@dataclass(frozen=True, slots=True)
class Continued:
    """The journal continues in a file of the next leader, of which this is the first line.

    Attributes:
        epoch: Epoch of the leader.
        holder: Who that is: ``<Pod name>_<Pod uid>``.
        previous: Epoch in the name of the file that this one continues; 0: ``journal.jsonl``.
        size_bytes: How many bytes of that file count.
    """

    epoch: int
    holder: str
    previous: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class RunBound:
    """First entry: the run and the plan that this journal belongs to."""

    run_uid: str
    plan_digest: str


@dataclass(frozen=True, slots=True)
class Opened:
    """An operator process took over the journal.

    Attributes:
        epoch: How often the journal was opened, from 1; an operator may do it more than once.
        at: Seconds since the Unix epoch.
    """

    epoch: int
    at: float


@dataclass(frozen=True, slots=True)
class IsolationResult:
    """Result of the isolation canary.

    Attributes:
        verified: Whether the network policy is enforced.
        user_namespaces: Whether launch Pods get a user namespace.
        message: One plain sentence.
        declared: Whether the run skipped the canary (``isolation.require: Declared``).
        sandboxed: Whether the runtime is a sandbox, if the administrator requires one.
        node_reachable: Whether the canary reached the node.
    """

    verified: bool
    user_namespaces: bool
    message: str
    declared: bool = False
    sandboxed: bool = True
    node_reachable: bool = False


@dataclass(frozen=True, slots=True)
class LaunchBegun:
    """A launch begins; written before its Pod is created.

    Attributes:
        at: Seconds since the epoch.
        batch: First launch of the batch that shares one Pod; None for a launch with its own Pod.
    """

    launch: LaunchKey
    at: float
    batch: LaunchKey | None = None

    @property
    def key(self) -> AttemptKey:
        """The attempt that it is about."""
        return self.launch.attempt_key


@dataclass(frozen=True, slots=True)
class LaunchLost:
    """A launch ended without a conclusive result.

    Attributes:
        evidence: Its Pod as it was last seen, or None where it was never or another entry has it.
    """

    lost: Lost
    evidence: LaunchEvidence | None = None

    @property
    def key(self) -> AttemptKey:
        """The attempt that it is about."""
        return self.lost.launch.attempt_key


@dataclass(frozen=True, slots=True)
class Produced:
    """The harness launch ended and was captured.

    Attributes:
        at: Seconds since the epoch.
        evidence: Its Pod.
    """

    key: AttemptKey
    production: HarnessResult
    at: float = 0.0
    evidence: LaunchEvidence | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """The verifier launch ended and was captured.

    Attributes:
        at: Seconds since the epoch.
        evidence: Its Pod; None where another launch of the batch has it.
    """

    key: AttemptKey
    verification: VerifierResult
    at: float = 0.0
    evidence: LaunchEvidence | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """The attempt has its record.

    Attributes:
        record_sha256: Hex digest of the record's line without its newline.
        at: Seconds since the epoch.
        usage: Model provider usage of the launch that this entry ends, as far as it is known; zero
            if no launch was running.
        evidence: Pod of the launch that this entry ends; None if no launch was running, where no
            Pod of it was seen, and where another launch of the batch has it.
    """

    finish: Finish
    record_sha256: str
    at: float
    usage: Usage = field(default_factory=Usage)
    evidence: LaunchEvidence | None = None

    @property
    def key(self) -> AttemptKey:
        """The attempt that it is about."""
        return self.finish.key


@dataclass(frozen=True, slots=True)
class Kept:
    """A resumed run took over the record of an earlier run.

    Attributes:
        record_sha256: Hex digest of the record's line.
        run_uid: The earlier run.
    """

    finish: Finish
    record_sha256: str
    run_uid: str

    @property
    def key(self) -> AttemptKey:
        """The attempt that it is about."""
        return self.finish.key


@dataclass(frozen=True, slots=True)
class CandidateKept:
    """A regrade took over a sealed candidate of an earlier run, to verify it again.

    Attributes:
        production: Production of the launch that sealed it; its files lie in this run's folder.
        at: When that launch was captured, seconds since the epoch, or 0.
        usage: Model provider usage of the attempt until then.
        network: Network of the run that produced it.
        run_uid: The run that is graded again.
    """

    key: AttemptKey
    production: HarnessResult
    at: float
    usage: Usage
    network: ProducerNetwork
    run_uid: str


@dataclass(frozen=True, slots=True)
class RunEnded:
    """Last entry: the run has ended.

    Attributes:
        reason: Reason of the condition Succeeded.
        message: One plain sentence.
        at: Seconds since the epoch.
    """

    reason: str
    message: str
    at: float


AttemptEntry = LaunchBegun | LaunchLost | Produced | Verified | Finished | Kept | CandidateKept
"""Entries that advance one attempt."""


Entry = Continued | RunBound | Opened | IsolationResult | AttemptEntry | RunEnded


OOM_REASON = "OOMKilled"
"""The kubelet's reason of a container that its memory limit ended."""

MEMORY = "memory"
"""The name of the limit that is judged."""

NEAR_LIMIT = 0.95
"""Share of the memory limit from which a peak counts as near; file cache is part of it."""

MUCH_THROTTLED = 0.25
"""Share of the periods of a CPU limit in which a container that was throttled much was held up."""

FEWEST_PERIODS = 10
"""Periods of which a share says something: one second of work, as Kubernetes sets them."""


class ResourceNoise(StrEnum):
    """How a launch met a limit; one may have met several."""

    MEMORY_KILLED = "memory_killed"
    NEAR_MEMORY_LIMIT = "near_memory_limit"
    CPU_THROTTLED = "cpu_throttled"


Noises = frozenset[ResourceNoise]


def container_noise(container: ContainerEvidence) -> Noises:
    """Return how a container met its limits.

    What a courier takes is no noise: it works when the work to judge is done, and the files that it
    copies fill its memory up to the limit.
    """
    return frozenset(_noises(container))


def entry_noise(entry: Entry) -> Noises:
    """Return how the launch that an entry ends met its limits; a Pod of a batch counts once."""
    if not isinstance(entry, LaunchLost | Produced | Verified | Finished):
        return frozenset()
    containers = entry.evidence.containers if entry.evidence is not None else ()
    found = frozenset[ResourceNoise]().union(*map(container_noise, containers))
    return found | {ResourceNoise.MEMORY_KILLED} if _memory_kills(entry) else found


def noisy_part(evidence: LaunchEvidence | None) -> LaunchEvidence | None:
    """Return what of a Pod's evidence tells that it met a limit; None where nothing does."""
    if evidence is None:
        return None
    noisy = tuple(_judged(each) for each in evidence.containers if container_noise(each))
    return LaunchEvidence(evidence.pod, containers=noisy) if noisy else None


def _judged(container: ContainerEvidence) -> ContainerEvidence:
    """Return what of a container its noise is judged by; a run may have many."""
    limits = {MEMORY: container.limits[MEMORY]} if MEMORY in container.limits else {}
    return ContainerEvidence(
        container.name, reason=container.reason, limits=limits, usage=container.usage
    )


def _noises(container: ContainerEvidence) -> Iterator[ResourceNoise]:
    if container.reason == OOM_REASON:
        yield ResourceNoise.MEMORY_KILLED
    usage = container.usage or ContainerUsage()
    if container.name == COURIER:
        return
    if usage.memory_peak_bytes and _is_near(usage.memory_peak_bytes, container):
        yield ResourceNoise.NEAR_MEMORY_LIMIT
    is_long = usage.cpu_periods >= FEWEST_PERIODS
    if is_long and usage.cpu_throttled >= MUCH_THROTTLED * usage.cpu_periods:
        yield ResourceNoise.CPU_THROTTLED


def _is_near(peak_bytes: int, container: ContainerEvidence) -> bool:
    try:
        limit = float(quantity(container.limits.get(MEMORY, "")))
    except ValueError:
        return False
    return limit > 0 and peak_bytes >= NEAR_LIMIT * limit


def _memory_kills(entry: LaunchLost | Produced | Verified | Finished) -> int:
    match entry:
        case Produced(production=result) | Verified(verification=result):
            return result.command.memory_kills
        case _:
            return 0
