"""What a run does while it runs."""

from __future__ import annotations

import time

from securebench.run.state.entries import LaunchBegun
from support.release import Raw
from threats.kit.arena import Arena
from threats.kit.batch import Trial

TIME_LIMIT_SECONDS = 120
PROBING = {"canary", "control"}
ROLE = "securebench.dev/role"


def running(arena: Arena, trial: Trial, role: str, container: str) -> Raw:
    """Return a Pod of the first task of a trial's run as soon as a container of it runs."""
    release = arena.place(trial.batch).release
    deadline = time.monotonic() + TIME_LIMIT_SECONDS
    while time.monotonic() < deadline:
        for pod in release.pods(trial.batch.name):
            metadata = pod["metadata"]
            statuses = pod["status"].get("containerStatuses", [])
            is_running = any(
                each["name"] == container and "running" in each["state"] for each in statuses
            )
            is_first = metadata.get("annotations", {}).get("securebench.dev/task-index") == "0"
            if metadata["labels"][ROLE] == role and is_first and is_running:
                return pod
        time.sleep(0.2)
    raise AssertionError(f"no {role} Pod of {trial.name} ran")


def has_started(arena: Arena, trial: Trial) -> bool:
    """Return whether a run that has ended began a launch or had a Pod of a task."""
    place, run = arena.place(trial.batch), trial.batch.name
    arena.run(trial.batch)
    labels = [state["metadata"].get("labels", {}) for state in place.pods.states()]
    roles = {found[ROLE] for found in labels if found.get("securebench.dev/run") == run}
    assert "canary" in roles
    begun = [entry for entry in place.release.entries(run) if isinstance(entry, LaunchBegun)]
    assert bool(begun) == bool(roles - PROBING - {"gateway"})
    return bool(begun)
