"""Enums of the BenchmarkRun API."""

from __future__ import annotations

from enum import StrEnum


class DangerousCommand(StrEnum):
    """A command that needs a capability in the verifier container."""

    CHROOT = "chroot"


class IsolationRequirement(StrEnum):
    """Whether the network isolation of a run must be proven."""

    VERIFIED = "Verified"
    DECLARED = "Declared"


class IsolationGap(StrEnum):
    """What may stay reachable under the network policy, if the run allows it."""

    NODE = "Node"


class CancelMode(StrEnum):
    """How a run is cancelled."""

    NONE = ""
    GRACEFUL = "Graceful"
    IMMEDIATE = "Immediate"


class PodRetention(StrEnum):
    """Which finished Pods are kept."""

    ALL = "All"
    FAILED = "Failed"
    NONE = "None"


class LaneRetention(StrEnum):
    """What happens to a finished task's inputs on the volume."""

    DELETE = "Delete"
    KEEP = "Keep"


class TolerationOperator(StrEnum):
    """How a toleration matches a taint's value."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    """Effect of a taint; the empty string matches all."""

    ANY = ""
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"
