"""Runs of SecureBench that do as little as the floor: an agent that writes, a check that reads."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
import uuid
from collections import Counter
from collections.abc import Mapping
from contextlib import aclosing
from typing import NamedTuple, TextIO

from bench.floor import changes
from securebench.cluster.client import ApiCluster
from securebench.cluster.port import ObjectKind, Raw
from securebench.json_values import object_at, text_at
from securebench.names import RUN_UID_LABEL

SAMPLE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? ([0-9.e+-]+)$", re.MULTILINE)
REQUESTS = "securebench_api_requests_total"
IMAGE = "python:3.11-slim"
LABEL = "bench-run"
DOMAIN = "docs.example.com"
"""Allowed where a kind asks for egress; no task goes there."""

SMALL = {"requests": {"cpu": "10m", "memory": "16Mi"}}
"""As those of the floor: a node may have no room for 24 times what a task asks for by default."""


class Kind(NamedTuple):
    """One kind of task.

    Attributes:
        family: Its family.
        command: What its agent does.
        row: Its row but for the id.
        floors: Shapes of the floor that it is compared with; the first one gives the ratio.
        domains: That its agent may reach.
    """

    family: str
    command: str
    row: Mapping[str, object]
    floors: tuple[str, ...]
    domains: tuple[str, ...] = ()


TEXT = Kind(
    "short_answer",
    "echo hi",
    {"input": {"question": "What is said?"}, "eval": {"accepted_answers": ["hi"]}},
    ("two", "sidecar", "sidecar+isolated"),
)
KINDS = {
    "text": TEXT,
    "text+egress": TEXT._replace(domains=(DOMAIN,)),
    "terminal": Kind(
        "terminal_task",
        "echo hi > x",
        {
            "input": {"instructions": "Write hi to the file x."},
            "eval": {"checker": {"command": 'test "$(cat x)" = hi'}},
        },
        ("terminal", "terminal+isolated"),
    ),
    "code": Kind(
        "code_completion",
        "echo 'def same(value): return value'",
        {
            "input": {"prompt": "Write the identity.", "language": "python"},
            "eval": {"tests": {"source": "inline", "code": "assert same(1) == 1\n"}},
        },
        ("code", "code+isolated"),
    ),
}


class ProductRun(NamedTuple):
    """One run of SecureBench that has ended; its object is still there.

    Attributes:
        name: The run's and its pack's.
        uid: The run's.
        applied_at: Seconds since the epoch.
        succeeded_at: When the condition was seen.
    """

    name: str
    uid: str
    applied_at: float
    succeeded_at: float

    @property
    def seconds(self) -> float:
        """From ``apply`` to ``Succeeded``, the canary included."""
        return self.succeeded_at - self.applied_at


def manifest(kind: Kind) -> dict[str, object]:
    """Return the manifest of a pack of this kind."""
    environment = {"image": IMAGE, "timeout_seconds": 60}
    if kind.family == "terminal_task":
        environment["workdir"] = "/app"
    return {
        "id": "bench",
        "version": 1,
        "defaults": {"family": kind.family, "environment": environment},
    }


def pack(name: str, kind: Kind, tasks: int) -> Raw:
    """Return a ConfigMap with a pack of equal tasks."""
    rows = (json.dumps({"id": f"task-{number}", **kind.row}) for number in range(tasks))
    data = {"manifest.yaml": json.dumps(manifest(kind)), "tasks.jsonl": "\n".join(rows) + "\n"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def benchmark_run(name: str, kind: Kind, parallelism: int) -> Raw:
    """Return a run of the pack of that name."""
    domains = {"allowed_domains": list(kind.domains)} if kind.domains else {}
    return {
        "apiVersion": "securebench.dev/v1alpha1",
        "kind": "BenchmarkRun",
        "metadata": {"name": name, "labels": {LABEL: name}},
        "spec": {
            "pack": {"configMap": {"name": name}},
            "harness": {"type": "command", "config": {"command": kind.command, **domains}},
            "parallelism": parallelism,
            "resources": SMALL,
        },
    }


def kubectl(*args: str, stdin: str | TextIO | None = None) -> str:
    """Run kubectl and return what it prints.

    Raises:
        SystemExit: It failed.
    """
    words = {"input": stdin} if isinstance(stdin, str) else {"stdin": stdin}
    done = subprocess.run(["kubectl", *args], capture_output=True, text=True, check=False, **words)
    if done.returncode != 0:
        raise SystemExit(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout


def samples(text: str) -> dict[str, float]:
    """Read metrics; those with labels stand under their labels and, summed, under their name."""
    totals: Counter[str] = Counter()
    for name, labels, value in SAMPLE.findall(text):
        totals[name] += float(value)
        if labels:
            totals[f"{name}{{{labels}}}"] += float(value)
    return dict(totals)


def requests_between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    """Return the operator's requests by verb and kind."""
    found = {}
    for key, value in after.items():
        if key.startswith(REQUESTS + "{"):
            labels = dict(re.findall(r'(\w+)="([^"]*)"', key))
            found[f"{labels['verb']} {labels['kind']}"] = value - before.get(key, 0.0)
    return {key: value for key, value in found.items() if value}


class Product:
    """SecureBench as it is installed in a namespace.

    Args:
        cluster: The namespace.
        pod: The operator's.
    """

    def __init__(self, cluster: ApiCluster, pod: str) -> None:
        self._cluster = cluster
        self._pod = pod

    def metrics(self) -> dict[str, float]:
        """Read the operator's samples."""
        path = f"/api/v1/namespaces/{self._cluster.namespace}/pods/{self._pod}:9090/proxy/metrics"
        return samples(kubectl("get", "--raw", path))

    def journal(self, run: ProductRun) -> str:
        """Read a run's journal."""
        path = f"/var/lib/securebench/runs/{run.uid}/journal.jsonl"
        return kubectl("exec", "-n", self._cluster.namespace, self._pod, "--", "cat", path)

    async def run(self, kind: Kind, tasks: int, parallelism: int) -> ProductRun:
        """Run that many tasks of one kind; return when no Pod of them is left.

        Raises:
            SystemExit: A task did not pass.
        """
        name = f"bench-{uuid.uuid4().hex[:6]}"
        await self._cluster.create(ObjectKind.CONFIG_MAP, pack(name, kind, tasks))
        applied_at = time.time()
        await self._cluster.create(ObjectKind.BENCHMARK_RUN, benchmark_run(name, kind, parallelism))
        done = await self._ended(name)
        succeeded_at = time.time()
        check(done, tasks)
        uid = text_at(object_at(done, "metadata"), "uid")
        await gone(self._cluster, f"{RUN_UID_LABEL}={uid}")
        return ProductRun(name, uid, applied_at, succeeded_at)

    async def remove(self, run: ProductRun) -> None:
        """Delete a run and its pack."""
        for kind in (ObjectKind.BENCHMARK_RUN, ObjectKind.CONFIG_MAP):
            await self._cluster.delete(kind, run.name, uid=None, grace_seconds=None)

    async def _ended(self, name: str) -> Raw:
        selector = f"{LABEL}={name}"
        async with aclosing(changes(self._cluster, ObjectKind.BENCHMARK_RUN, selector)) as seen:
            async for _, item in seen:
                if succeeded(item) in {"True", "False"}:
                    return item
        raise SystemExit(f"the watch of {name} ended")


async def gone(cluster: ApiCluster, selector: str) -> None:
    """Return when no Pod that matches is left."""
    while (await cluster.list(ObjectKind.POD, selector)).items:  # noqa: ASYNC110 - the API server's
        await asyncio.sleep(0.2)


def succeeded(run: Raw) -> str:
    """Return the status of a run's condition Succeeded, or nothing."""
    conditions = object_at(run, "status").get("conditions")
    found = conditions if isinstance(conditions, list) else []
    return next((text_at(each, "status") for each in found if each["type"] == "Succeeded"), "")


def check(run: Raw, tasks: int) -> None:
    """Stop where not every task passed: a run that fails fast would look good."""
    status = object_at(run, "status")
    passed = object_at(status, "score").get("passed")
    if passed != tasks:
        raise SystemExit(f"{passed} of {tasks} tasks passed: {json.dumps(status)[:2000]}")
