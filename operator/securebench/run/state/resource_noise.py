"""Which launches met the limits of their containers, whatever became of them: resource noise."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from securebench.run.api.field_types import quantity
from securebench.run.layout import COURIER
from securebench.run.state.entries import Entry, Finished, LaunchLost, Produced, Verified
from securebench.run.state.evidence import ContainerEvidence, ContainerUsage, LaunchEvidence

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
