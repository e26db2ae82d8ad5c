"""What supervise and the courier of a launch are told.

Source: docs/architecture.md, "supervise" and "Courier and text verifier".
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from securebench.manifests import layout
from securebench.manifests.sizes import tail_bytes

if TYPE_CHECKING:
    from securebench.plan.model import PodPolicy, RunPlan, TaskPlan

PROBE_TIMEOUT_SECONDS = 20
"""How long supervise waits for the probes to be closed."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One command that supervise runs."""

    name: str
    command: tuple[str, ...]
    workdir: str
    timeout_seconds: float | None


def phase_spec(phase: Phase) -> dict[str, object]:
    """Return one phase; its environment is the image's."""
    return {
        "name": phase.name,
        "command": list(phase.command),
        "workdir": phase.workdir,
        "timeout_seconds": phase.timeout_seconds,
        "env": {},
    }


def base_spec(plan: RunPlan, head: int) -> dict[str, object]:
    """Return what every ``supervise run`` is told alike.

    Args:
        plan: The run.
        head: How much of the beginning of a stream is kept.
    """
    policy: PodPolicy = plan.pods
    return {
        "streams": {
            "folder": layout.OUTPUT,
            "head_bytes": head,
            "tail_bytes": tail_bytes(plan.limits),
        },
        "probes": list(policy.probes),
        "probe_timeout_seconds": PROBE_TIMEOUT_SECONDS,
        "max_processes": policy.max_processes,
    }


def lane_spec(path: str, digest: str) -> dict[str, str]:
    """Return a lane that supervise compares with its digest before anything runs."""
    return {"path": path, "digest": digest}


def seal_spec(plan: RunPlan, task: TaskPlan, exclude: list[str]) -> dict[str, object]:
    """Return the courier's job in a harness Pod.

    Args:
        plan: The run.
        task: The task.
        exclude: Places of the workspace that never belong to a candidate.
    """
    extraction = task.extraction
    return {
        "mode": "seal",
        "extraction": {
            "mode": extraction.mode,
            "path": extraction.path,
            "kind": extraction.kind,
        },
        "limits": limits_spec(plan),
        "exclude": exclude,
    }


def collect_spec(plan: RunPlan) -> dict[str, object]:
    """Return the courier's job in a verifier Pod."""
    return {"mode": "collect", "limits": limits_spec(plan)}


def limits_spec(plan: RunPlan) -> dict[str, int]:
    """Return the bounds that the courier keeps."""
    limits: dict[str, int] = asdict(plan.limits)
    del limits["record_bytes"]
    return limits
