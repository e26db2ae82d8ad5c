"""Short runs of sums that a test starts by itself."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from support.release import Raw, Release, benchmark_run, keyed_pack

NO_IMAGE = f"python@md5:{'0' * 32}"
"""An image name of the right form that every kubelet refuses: InvalidImageName."""

STUCK = "echo begun; trap : TERM; sleep 300 & wait; sleep 300"
"""An agent that ends only by force."""

MANIFEST = b"""\
id: control
version: 1
defaults:
  family: short_answer
  environment: {image: "python:3.11-slim", timeout_seconds: 300}
"""


def row(name: str, **more: object) -> Raw:
    return {
        "id": name,
        "input": {"question": "What is 2 + 2?"},
        "eval": {"accepted_answers": ["4"]},
        **more,
    }


def begin(release: Release, rows: Sequence[Mapping[str, Any]], command: str, **spec: object) -> str:
    """Start a run of these rows and return its name.

    Args:
        release: Where.
        rows: Of its pack.
        command: Of its harness.
        spec: More of its spec, or in place of what stands there; ``digest``: pins the pack's.
    """
    name = f"run-{uuid.uuid4().hex[:6]}"
    tasks = "".join(json.dumps(item) + "\n" for item in rows).encode()
    files = {"manifest.yaml": MANIFEST, "tasks.jsonl": tasks}
    pack, source = keyed_pack("ConfigMap", f"{name}-pack", files)
    digest = spec.pop("digest", None)
    fields = {
        "pack": source if digest is None else {**source, "digest": digest},
        "harness": {"type": "command", "config": {"command": command}},
        "isolation": {"require": "Declared"},
        **spec,
    }
    release.create(pack, benchmark_run(name, fields))
    return name


def rows(count: int) -> list[Raw]:
    return [row(f"task-{number}") for number in range(count)]


def tasks(run: Raw) -> Mapping[str, int]:
    counts: Mapping[str, int] = run.get("status", {}).get("tasks", {})
    return counts


def outcomes(release: Release, run: str) -> list[str]:
    return [record["outcome"] for record in release.records(run)]


def is_running(release: Release, run: str) -> bool:
    """Whether a Pod of a run runs."""
    return any(pod["status"]["phase"] == "Running" for pod in release.pods(run))
