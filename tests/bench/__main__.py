"""Measures SecureBench beside the bare floor of the same node; ``make bench`` runs it.

For every kind of task and every number in flight the shapes of the floor and SecureBench run in
turn, several rounds: only figures of one go compare. Prints the ratios first, then where CPU
seconds, requests and milliseconds go, and one JSON object as the last line. Needs an installed
chart with metrics, on a quiet node of this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Awaitable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from rich.console import Console

from bench import cpu, steps
from bench.floor import SHAPES, Floor
from bench.product import IMAGE, KINDS, Kind, Product, kubectl, requests_between
from bench.quiet import rested
from bench.report import (
    OURS,
    Rounds,
    Sample,
    cpu_table,
    ratio_table,
    request_table,
    steps_table,
)
from bench.spread import Spread, spread
from securebench.cluster.client import ApiCluster, connect

WIDTH = 170
FLOOR_NAMESPACE = "bench-floor"
QUICK = 4
"""Tasks of the short run that is timed from ``apply`` to ``Succeeded``, all in flight at once."""

T = TypeVar("T")


class Flight(NamedTuple):
    """So many tasks in flight, and so many of them in a run."""

    parallelism: int
    tasks: int


class Measured(NamedTuple):
    """What was spent while something ran."""

    cpu: Mapping[str, float]
    requests: Mapping[str, float]


class Bench:
    """Runs the floor and SecureBench on one node.

    Args:
        product: SecureBench.
        floors: The floor, by name of its shape.
    """

    def __init__(self, product: Product, floors: Mapping[str, Floor]) -> None:
        self._product = product
        self._floors = floors
        self._counter = cpu.pods_counter()

    async def rounds(self, name: str, flight: Flight, count: int) -> Rounds:
        """Run the floor's shapes and SecureBench in turn."""
        kind = KINDS[name]
        found = Rounds(name, flight.parallelism, flight.tasks)
        for number in range(count):
            for shape in kind.floors:
                found.samples.setdefault(shape, []).append(await self._floor(shape, flight))
            found.samples.setdefault(OURS, []).append(await self._ours(kind, flight))
            last = {who: round(each[-1].seconds, 2) for who, each in found.samples.items()}
            say(f"{name}, {flight.parallelism} in flight, round {number + 1}: s/task {last}")
        return found

    async def _floor(self, shape: str, flight: Flight) -> Sample:
        ended, measured = await self._measured(
            self._floors[shape].run(flight.tasks, flight.parallelism)
        )
        tasks = flight.tasks
        seconds = ended.seconds / tasks
        requests = {"all": ended.requests / tasks}
        return Sample(seconds, seconds, per_task(measured.cpu, tasks), requests)

    async def _ours(self, kind: Kind, flight: Flight) -> Sample:
        tasks = flight.tasks
        run, measured = await self._measured(self._product.run(kind, tasks, flight.parallelism))
        times = steps.run_times(self._product.journal(run))
        await self._product.remove(run)
        return Sample(
            run.seconds / tasks,
            (times["finished"] - times["begun"]) / tasks,
            per_task(measured.cpu, tasks),
            per_task(measured.requests, tasks),
        )

    async def quick(self, count: int) -> list[float]:
        """Return the seconds of short runs from ``apply`` to ``Succeeded``."""
        found = []
        for _ in range(count):
            await rest()
            run = await self._product.run(KINDS["text"], QUICK, QUICK)
            await self._product.remove(run)
            found.append(run.seconds)
        return found

    async def _measured(self, work: Awaitable[T]) -> tuple[T, Measured]:
        await rest()
        before, first = self._product.metrics(), cpu.read(self._counter)
        result = await work
        last, after = cpu.read(self._counter), self._product.metrics()
        name = "process_cpu_seconds_total"
        spent = cpu.spent(first, last, after[name] - before[name])
        return result, Measured(spent, requests_between(before, after))


async def rest() -> None:
    """Wait until the node is rid of earlier Pods, and tell where it does not get rid of them."""
    if not await rested():
        say("sandboxes of earlier Pods do not go away; what follows may pay for them")


async def where_time_goes(
    cluster: ApiCluster, product: Product, name: str, tasks: int
) -> dict[str, list[tuple[str, Spread]]]:
    """Return the steps of a run and of its tasks, one task after the other."""
    await rest()
    async with steps.watching(cluster) as seen:
        run = await product.run(KINDS[name], tasks, 1)
    journal = product.journal(run)
    await product.remove(run)
    each = [steps.task_steps(journal, seen, run.uid, task) for task in range(tasks)]
    around = steps.summary([steps.run_steps(journal, seen, run)])
    return {f"{name}: the run around its tasks": around, f"{name}: one task": steps.summary(each)}


def per_task(values: Mapping[str, float], tasks: int) -> dict[str, float]:
    """Return values of a run divided by its tasks."""
    return {name: value / tasks for name, value in values.items()}


def flight(text: str) -> Flight:
    """Return what ``IN_FLIGHTxTASKS`` says, e.g. ``8x32``."""
    parallelism, _, tasks = text.partition("x")
    return Flight(int(parallelism), int(tasks))


def listed(text: str) -> list[str]:
    """Return the words of a list with commas."""
    return text.split(",")


def say(words: str) -> None:
    """Tell how far the measurement is."""
    print(f"{time.strftime('%H:%M:%S')} {words}", flush=True)


def make_namespace(name: str) -> None:
    """Make the floor's namespace, and wait until Pods can be created in it."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    kubectl("apply", "-f", "-", stdin=json.dumps(body))
    kubectl("wait", "--for=create", "-n", name, "serviceaccount/default", "--timeout=60s")


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    namespace = os.environ.get("SECUREBENCH_NAMESPACE", "securebench")
    parser.add_argument("--namespace", default=namespace)
    parser.add_argument("--pod", default="securebench-0", help="the operator's")
    parser.add_argument("--kinds", type=listed, default=[*KINDS], help=", ".join(KINDS))
    parser.add_argument(
        "--flights",
        type=lambda text: [flight(each) for each in listed(text)],
        default=[flight(each) for each in ("1x4", "8x32", "24x48")],
        help="IN_FLIGHTxTASKS, comma separated",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--image", default=IMAGE, help="of the floor's containers")
    return parser.parse_args()


def show(
    results: Sequence[Rounds],
    quick: Sequence[float],
    parts: Mapping[str, Sequence[tuple[str, Spread]]],
) -> None:
    """Print the tables and, as the last line, everything as JSON."""
    console = Console(width=WIDTH)
    console.print(ratio_table(results, cpu.OPERATOR))
    console.print(f"{QUICK} tasks, apply to Succeeded: {spread(quick).text()} s")
    for each in results:
        console.print(cpu_table(each))
    console.print(request_table(results))
    for title, found in parts.items():
        console.print(steps_table(title, found))
    values = {
        "results": [each.as_json() for each in results],
        "quick_run_seconds": quick,
        "steps_ms": {
            title: [[words, *values] for words, values in found] for title, found in parts.items()
        },
    }
    print(json.dumps(values))


async def main(chosen: argparse.Namespace) -> None:
    """Measure everything that was chosen."""
    make_namespace(FLOOR_NAMESPACE)
    async with connect(chosen.namespace) as cluster, connect(FLOOR_NAMESPACE) as beside:
        product = Product(cluster, chosen.pod)
        floors = {name: Floor(beside, shape, chosen.image) for name, shape in SHAPES.items()}
        bench = Bench(product, floors)
        results = [
            await bench.rounds(name, each, chosen.rounds)
            for name in chosen.kinds
            for each in chosen.flights
        ]
        quick = await bench.quick(chosen.rounds)
        parts: dict[str, list[tuple[str, Spread]]] = {}
        for name in chosen.kinds:
            parts |= await where_time_goes(cluster, product, name, QUICK)
    show(results, quick, parts)


if __name__ == "__main__":
    asyncio.run(main(options()))
