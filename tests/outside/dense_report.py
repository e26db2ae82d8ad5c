"""What many agents at once took of one node, as a table and as one JSON object."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.table import Table

from bench import cpu, model_calls
from bench.model_calls import Added, Span
from bench.pod_memory import PodMemory
from support.release import Record

CONTAINER = "harness"
"""In which an agent works."""
MIB = 1024 * 1024
BESIDE_MIB = 25
ADDED_MS = 50
"""Budgets: of a launch beside its agent, and of the gateway for 95 of 100 calls."""


class Sample(NamedTuple):
    """What was seen at one moment.

    Attributes:
        at: Seconds since the epoch.
        launches: Memory of the harness Pods whose agent runs, by name.
        cpu: CPU seconds since the machine or a process started.
        load: Load average of the last minute.
    """

    at: float
    launches: Mapping[str, PodMemory]
    cpu: cpu.Reading
    load: float


class Measured(NamedTuple):
    """A run that has ended, and what was seen of it."""

    seconds: float
    samples: Sequence[Sample]
    records: Sequence[Record]
    spans: Mapping[str, Sequence[Span]]
    added: Sequence[Added]
    problems: Sequence[str]

    @property
    def all_at_once(self) -> Span | None:
        """From the first call of the agent that began last to the last one of the first to end."""
        return model_calls.common(model_calls.whole(self.spans))


def problems(found: Measured, agents: int) -> list[str]:
    """Return what makes the measurement worthless, or the product wrong."""
    failed = [record for record in found.records if not record.get("passed")]
    told = [f"{each['task_id']}: {each.get('failure_reason') or 'not passed'}" for each in failed]
    lost = launches_lost(found.records)
    told += [f"{lost} launches were lost"] if lost else []
    if len(found.records) != agents:
        told.append(f"{len(found.records)} records of {agents} agents")
    if (most := model_calls.peak(model_calls.whole(found.spans))) < agents:
        told.append(f"at most {most} agents at once were between their first and last call")
    return told


def launches_lost(records: Sequence[Record]) -> int:
    """Return how many launches were repeated."""
    return sum(record["launches"] - 1 for record in records)


def memory_mib(samples: Sequence[Sample]) -> dict[str, dict[str, float]]:
    """Return MiB per launch: median and greatest, each launch at its greatest moment."""
    seen: dict[str, list[PodMemory]] = {}
    for sample in samples:
        for name, launch in sample.launches.items():
            seen.setdefault(name, []).append(launch)
    worst = [max(each, key=lambda launch: launch.beside) for each in seen.values()]
    parts = dict.fromkeys(name for launch in worst for name in launch.containers)
    rows = {
        "beside the agent": [launch.beside for launch in worst],
        **{part: [own(launch, part) for launch in worst] for part in parts},
        "containerd's shim, outside of the Pod": [launch.shim for launch in worst],
        "the agent's processes": [launch.agent for launch in worst],
    }
    return {
        name: {"median": in_mib(statistics.median(values)), "max": in_mib(max(values))}
        for name, values in rows.items()
        if values
    }


def own(launch: PodMemory, part: str) -> int:
    """Return the bytes of a container without those of the agent's processes."""
    return launch.containers.get(part, 0) - (launch.agent if part == CONTAINER else 0)


def in_mib(size: float) -> float:
    """Return bytes in MiB."""
    return round(size / MIB, 1)


def cpu_cores(samples: Sequence[Sample], span: Span | None) -> dict[str, float]:
    """Return the busy cores by who kept them busy, between the first and last sample of a span."""
    inside = [each for each in samples if span is None or span.began <= each.at <= span.ended]
    if len(inside) < 2:
        return {}
    first, last = inside[0], inside[-1]
    spent = cpu.spent(first.cpu, last.cpu)
    del spent[cpu.OPERATOR]  # one of the Pods here
    return {who: round(value / (last.at - first.at), 3) for who, value in spent.items()}


def at_once(found: Measured) -> dict[str, int]:
    """Return how many agents went on at once at most, by three ways to see it."""
    spans = found.spans
    return {
        "agents between first and last call": model_calls.peak(model_calls.whole(spans)),
        "calls that waited for the provider": model_calls.peak(
            span for each in spans.values() for span in each
        ),
        "agents seen running": max((len(each.launches) for each in found.samples), default=0),
    }


def report(found: Measured, agents: int) -> dict[str, Any]:
    """Return everything as one object."""
    together = found.all_at_once
    return {
        "agents": agents,
        "passed": sum(record.get("passed") is True for record in found.records),
        "launches_lost": launches_lost(found.records),
        "seconds": round(found.seconds, 1),
        "seconds_all_at_once": round(together.ended - together.began, 1) if together else 0,
        "at_once": at_once(found),
        "memory_mib_per_launch": memory_mib(found.samples),
        "gateway_added_ms": {
            "all calls": model_calls.percentiles_ms(found.added),
            "while all agents went on": model_calls.percentiles_ms(
                model_calls.within(found.added, together)
            ),
        },
        "busy_cores": {
            "whole run": cpu_cores(found.samples, None),
            "while all agents went on": cpu_cores(found.samples, together) if together else {},
        },
        "cores": os.cpu_count(),
        "load_average_max": max((each.load for each in found.samples), default=0.0),
        "problems": list(found.problems),
    }


def figures_table(told: Mapping[str, Any]) -> Table:
    """Return the figures of a report with their budgets."""
    table = Table("figure", "measured", "budget", title=f"{told['agents']} agents on one node")
    memory, times = told["memory_mib_per_launch"], told["gateway_added_ms"]
    table.add_row("attempts that passed", str(told["passed"]), str(told["agents"]))
    table.add_row("launches lost", str(told["launches_lost"]), "0")
    for name, most in told["at_once"].items():
        table.add_row(f"at once at most: {name}", str(most), "")
    for name, values in memory.items():
        budget = f"{BESIDE_MIB}" if name == "beside the agent" else ""
        cells = f"{values['median']} (at most {values['max']})"
        table.add_row(f"MiB of a launch: {name}", cells, budget)
    for name, values in times.items():
        cells = ", ".join(f"{key} {value}" for key, value in values.items())
        table.add_row(f"ms added by the gateway, {name}", cells, f"p95 {ADDED_MS}")
    for name, values in told["busy_cores"].items():
        cells = ", ".join(f"{who} {value}" for who, value in values.items())
        table.add_row(f"busy cores of {told['cores']}, {name}", cells, "")
    table.add_row("load average at most", str(told["load_average_max"]), "")
    table.add_row("seconds, apply to Succeeded", str(told["seconds"]), "")
    table.add_row("seconds with all agents at once", str(told["seconds_all_at_once"]), "")
    return table
