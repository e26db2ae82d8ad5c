"""What a launch took of its limits, of containers as ``get-launches`` lists them."""

from __future__ import annotations

from collections.abc import Mapping

from securebench.json_values import object_at, text_at
from securebench.run.state.evidence import ContainerEvidence, ContainerUsage
from securebench.run.state.resource_noise import Noises, ResourceNoise, container_noise
from securebench.sizes import MIB

Fields = Mapping[str, object]


def noise_of(container: Fields) -> Noises:
    """Return how a container met its limits."""
    return container_noise(_evidence(container))


def is_killed_for_memory(container: Fields) -> bool:
    """Whether the kubelet says that the container's memory limit ended it."""
    return ResourceNoise.MEMORY_KILLED in noise_of(container)


def is_noisy(container: Fields) -> bool:
    """Whether a container came near its memory limit or was throttled much."""
    return bool(noise_of(container) - {ResourceNoise.MEMORY_KILLED})


def usage_text(container: Fields) -> tuple[str, ...]:
    """Return what is known of what a container took."""
    usage = _usage(container)
    peak, throttled = usage.memory_peak_bytes, usage.cpu_throttled
    words = [f"peak memory {peak / MIB:.1f} MiB"] if peak else []
    if throttled:
        words.append(f"CPU throttled in {throttled} of {usage.cpu_periods} periods")
    words += ["near its limits"] if is_noisy(container) else []
    return tuple(words)


def _evidence(container: Fields) -> ContainerEvidence:
    return ContainerEvidence(
        name=text_at(container, "name"),
        reason=text_at(container, "reason"),
        limits={"memory": text_at(object_at(container, "limits"), "memory")},
        usage=_usage(container),
    )


def _usage(container: Fields) -> ContainerUsage:
    usage = object_at(container, "usage")
    return ContainerUsage(
        memory_peak_bytes=_count(usage, "memory_peak_bytes"),
        cpu_periods=_count(usage, "cpu_periods"),
        cpu_throttled=_count(usage, "cpu_throttled"),
    )


def _count(fields: Fields, key: str) -> int:
    value = fields.get(key)
    return value if isinstance(value, int) else 0
