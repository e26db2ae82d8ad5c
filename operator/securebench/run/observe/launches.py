"""Launches as ``get-launches`` lists them: their stages, what they took of their limits. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from securebench.json_values import number_at, object_at, objects_at, text_at
from securebench.run.observe.pods import MAIN_CONTAINERS
from securebench.run.state.entries import (
    ContainerEvidence,
    ContainerUsage,
    Noises,
    ResourceNoise,
    container_noise,
)
from securebench.run.state.history import LaunchEnd
from securebench.sizes import MIB

Fields = Mapping[str, object]


_STAGES_OF_POD = 4
"""So many of the stages are the Pod's, the first ones; the operator does the others."""


_ENDED_AT: Mapping[str, str] = {LaunchEnd.LOST: "ended_at", LaunchEnd.ENDED: "finished_at"}
"""Where a launch that was not captured has its end in seconds since the epoch, by ``end``."""


class Stage(NamedTuple):
    """A part of a launch.

    Args:
        name: What happened in it.
        begin: Seconds since the epoch, or None if unknown.
        end: Seconds since the epoch, or None if unknown.
    """

    name: str
    begin: float | None
    end: float | None


def launches_of(attempt: Fields) -> list[Fields]:
    """Return the launches of an attempt in their order."""
    return objects_at(attempt, "launches")


def launch_stages(launch: Fields, evidence: Fields) -> tuple[Stage, ...]:
    """Return the stages of a launch in their order."""
    facts = object_at(launch, "facts")
    containers = objects_at(evidence, "containers")
    main = next((one for one in containers if one.get("name") in MAIN_CONTAINERS), {})
    begun, ended = number_at(launch, "begun_at"), number_at(launch, "ended_at")
    created, scheduled = number_at(evidence, "created_at"), number_at(evidence, "scheduled_at")
    started = number_at(main, "started_at") or number_at(facts, "started_at")
    finished = number_at(main, "finished_at") or number_at(facts, "finished_at")
    captured = ended if launch.get("end") == LaunchEnd.CAPTURED else None
    judged = number_at(launch, "finished_at")
    return (
        Stage("queued", begun, created or None),
        Stage("scheduled", created or None, scheduled),
        Stage("images and containers", scheduled, started),
        Stage("ran", started, finished),
        Stage("captured", finished, captured),
        Stage("recorded", captured, judged),
    )


def stage_at_end(launch: Fields, evidence: Fields) -> Stage | None:
    """Return the stage that a launch was in when it was lost or ended with its attempt.

    Returns:
        The stage with that end; None if the Pod had got through, or nothing of it is known.
    """
    end = number_at(launch, _ENDED_AT.get(text_at(launch, "end"), ""))
    if end is None or not evidence:
        return None
    of_pod = launch_stages(launch, evidence)[:_STAGES_OF_POD]
    cut = (each for each in of_pod if each.begin is not None and each.end is None)
    return next((each._replace(end=end) for each in cut), None)


def launch_notes(attempts: Sequence[Fields]) -> Iterator[str]:
    """Yield how many launches were lost, by reason, and how many met their memory limit."""
    launches = [launch for attempt in attempts for launch in launches_of(attempt)]
    lost = Counter(text_at(one, "reason") for one in launches if one.get("end") == LaunchEnd.LOST)
    if lost:
        reasons = ", ".join(f"{reason} {count}" for reason, count in lost.most_common())
        yield f"launches lost: {lost.total()} of {len(launches)} ({reasons})"
    killed = sum(map(_met_memory_limit, launches))
    if killed:
        yield f"launches with something killed for memory: {killed} of {len(launches)}"
    noisy = sum(any(map(is_noisy, _containers(launch))) for launch in launches)
    if noisy:
        yield f"launches near their memory limit or throttled much: {noisy} of {len(launches)}"


def has_met_limit(launch: Fields) -> bool:
    """Whether something was killed for memory, or a container came near its limits."""
    return _has_memory_kills(launch) or any(map(_noise_of, _containers(launch)))


def _containers(launch: Fields) -> list[Fields]:
    return objects_at(object_at(launch, "evidence"), "containers")


def _met_memory_limit(launch: Fields) -> bool:
    return _has_memory_kills(launch) or any(map(is_killed_for_memory, _containers(launch)))


def _has_memory_kills(launch: Fields) -> bool:
    return bool(object_at(launch, "command").get("memory_kills"))


def _noise_of(container: Fields) -> Noises:
    """Return how a container met its limits."""
    return container_noise(_evidence(container))


def is_killed_for_memory(container: Fields) -> bool:
    """Whether the kubelet says that the container's memory limit ended it."""
    return ResourceNoise.MEMORY_KILLED in _noise_of(container)


def is_noisy(container: Fields) -> bool:
    """Whether a container came near its memory limit or was throttled much."""
    return bool(_noise_of(container) - {ResourceNoise.MEMORY_KILLED})


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
