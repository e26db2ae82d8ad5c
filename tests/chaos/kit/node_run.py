"""Runs on the local node that faults hit: half of their agents answer, half change files."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import NamedTuple

from chaos.kit.disk import Disk
from chaos.kit.verdict import Course
from e2e.egress import agent
from outside import places
from securebench.names import ROLE_LABEL
from support import api
from support.release import Raw, Release, benchmark_run, condition, keyed_pack
from support.runs import tasks
from support.waiting import until

PACK = "chaos"
TASKS = 12
PARALLELISM = 4
RETRIES = 10
END = "Completed"
SETTLED = 2
"""Attempts that are done before the first fault: the run is under way."""

PIECES = 10
PIECE_BYTES = 16 * 1024
"""The agent reads as many pieces of a slow answer, five in a second."""

WORK = f"""
size = len(get('https://{places.DOCS}/bytes/{PIECES * PIECE_BYTES}?slow'))
word = '4' if size == {PIECES * PIECE_BYTES} else f'{{size}} bytes'
open('answer.txt', 'w').write(word)
print(word)
"""
CHECK = 'sleep 2; test "$(cat answer.txt)" = {answer}'
WRONG = 5
"""What every third task wants instead of 4."""


def row(number: int) -> Raw:
    """Return a row; by turns a short answer and a terminal task."""
    answer = WRONG if number % 3 == 2 else 4
    if number % 2:
        command = CHECK.format(answer=answer)
        return {
            "id": f"task-{number}",
            "family": "terminal_task",
            "input": {"instructions": "Write 4 to answer.txt."},
            "eval": {"checker": {"command": command}},
        }
    return {
        "id": f"task-{number}",
        "family": "short_answer",
        "input": {"question": "What is 2 + 2?"},
        "eval": {"accepted_answers": [str(answer)]},
    }


def pack() -> tuple[Raw, Raw]:
    """Return the pack of all runs, and the pack source of a spec."""
    environment = {"image": "python:3.11-slim", "timeout_seconds": 120, "workdir": "/app"}
    manifest = {"id": PACK, "version": 1, "defaults": {"environment": environment}}
    rows = "".join(json.dumps(row(number)) + "\n" for number in range(TASKS))
    files = {"manifest.yaml": json.dumps(manifest).encode(), "tasks.jsonl": rows.encode()}
    return keyed_pack("ConfigMap", PACK, files)


class NodeRun(NamedTuple):
    """A run on the node.

    Attributes:
        own: The release in whose namespace it is.
        disk: Its results volume.
        name: Of the BenchmarkRun.
    """

    own: Release
    disk: Disk
    name: str

    @property
    def reason(self) -> str:
        """Of the condition Succeeded."""
        return str(condition(self._seen())["reason"])

    def done(self) -> int:
        """Return how many tasks are done."""
        return tasks(self._seen()).get("done", 0)

    def running(self, role: str) -> Raw:
        """Return a Pod with this role whose containers run, as soon as there is one."""
        found: list[Raw] = []

        def is_there() -> bool:
            found[:] = [pod for pod in self.own.pods(self.name) if _runs(pod, role)]
            return bool(found)

        until(is_there, f"{self.name} has no running {role}")
        return found[0]

    def wait_for(self, what: Callable[[Raw], bool]) -> None:
        """Wait until something holds for its BenchmarkRun."""
        self.own.wait(self.name, what)

    def course(self) -> Course:
        """Return what it left, once it has ended."""
        self.own.wait_ended(self.name, 600)
        return Course(self.own.entries(self.name), self.own.records(self.name))

    def _seen(self) -> Raw:
        return api.benchmark_run(self.own.namespace, self.name)

    def left(self) -> list[str]:
        """Return the Pods that are there a while after its end, other than those being deleted."""
        names: list[str] = []

        def is_empty() -> bool:
            pods = self.own.pods(self.name)
            names[:] = [
                pod["metadata"]["name"]
                for pod in pods
                if "deletionTimestamp" not in pod["metadata"]
            ]
            return not names

        try:
            until(is_empty, "Pods are left", 60)
        except AssertionError:
            return names
        return []


def _runs(pod: Raw, role: str) -> bool:
    if pod["metadata"]["labels"].get(ROLE_LABEL) != role or pod["status"]["phase"] != "Running":
        return False
    seen = pod["status"].get("containerStatuses", [])
    return bool(seen) and all("running" in each["state"] for each in seen)


def start(own: Release, disk: Disk, **more: object) -> NodeRun:
    """Start a run of the pack, which is there.

    Args:
        own: The release in whose namespace it is.
        disk: Its results volume.
        more: Further fields of its spec.
    """
    name = f"chaos-{uuid.uuid4().hex[:6]}"
    config = {"command": agent(WORK), "allowed_domains": [places.DOCS]}
    _, source = pack()
    spec = {
        "runId": PACK,
        "pack": source,
        "harness": {"type": "command", "config": config},
        "parallelism": PARALLELISM,
        "infrastructureRetries": RETRIES,
        "retention": {"pods": "None"},
        **more,
    }
    own.create(benchmark_run(name, spec))
    return NodeRun(own, disk, name)
