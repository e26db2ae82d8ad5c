"""Measures whole runs on the local node; `make bench` prints one table and one JSON object.

For each shape (tasks, parallelism, with or without egress) a BenchmarkRun of short_answer tasks
goes from creation to its condition Succeeded. Needs an installed chart in the namespace
SECUREBENCH_NAMESPACE.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import time
import uuid
from typing import NamedTuple

SAMPLE = re.compile(r"^([a-z_]+)(?:\{(.*)\})? ([0-9.e+-]+)$")
IMAGE = "python:3.11-slim"
COMMAND = 'python3 -c \'import json; print(len(json.load(open("task.json"))["question"]))\''

DOMAIN = "docs.example.com"
"""Allowed where a shape asks for egress; no task goes there."""


class Shape(NamedTuple):
    """One measured run: ``TASKSxPARALLELISM``, with ``+egress`` through sidecar and gateway."""

    tasks: int
    parallelism: int
    has_egress: bool

    def __str__(self) -> str:
        return f"{self.tasks}x{self.parallelism}{'+egress' if self.has_egress else ''}"


def shape(text: str) -> Shape:
    """Return the shape that a text names."""
    size, plus, extra = text.partition("+")
    tasks, _, parallelism = size.partition("x")
    if plus and extra != "egress":
        raise argparse.ArgumentTypeError(f"{text}: after + only egress is known")
    return Shape(int(tasks), int(parallelism), bool(plus))


def kubectl(*args: str, stdin: str | None = None) -> str:
    done = subprocess.run(
        ["kubectl", *args], input=stdin, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"kubectl {' '.join(args)}: {done.stderr.strip()}")
    return done.stdout


def metrics(namespace: str, pod: str) -> dict[str, float]:
    """Return the operator's samples; those with labels summed under their name."""
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}:9090/proxy/metrics"
    totals: dict[str, float] = {}
    for line in kubectl("get", "--raw", path).splitlines():
        found = SAMPLE.match(line)
        if found:
            totals[found[1]] = totals.get(found[1], 0.0) + float(found[3])
    return totals


def pack(name: str, tasks: int) -> dict[str, object]:
    rows = (
        {
            "id": f"count-{number}",
            "input": {"question": "x" * (number + 1)},
            "eval": {"accepted_answers": [str(number + 1)]},
        }
        for number in range(tasks)
    )
    manifest = {
        "id": "bench",
        "version": 1,
        "defaults": {"family": "short_answer", "environment": {"image": IMAGE}},
    }
    data = {
        "manifest.yaml": json.dumps(manifest),
        "tasks.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name},
        "data": data,
    }


def run(name: str, wanted: Shape) -> dict[str, object]:
    domains = {"allowed_domains": [DOMAIN]} if wanted.has_egress else {}
    return {
        "apiVersion": "securebench.dev/v1alpha1",
        "kind": "BenchmarkRun",
        "metadata": {"name": name},
        "spec": {
            "pack": {"configMap": {"name": name}},
            "harness": {"type": "command", "config": {"command": COMMAND, **domains}},
            "parallelism": wanted.parallelism,
        },
    }


def measure(namespace: str, pod: str, wanted: Shape) -> dict[str, object]:
    tasks = wanted.tasks
    name = f"bench-{uuid.uuid4().hex[:6]}"
    before = metrics(namespace, pod)
    began = time.monotonic()
    for body in (pack(name, tasks), run(name, wanted)):
        kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(body))
    kubectl("wait", "-n", namespace, "--for=condition=Complete", f"brun/{name}", "--timeout=900s")
    seconds = time.monotonic() - began
    after = metrics(namespace, pod)
    uid = kubectl("get", "-n", namespace, "brun", name, "-o", "jsonpath={.metadata.uid}")
    journal = f"/var/lib/securebench/runs/{uid}/journal.jsonl"
    size = kubectl("exec", "-n", namespace, pod, "--", "stat", "-c", "%s", journal)
    kubectl("delete", "-n", namespace, "brun", name)
    kubectl("delete", "-n", namespace, "configmap", name)

    def delta(sample: str) -> float:
        return after.get(sample, 0.0) - before.get(sample, 0.0)

    return {
        "shape": str(wanted),
        "seconds": round(seconds, 2),
        "seconds_per_task": round(seconds / tasks, 3),
        "api_requests_per_task": round(delta("securebench_api_requests_total") / tasks, 2),
        "operator_cpu_seconds_per_task": round(delta("process_cpu_seconds_total") / tasks, 4),
        "operator_memory_mib": round(after["process_resident_memory_bytes"] / 2**20, 1),
        "journal_bytes_per_task": round(int(size) / tasks),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    namespace = os.environ.get("SECUREBENCH_NAMESPACE", "securebench")
    parser.add_argument("--namespace", default=namespace)
    parser.add_argument("--pod", default="securebench-0")
    shapes_help = "TASKSxPARALLELISM[+egress], comma separated"
    parser.add_argument("--shapes", default="4x1,32x8", help=shapes_help)
    chosen = parser.parse_args()
    shapes = [shape(text) for text in chosen.shapes.split(",")]
    results = [measure(chosen.namespace, chosen.pod, each) for each in shapes]
    for key in results[0]:
        print(f"{key:32}", *(f"{result[key]!s:>13}" for result in results))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
