"""What the cluster did to the attempts of a run: waiting, losses, memory, differing nodes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

from securebench.analysis.results import Fields, ResultSet
from securebench.core.json_values import object_at, text_at
from securebench.run.observe.launches import launch_notes, launch_stages, launches_of

_UNKNOWN_NODE = "unknown"


class StageTime(NamedTuple):
    """How long a stage of launches took.

    Args:
        launches: That have times for it.
        median: In seconds.
        most: In seconds.
    """

    name: str
    launches: int
    median: float
    most: float


class NodeTime(NamedTuple):
    """Launches on one node; ``median`` is of the seconds that their main container ran."""

    name: str
    launches: int
    median: float | None


class Noise(NamedTuple):
    """Resource noise of a run.

    Args:
        repeated: Attempts that needed more launches than others of their family.
        killed: Attempts with a process that was killed at its memory limit.
        notes: What the summary and the launches say of losses and limits, a sentence each.
        stages: In the order of a launch; empty without launches.
        nodes: By name; empty without launches.
    """

    repeated: int
    killed: int
    notes: tuple[str, ...]
    stages: tuple[StageTime, ...]
    nodes: tuple[NodeTime, ...]


def noise(results: ResultSet) -> Noise:
    """Collect the noise of a run from its records and, where there are, its launches."""
    least: dict[str, int] = {}
    begun = [entry for entry in results.entries if entry.launches]
    for entry in begun:
        if entry.passed is not None:
            least[entry.family] = min(entry.launches, least.get(entry.family, entry.launches))
    launches = [launch for attempt in results.launches for launch in launches_of(attempt)]
    return Noise(
        repeated=sum(entry.launches > least.get(entry.family, entry.launches) for entry in begun),
        killed=sum(entry.memory_kills > 0 for entry in results.entries),
        notes=(*_summary_notes(results), *launch_notes(results.launches)),
        stages=tuple(_stages(launches)),
        nodes=tuple(_nodes(launches)),
    )


def _summary_notes(results: ResultSet) -> Iterator[str]:
    noisy = ", ".join(f"{how} {count}" for how, count in results.noisy_launches.items())
    if noisy:
        yield f"of all launches, also those that passed, met a limit: {noisy}"


def _stages(launches: Sequence[Fields]) -> Iterator[StageTime]:
    seconds: dict[str, list[float]] = defaultdict(list)
    for launch in launches:
        for stage in launch_stages(launch, object_at(launch, "evidence")):
            if stage.begin is not None and stage.end is not None:
                # Kubernetes rounds its times down to seconds.
                seconds[stage.name].append(max(0.0, stage.end - stage.begin))
    for name, found in seconds.items():
        yield StageTime(name, len(found), median(found), max(found))


def _nodes(launches: Sequence[Fields]) -> Iterator[NodeTime]:
    seconds: dict[str, list[float | None]] = defaultdict(list)
    for launch in launches:
        evidence = object_at(launch, "evidence")
        node = text_at(evidence, "node") or text_at(object_at(launch, "facts"), "node")
        ran = next(
            (
                stage.end - stage.begin
                for stage in launch_stages(launch, evidence)
                if stage.name == "ran" and stage.begin is not None and stage.end is not None
            ),
            None,
        )
        seconds[node or _UNKNOWN_NODE].append(ran)
    for name in sorted(seconds):
        known = [each for each in seconds[name] if each is not None]
        yield NodeTime(name, len(seconds[name]), median(known) if known else None)
