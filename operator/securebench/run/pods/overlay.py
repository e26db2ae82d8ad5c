"""The tool of a model provider beside a task image: volumes, mounts and what supervise runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from securebench.protocol.supervise import Phase
from securebench.reasons import FailurePhase
from securebench.run.pods.parts import sizes, volumes
from securebench.run.pods.parts.frame import TASK_IMAGE_PULL_POLICY

if TYPE_CHECKING:
    from securebench.run.plan.model import AgentPlan, RunPlan, TaskPlan
    from securebench.run.pods.parts.frame import Manifest

OVERLAY: Final = "overlay"
HARNESS_PHASE: Final = "harness"
"""The agent's own command; when the preflight before it fails nothing is known of the agent
(contract 12.3)."""


def overlay_volumes(agent: AgentPlan) -> list[Manifest]:
    """Return the tool's image as a read-only volume, and its home."""
    image = {"reference": agent.overlay, "pullPolicy": TASK_IMAGE_PULL_POLICY}
    return [
        {"name": OVERLAY, "image": image},
        volumes.empty_dir(volumes.HOME, sizes.AGENT_HOME_BYTES),
    ]


def overlay_mounts(agent: AgentPlan) -> list[Manifest]:
    """Return where the harness container has both."""
    return [
        volumes.mount(OVERLAY, agent.overlay_path, read_only=True),
        volumes.mount(volumes.HOME, agent.home),
    ]


def harness_phases(plan: RunPlan, task: TaskPlan) -> list[Phase]:
    """Return what supervise runs in the harness container, in order."""
    agent = plan.harness.agent
    command = task.command or plan.harness.command
    if agent is None:
        own = plan.harness.environment
        return [Phase(HARNESS_PHASE, command, task.workdir, task.timeout_seconds, env=own)]
    return [
        Phase(
            name,
            argv,
            task.workdir,
            task.timeout_seconds,
            env=agent.environment,
            search=agent.search,
        )
        for name, argv in ((FailurePhase.PREFLIGHT, agent.preflight), (HARNESS_PHASE, command))
        if argv
    ]


def harness_seconds(plan: RunPlan, task: TaskPlan) -> float | None:
    """Return how long all phases may take together, or None for no limit.

    The preflight has the limit of the harness, counted separately (contract 15.8).
    """
    if task.timeout_seconds is None:
        return None
    return task.timeout_seconds * len(harness_phases(plan, task))
