"""Attacks, twins and honest runs as tasks; many of them go in one BenchmarkRun."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from support.release import Raw

IMAGE = "python:3.11-slim"
TASK_SECONDS = 180
"""Time limit of an agent: seconds of work, beside runs that take both cores of a small node."""
RUN_AGENT = """\
import json
task = json.load(open("task.json"))
script = next(task[key] for key in ("instructions", "prompt", "question") if key in task)
exec(compile(script, "agent", "exec"), {"__name__": "__main__"})
"""
"""The harness of every batch: the public text of a task is the program of its agent."""

_SCRIPT_KEYS = {
    "code_completion": "prompt",
    "free_response": "prompt",
    "multiple_choice": "question",
    "repo_patch": "instructions",
    "short_answer": "question",
    "terminal_task": "instructions",
}


@dataclass(frozen=True, slots=True)
class Weakening:
    """One control taken off every Pod of a run, when the API server admits it.

    Args:
        patches: CEL expressions of type JSONPatch over ``object``, the Pod. The first that fails
            refuses the Pod.
        role: Which Pods: ``harness`` or ``verifier``.
    """

    patches: tuple[str, ...]
    role: str = "harness"


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Tasks of one family that run side by side in one BenchmarkRun.

    Args:
        name: Name of the run; unique over the suite.
        family: Family of every task.
        defaults: More of the manifest's ``defaults``; ``environment`` is merged.
        spec: More of the BenchmarkRun's spec; replaces what stands there by default.
        files: More files of the pack, by path.
        weakening: For twins; such a batch runs in a namespace of its own kind.
        ended: ``status`` that the run's condition Succeeded must have at its end.
    """

    name: str
    family: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, bytes] = field(default_factory=dict)
    weakening: Weakening | None = None
    ended: str = "True"

    def task(
        self,
        name: str,
        *,
        agent: str = "",
        candidate: str | None = None,
        given: Mapping[str, Any] | None = None,
        grading: Mapping[str, Any] | None = None,
        **row: Any,
    ) -> Trial:
        """Return one task.

        Args:
            name: Its id.
            agent: Python program of the agent; it runs in the workspace.
            candidate: Instead of a program: the text that the agent prints.
            given: More of the row's ``input``.
            grading: The row's ``eval``.
            row: More of the row.
        """
        if candidate is not None:
            agent = f"import sys\nsys.stdout.write({candidate!r})\n"
        inputs = {_SCRIPT_KEYS[self.family]: agent or "pass", **(given or {})}
        return Trial(self, {"id": name, "input": inputs, "eval": dict(grading or {}), **row})

    def pack(self, rows: Sequence[Raw]) -> Mapping[str, bytes]:
        """Return the files of the pack with these rows."""
        defaults: Raw = {"family": self.family, **self.defaults}
        environment = {
            "image": IMAGE,
            "timeout_seconds": TASK_SECONDS,
            **defaults.get("environment", {}),
        }
        manifest = {
            "id": self.name,
            "version": 1,
            "defaults": {**defaults, "environment": environment},
        }
        tasks = "".join(json.dumps(row) + "\n" for row in rows)
        return {
            "manifest.yaml": json.dumps(manifest).encode(),
            "tasks.jsonl": tasks.encode(),
            **self.files,
        }

    def run_spec(self) -> Raw:
        """Return the BenchmarkRun's spec without the pack."""
        return {
            "harness": {
                "type": "command",
                "config": {"command": ["python3", "-c", RUN_AGENT]},
            },
            "isolation": {"require": "Declared"},
            "parallelism": 6,
            **self.spec,
        }


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """One task of a batch.

    Attributes:
        batch: Where it runs.
        row: Its row of the pack.
    """

    batch: Batch
    row: Raw

    @property
    def name(self) -> str:
        """Its task id."""
        name: str = self.row["id"]
        return name
