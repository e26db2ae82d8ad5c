"""Many agents on one node that mostly wait for their model; `make agents-at-once` runs them.

The provider is the fake of tests/outside, which answers each call after 5 to 20 s. Prints what a
launch takes beside its agent, what the gateway adds to a call and what the node's CPU does, and one
JSON object as the last line. Budgets are printed, never asserted; the exit code is 1 where a launch
was lost, an attempt did not pass, or the agents never went on all at once. Needs root on the
machine of the node, for /proc and the cgroups.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence

from rich.console import Console

from bench import cpu, model_calls, pod_memory
from bench.pod_memory import PodMemory
from outside import journal
from outside.dense_report import CONTAINER, Measured, Sample, figures_table, problems, report
from outside.oracle_scripts import PATIENT
from support import api
from support.outside_release import begin_agent, outside_release
from support.release import Raw, Release, condition

AGENT = "codex"
CALLS = 28
"""Of each agent: 350 s on average, longer than it takes to start 60 Pods one after the other."""
SAMPLE_SECONDS = 10
SECONDS = 3600
TASK_SECONDS = 3000
DENSE = {"requests": {"cpu": "1m", "memory": "32Mi"}}
"""What an agent that waits is asked for; by default it is 100m and 256Mi."""
MANIFEST = {
    "id": "agents-at-once",
    "version": 1,
    "defaults": {
        "family": "short_answer",
        "environment": {"image": "python:3.11-slim", "timeout_seconds": TASK_SECONDS},
    },
}


def task_id(number: int) -> str:
    """Return the id of a task."""
    return f"wait-{number}"


def question(number: int) -> str:
    """Return what a task asks of its agent: a shell command that writes the answer."""
    return f"printf %s {number} > candidate.txt"


def pack(agents: int) -> dict[str, bytes]:
    """Return a pack whose tasks are shell commands that write the answer."""
    rows = (
        {
            "id": task_id(number),
            "input": {"question": question(number)},
            "eval": {"accepted_answers": [str(number)]},
        }
        for number in range(agents)
    )
    tasks = "".join(json.dumps(row) + "\n" for row in rows)
    return {"manifest.yaml": json.dumps(MANIFEST).encode(), "tasks.jsonl": tasks.encode()}


def measure(installed: Release, agents: int, calls: int) -> Measured:
    """Run the agents and return what was seen."""
    model = f"script-{PATIENT}{calls}"
    began = time.time()
    spec = {"parallelism": agents, "resources": DENSE, "retention": {"pods": "Failed"}}
    name = begin_agent(installed, pack(agents), AGENT, model, **spec)
    samples = list(watch(installed, name, began + SECONDS))
    seconds = time.time() - began
    records = installed.records(name)
    lines = [json.loads(line) for line in installed.file(name, "egress.jsonl").splitlines()]
    asked = [line for line in journal.entries("provider", f'"{model}"', began) if "seconds" in line]
    ids = {question(number): task_id(number) for number in range(agents)}
    spans = {ids.get(text, text): calls for text, calls in model_calls.spans_by_task(asked).items()}
    added, unequal = model_calls.added(spans, model_calls.seconds_by_task(lines))
    found = Measured(seconds, samples, records, spans, added, unequal)
    return found._replace(problems=[*unequal, *problems(found, agents)])


def watch(installed: Release, run: str, deadline: float) -> Iterator[Sample]:
    """Yield samples until the run has ended.

    Raises:
        SystemExit: It has not ended in time.
    """
    counter, console, start = cpu.pods_counter(), Console(stderr=True), time.time()
    while condition(api.benchmark_run(installed.namespace, run))["status"] == "Unknown":
        if time.time() > deadline:
            raise SystemExit(f"run {run} has not ended after {SECONDS} s")
        began = time.time()
        launches = agents_memory(installed.pods(run))
        console.print(f"{began - start:.0f} s: {len(launches)} agents run", highlight=False)
        yield Sample(began, launches, cpu.read(counter), os.getloadavg()[0])
        time.sleep(max(0.0, began + SAMPLE_SECONDS - time.time()))


def agents_memory(pods: Sequence[Raw]) -> dict[str, PodMemory]:
    """Return the memory of the Pods in which an agent runs, by name."""
    cgroups = pod_memory.pod_cgroups()
    running, shims = pod_memory.processes(), pod_memory.shims()
    found = {}
    for pod in pods:
        names = container_names(pod)
        cgroup = cgroups.get(pod["metadata"]["uid"])
        if cgroup is None or CONTAINER not in names.values():
            continue
        try:
            seen = pod_memory.pod_memory(cgroup, names, CONTAINER, running, shims)
        except FileNotFoundError:  # it ended meanwhile
            continue
        if seen.agent:
            found[pod["metadata"]["name"]] = seen
    return found


def container_names(pod: Raw) -> dict[str, str]:
    """Return the names of a Pod's containers by their ids."""
    status = pod["status"]
    told = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    ids = {each.get("containerID", "").rpartition("//")[2]: each["name"] for each in told}
    return {container: name for container, name in ids.items() if container}


def main() -> int:
    """Measure and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m outside.agents_at_once", description=__doc__)
    parser.add_argument("--agents", type=int, default=60)
    parser.add_argument("--calls", type=int, default=CALLS, help="of each agent, at least 3")
    chosen = parser.parse_args()
    with outside_release("sb-dense") as installed:
        found = measure(installed, chosen.agents, chosen.calls)
    told, console = report(found, chosen.agents), Console(width=120)
    console.print(figures_table(told))
    for problem in found.problems:
        console.print(problem, markup=False, highlight=False)
    print(json.dumps(told))  # noqa: T201
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
