"""Runs one after the other for hours, and what the operator holds meanwhile: ``make soak``.

Runs of all kinds of ``bench.product`` follow each other without a pause. After each one the
operator's resident memory, open descriptors and CPU are read from its metrics. Prints a line for
each run, then a table of the first, middle and last third with the slope of a line through all
samples, and one JSON object. Nothing is asserted about the figures; a task that does not pass ends
the program. Needs an installed chart with metrics.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.product import KINDS, Product
from securebench.cluster.client import connect
from securebench.sizes import MIB

HOURS = 3600.0
WIDTH = 120
THIRDS = ("first third", "middle third", "last third")


class Sample(NamedTuple):
    """What the operator held when a run had ended.

    Attributes:
        at: Seconds since the start of the program.
        memory_mib: Resident memory.
        descriptors: Open file descriptors.
        cpu_seconds: Since its process was started.
        started_at: When that was, in seconds since the epoch.
    """

    at: float
    memory_mib: float
    descriptors: float
    cpu_seconds: float
    started_at: float


class Trend(NamedTuple):
    """One figure over the whole time.

    Attributes:
        thirds: Its median in each third of the samples.
        most: Its largest value.
        per_hour: Slope of the line through all samples.
    """

    thirds: tuple[float, ...]
    most: float
    per_hour: float


def sample(product: Product, began: float) -> Sample:
    """Read the operator's metrics."""
    found = product.metrics()
    return Sample(
        time.monotonic() - began,
        found["process_resident_memory_bytes"] / MIB,
        found["process_open_fds"],
        found["process_cpu_seconds_total"],
        found["process_start_time_seconds"],
    )


def trend(times: Sequence[float], values: Sequence[float]) -> Trend:
    """Return how a figure went; at least three samples.

    Args:
        times: Seconds, ascending.
        values: As many.
    """
    slope = statistics.linear_regression(times, values).slope
    return Trend(
        tuple(statistics.median(part) for part in thirds(values)), max(values), slope * HOURS
    )


def thirds(values: Sequence[float]) -> Iterator[Sequence[float]]:
    """Yield the three parts of a sequence, equal but for the rest in the last."""
    size = len(values) // len(THIRDS)
    yield values[:size]
    yield values[size : 2 * size]
    yield values[2 * size :]


async def soak(product: Product, seconds: float, tasks: int, parallelism: int) -> list[Sample]:
    """Run until the time is over and there are three samples; return them."""
    began, samples = time.monotonic(), []
    for name in cycle(KINDS):
        if len(samples) >= len(THIRDS) and time.monotonic() - began >= seconds:
            return samples
        run = await product.run(KINDS[name], tasks, parallelism)
        await product.remove(run)
        samples.append(sample(product, began))
        say(name, run.seconds, samples[-1])
    raise AssertionError("a cycle does not end")


def say(kind: str, seconds: float, seen: Sample) -> None:
    """Tell what one run left."""
    words = (
        f"{kind}, {seconds:.0f} s: {seen.memory_mib:.1f} MiB, {seen.descriptors:.0f} descriptors"
    )
    print(f"{time.strftime('%H:%M:%S')} {words}, load {os.getloadavg()[0]:.0f}", flush=True)


def trends(samples: Sequence[Sample]) -> dict[str, Trend]:
    """Return the trend of each figure by its name."""
    times = [each.at for each in samples]
    return {
        "resident memory, MiB": trend(times, [each.memory_mib for each in samples]),
        "open descriptors": trend(times, [each.descriptors for each in samples]),
    }


def table(found: dict[str, Trend]) -> Table:
    """Return the trends as a table."""
    shown = Table("the operator's", *THIRDS, "most", "per hour")
    for name, each in found.items():
        values = (*each.thirds, each.most)
        shown.add_row(name, *(f"{value:.1f}" for value in values), f"{each.per_hour:+.2f}")
    return shown


async def main(chosen: argparse.Namespace) -> None:
    """Run, and print what was seen."""
    async with connect(chosen.namespace) as cluster:
        product = Product(cluster, chosen.pod)
        samples = await soak(product, chosen.seconds, chosen.tasks, chosen.parallelism)
    found = trends(samples)
    Console(width=WIDTH).print(table(found))
    values = {
        "seconds": samples[-1].at,
        "runs": len(samples),
        "tasks": len(samples) * chosen.tasks,
        "operator_processes": len({each.started_at for each in samples}),
        "operator_cpu_seconds": samples[-1].cpu_seconds - samples[0].cpu_seconds,
        "trends": {name: each._asdict() for name, each in found.items()},
    }
    print(json.dumps(values))


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--namespace", default="securebench")
    parser.add_argument("--pod", default="securebench-0", help="the operator's")
    parser.add_argument("--seconds", type=float, default=2 * HOURS)
    parser.add_argument("--tasks", type=int, default=16, help="of each run")
    parser.add_argument("--parallelism", type=int, default=8)
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(options()))
