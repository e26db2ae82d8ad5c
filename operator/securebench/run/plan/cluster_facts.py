"""What only the cluster can tell of a run, beside the plan, which never changes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class PodUserNamespaces(StrEnum):
    """Whether launch Pods get a user namespace of their own."""

    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What manifests of launches need besides the plan.

    Attributes:
        gateway: Address of the run's gateway; empty for a run without one, or before its Service
            is there.
        user_namespaces: As the canary found; OFF before that.
        max_processes: Process limit per user; 0 without a user namespace, where the limit would
            count other Pods' processes too.
    """

    gateway: str
    user_namespaces: PodUserNamespaces
    max_processes: int
