"""What launches of a run wait for, as its loop tells it, by the Pods that its journal names."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from securebench.controller.exec.journal_entries import entry_numbers
from securebench.controller.volume.store import read_launch_waits
from securebench.protocol.launch_waits import SharedWait
from securebench.run.plan.keys import LaunchKey, Role, pod_name


def told_waits(folder: Path) -> Mapping[str, SharedWait]:
    """Return what the Pods of a run wait for, by their names.

    Args:
        folder: The run's folder.
    """
    return {pod: wait for wait in read_launch_waits(folder) for pod in wait.pods}


def wait_fields(wait: SharedWait | None) -> dict[str, object]:
    """Return what an answer says of a launch that waits; nothing of one that does not."""
    return {} if wait is None else {"wait": wait.message, "has_begun": wait.has_begun}


def begun_pod(entry: Mapping[str, object], uid: str) -> str:
    """Return the name of the Pod of a launch that begins, which may be that of its batch.

    Args:
        entry: The journal's entry of the launch.
        uid: Uid of the BenchmarkRun.
    """
    match entry_numbers(entry, "batch") or entry_numbers(entry, "launch"):
        case [int(task), int(attempt), str(role), int(launch)]:
            return pod_name(uid, LaunchKey(task, attempt, Role(role), launch))
    return ""
