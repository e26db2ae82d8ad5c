"""Measures the operator against a real API server with simulated nodes: ``make scale``.

Real: API server, etcd, scheduler, controllers; the operator as a process of this machine, its
volume a folder. Simulated: nodes and the start of Pods (kwok), and what runs inside the Pods
(``scale.kubelet``), so that no container starts, nothing is pulled and every answer is right. There
is no canary. The bare client repeats the Pods of a run of SecureBench and runs in turn with it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import tempfile
import time
from pathlib import Path

from rich.console import Console

from scale.budgets import Findings, budget_table, plot, run_rows
from scale.operator_process import OperatorProcess
from scale.restart import restart
from scale.sessions import Measured, Session, Shape
from scale.simulated_nodes import NODE_PODS, simulated
from securebench.cluster.client import connect

WIDTH = 150
STEPS = ("ratio", "sizes", "flights", "runs", "restart")
MAX_PARALLELISM = 1_000
"""Of one run, by its CRD; more in flight are several runs."""

CROWD_TASKS = 20
"""Of each run, where there are many."""

CROWD_PARALLELISM = 4

SIMULATED = """\
real: API server, etcd, scheduler, controllers, the operator (a process), its volume (a folder)
simulated: nodes and Pods (kwok), what agents, couriers and verifiers leave; there is no canary
"""


async def measure(session: Session, chosen: argparse.Namespace) -> Findings:
    """Measure everything that was chosen."""
    found = Findings(compared=chosen.compared)
    usual = {"parallelism": chosen.parallelism, "seconds": chosen.seconds}
    if "ratio" in chosen.steps:
        await compare(session, found, Shape(chosen.compared, **usual), chosen.rounds)
    if "sizes" in chosen.steps:
        for tasks in chosen.sizes:
            measured, _ = await session.measure(Shape(tasks, **usual))
            found.sizes.append(measured)
            tell(measured)
    if "flights" in chosen.steps:
        for pods in chosen.flights:
            measured, _ = await session.measure(flight(pods, chosen.seconds))
            found.flights.append(measured)
            tell(measured)
    if "runs" in chosen.steps:
        shape = Shape(CROWD_TASKS, CROWD_PARALLELISM, chosen.runs, chosen.seconds)
        found.crowd, _ = await session.measure(shape)
        tell(found.crowd)
    if "restart" in chosen.steps:
        found.restart = await restart(session, *chosen.restart)
        say(f"restart: {found.restart.seconds:.1f} s")
    return found


async def compare(session: Session, found: Findings, shape: Shape, rounds: int) -> None:
    """Run SecureBench and the bare client in turn."""
    for number in range(rounds):
        measured, pods = await session.measure(shape)
        found.ours.append(measured.per_second)
        found.bare.append(await session.bare(shape, pods))
        say(
            f"round {number + 1}: {found.ours[-1]:.1f} and bare {found.bare[-1]:.1f} tasks a second"
        )


def flight(pods: int, seconds: float) -> Shape:
    """Return a shape with that many harness Pods at once, in as few runs as may be."""
    runs = -(-pods // MAX_PARALLELISM)
    each = pods // runs
    return Shape(each, each, runs, seconds, hold=each * runs)


def tell(measured: Measured) -> None:
    """Tell what a measurement gave, in case a later one breaks off."""
    for row in run_rows(measured):
        say(f"{row.what}: {row.measured}")


def say(words: str) -> None:
    """Tell how far the measurement is."""
    load = os.getloadavg()[0]
    print(f"{time.strftime('%H:%M:%S')} {words} (load {load:.0f})", flush=True)


def has_cluster() -> bool:
    """Whether an API server answers."""
    if "KUBECONFIG" not in os.environ:
        return False
    words = ["kubectl", "get", "--raw", "/readyz", "--request-timeout=10s"]
    try:
        done = subprocess.run(words, capture_output=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def numbers(text: str) -> list[int]:
    """Return the numbers of a list with commas."""
    return [int(each) for each in text.split(",")]


def options() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=lambda text: text.split(","), default=[*STEPS])
    parser.add_argument("--sizes", type=numbers, default=[100, 1_000, 10_000], help="tasks")
    parser.add_argument("--compared", type=int, default=1_000, help="tasks beside the bare client")
    parser.add_argument("--rounds", type=int, default=3, help="of SecureBench and bare client")
    parser.add_argument("--parallelism", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=1.0, help="for which each Pod runs")
    parser.add_argument("--flights", type=numbers, default=[1_000, 5_000], help="Pods at once")
    parser.add_argument("--runs", type=int, default=50, help="at once")
    parser.add_argument("--restart", type=numbers, default=[10_000, 1_000], help="finished,live")
    parser.add_argument("--plot", type=Path, help="SVG of cost per task against tasks")
    return parser.parse_args()


async def run(chosen: argparse.Namespace, work: Path) -> Findings:
    """Set everything up and measure."""
    root = work / "volume"
    root.mkdir()
    nodes = 1 + max(chosen.flights) // NODE_PODS
    with (work / "log").open("w") as log, simulated(root, nodes, log) as space:
        async with connect(space) as cluster:
            operator = OperatorProcess(space, root, work, log)
            return await measure(Session(cluster, root, work, operator), chosen)


def main() -> None:
    """Print the figures as a table and, as the last line, as JSON."""
    chosen = options()
    if not has_cluster():
        print("scale against the API server: skipped, none answers: tests/cluster/cluster up")
        return
    print(SIMULATED)
    with tempfile.TemporaryDirectory(prefix="securebench-scale-") as folder:
        found = asyncio.run(run(chosen, Path(folder)))
    when = time.strftime("%Y-%m-%d")
    title = f"{when}, {platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.0f}"
    Console(width=WIDTH).print(budget_table(found, title))
    if chosen.plot is not None:
        plot(found.sizes, chosen.plot, title)
    print(json.dumps(found.as_json()))


if __name__ == "__main__":
    main()
