"""What a verifier Pod judges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from securebench.benchmark.pack.lane_plan import LaneSet
    from securebench.run.plan.model import LaunchKey, TaskPlan
    from securebench.run.state.attempts import SealedCandidate


@dataclass(frozen=True, slots=True)
class Member:
    """One candidate to judge; only those of text families share a Pod.

    Attributes:
        task: It has a verifier.
        launch: Role ``verifier``.
        lanes: What lies on the volume for the task.
        candidate: What the harness left; it has a file.
    """

    task: TaskPlan
    launch: LaunchKey
    lanes: LaneSet
    candidate: SealedCandidate
