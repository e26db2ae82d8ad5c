"""One measurement: a fresh operator, simulated Pods, some runs, and what they took."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from pathlib import Path
from typing import NamedTuple

from bench.floor import changes
from bench.product import check, requests_between, succeeded
from scale.bare import BareClient
from scale.operator_process import OperatorProcess
from scale.simulated_nodes import WITH_US, scheduling
from scale.timed_operator import CHANGES, DECISION, EVENT, WHOLE
from securebench.cluster.client import ApiCluster
from securebench.cluster.port import ObjectKind, Raw, metadata
from support.build import question, run_body, write_pack

CPU = "process_cpu_seconds_total"
SLOW = 0.005
"""Seconds of a decision that is over its budget; a bound of the histogram."""

LEAST_SECONDS = 90.0
SECONDS_PER_TASK = 0.5
"""How long a measurement may take before it is given up."""

STATUS_CHARACTERS = 2_000


class Shape(NamedTuple):
    """What is run.

    Attributes:
        tasks: Of each run.
        parallelism: Of each run.
        runs: At once.
        seconds: For which each Pod runs.
        hold: Harness Pods that have to run at once before the first one ends; 0: none.
    """

    tasks: int
    parallelism: int
    runs: int = 1
    seconds: float = 1.0
    hold: int = 0

    @property
    def all_tasks(self) -> int:
        """Tasks of all runs."""
        return self.tasks * self.runs

    @property
    def limit_seconds(self) -> float:
        """How long it may take."""
        return LEAST_SECONDS + self.all_tasks * SECONDS_PER_TASK


class Measured(NamedTuple):
    """What runs took.

    Attributes:
        shape: What was run.
        seconds: From the first request to the last condition ``Succeeded``.
        working_seconds: From the first Pod on.
        cpu_ms: Milliseconds of the operator's CPU for each task.
        requests: The operator's requests for each task, by verb and kind.
        peak_mib: Most memory of the operator.
        decision_ms: Mean CPU milliseconds of a decision about what changed.
        slow_share: Share of such decisions that took longer than ``SLOW``.
        changes: Mean number of changed attempts and Pods that such a decision is about.
        whole_ms: Mean CPU milliseconds of a look at a whole run.
        status_bytes: Largest status of a run.
        status_writes: Of all runs.
        status_gap: Mean seconds between two writes of one run.
        in_flight: Most Pods of launches that existed and had not ended.
    """

    shape: Shape
    seconds: float
    working_seconds: float
    cpu_ms: float
    requests: Mapping[str, float]
    peak_mib: float
    decision_ms: float
    slow_share: float
    changes: float
    whole_ms: float
    status_bytes: int
    status_writes: int
    status_gap: float
    in_flight: int

    @property
    def per_second(self) -> float:
        """Tasks per second, from the first Pod on."""
        return self.shape.all_tasks / self.working_seconds


class Statuses:
    """The statuses of runs, as a watch shows them."""

    def __init__(self) -> None:
        self.bytes = 0
        self.times: dict[str, list[float]] = {}
        self._last: dict[str, str] = {}

    def see(self, item: Raw) -> None:
        """Take in one event of a BenchmarkRun."""
        name, text = str(metadata(item)["name"]), json.dumps(item.get("status"))
        if text != self._last.get(name):
            self._last[name] = text
            self.bytes = max(self.bytes, len(text))
            self.times.setdefault(name, []).append(time.monotonic())

    def last(self, name: str) -> str:
        """Return the last status of a run, cut."""
        return self._last.get(name, "none")[:STATUS_CHARACTERS]

    def mean_gap(self) -> float:
        """Return the mean seconds between two writes of one run."""
        spans = [times[-1] - times[0] for times in self.times.values()]
        gaps = sum(len(times) - 1 for times in self.times.values())
        return sum(spans) / gaps if gaps else 0.0


class Session:
    """What all measurements share.

    Args:
        cluster: The namespace.
        root: Of the results volume.
        work: Folder for logs.
        operator: Is started for each measurement.
    """

    def __init__(
        self, cluster: ApiCluster, root: Path, work: Path, operator: OperatorProcess
    ) -> None:
        self.cluster = cluster
        self.root = root
        self.work = work
        self.operator = operator
        self._made = 0

    async def create(self, shape: Shape) -> list[str]:
        """Create the runs of a shape, with a pack on the volume, and return their names."""
        self._made += 1
        pack = f"scale-{shape.tasks}"
        write_pack(self.root / "packs" / pack, [question(f"task-{n}") for n in range(shape.tasks)])
        names = [f"scale-{self._made}-{number}" for number in range(shape.runs)]
        spec = {
            "pack": {"volume": {"path": pack}},
            "parallelism": shape.parallelism,
            "podTemplate": scheduling(),
        }
        for name in names:
            await self.cluster.create(ObjectKind.BENCHMARK_RUN, run_body(name, **spec))
        return names

    async def remove(self, names: Sequence[str]) -> None:
        """Delete runs; what is left of their Pods goes with them."""
        for name in names:
            await self.cluster.delete(ObjectKind.BENCHMARK_RUN, name, uid=None, grace_seconds=None)

    async def measure(self, shape: Shape) -> tuple[Measured, list[Raw]]:
        """Run a shape; return what it took, and its Pods as they were created.

        Raises:
            SystemExit: A task did not pass.
        """
        self.operator.start()
        try:
            self.operator.wait_ready()
            with self.kubelet(shape) as log:
                return await self._measured(shape, log)
        finally:
            self.operator.end()

    async def _measured(self, shape: Shape, log: Path) -> tuple[Measured, list[Raw]]:
        before, began, statuses = self.operator.metrics(), time.time(), Statuses()
        names = await self.create(shape)
        await self._ended(names, shape, statuses)
        ended, after = time.time(), self.operator.metrics()
        events = list(read_log(log))
        first = min(float(str(each["at"])) for each in events)
        found = Measured(
            shape=shape,
            seconds=ended - began,
            working_seconds=ended - first,
            cpu_ms=(after[CPU] - before[CPU]) / shape.all_tasks * 1000,
            requests={
                name: count / shape.all_tasks
                for name, count in requests_between(before, after).items()
            },
            peak_mib=self.operator.peak_mib(),
            status_bytes=statuses.bytes,
            status_writes=sum(map(len, statuses.times.values())),
            status_gap=statuses.mean_gap(),
            in_flight=most_in_flight(events),
            **decisions(after),
        )
        await self.remove(names)
        return found, [each["created"] for each in events if "created" in each]

    async def _ended(self, names: Sequence[str], shape: Shape, statuses: Statuses) -> None:
        """Wait until every run has ended."""
        left = set(names)
        limit = shape.limit_seconds
        try:
            async with (
                asyncio.timeout(limit),
                aclosing(changes(self.cluster, ObjectKind.BENCHMARK_RUN, "")) as seen,
            ):
                async for _, item in seen:
                    statuses.see(item)
                    name = str(metadata(item)["name"])
                    if name in left and succeeded(item) in {"True", "False"}:
                        check(item, shape.tasks)
                        left.remove(name)
                    if not left:
                        return
        except TimeoutError:
            words = f"{len(left)} of {len(names)} runs have not ended after {limit:.0f} s"
            raise SystemExit(f"{words}: {statuses.last(min(left))}") from None

    async def bare(self, shape: Shape, pods: Sequence[Raw]) -> float:
        """Let the bare client repeat Pods; return tasks per second."""
        with self.kubelet(shape):
            client = BareClient(self.cluster, shape.parallelism * shape.runs)
            return shape.all_tasks / await client.replay(pods, shape.limit_seconds)

    @contextmanager
    def kubelet(self, shape: Shape) -> Iterator[Path]:
        """Let Pods end; yields the file with what was seen of them."""
        log = self.work / "pods.jsonl"
        log.unlink(missing_ok=True)
        words = [*WITH_US, sys.executable, "-m", "scale.kubelet"]
        words += ["--namespace", self.cluster.namespace]
        words += ["--root", str(self.root), "--log", str(log)]
        words += ["--seconds", str(shape.seconds), "--hold", str(shape.hold)]
        with subprocess.Popen(words) as process:
            try:
                yield log
            finally:
                process.terminate()


def decisions(samples: Mapping[str, float]) -> dict[str, float]:
    """Return means of decisions, milliseconds, and the share of slow ones."""

    def of(part: str, look: str, more: str = "") -> float:
        return samples.get(f'{DECISION}_{part}{{{more}look="{look}"}}', 0.0)

    count = max(of("count", EVENT), 1.0)
    fast = of("bucket", EVENT, f'le="{SLOW}",')
    return {
        "decision_ms": of("sum", EVENT) / count * 1000,
        "slow_share": 1 - fast / count,
        "changes": samples.get(f"{CHANGES}_total", 0.0) / count,
        "whole_ms": of("sum", WHOLE) / max(of("count", WHOLE), 1.0) * 1000,
    }


def read_log(path: Path) -> Iterator[dict[str, Raw]]:
    """Yield what the simulated kubelet wrote down."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):
                yield json.loads(line)


def most_in_flight(events: Sequence[Mapping[str, object]]) -> int:
    """Return the most Pods that were created and had not ended."""
    now, most = 0, 0
    for each in events:
        now += 1 if "created" in each else -1
        most = max(most, now)
    return most
