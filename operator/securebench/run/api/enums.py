"""The closed lists of words in a BenchmarkRun."""

from __future__ import annotations

from enum import StrEnum


class DangerousCommand(StrEnum):
    """A command that needs a capability in the verifier container."""

    CHROOT = "chroot"


class IsolationRequirement(StrEnum):
    """How sure a run must be that its Pods have no network."""

    VERIFIED = "Verified"
    DECLARED = "Declared"


class IsolationGap(StrEnum):
    """What a network plugin may leave open when the run allows it."""

    NODE = "Node"


class CancelMode(StrEnum):
    """How a run is cancelled."""

    NONE = ""
    GRACEFUL = "Graceful"
    IMMEDIATE = "Immediate"


class PodRetention(StrEnum):
    """Which finished Pods stay."""

    ALL = "All"
    FAILED = "Failed"
    NONE = "None"


class LaneRetention(StrEnum):
    """What happens to a finished task's inputs on the volume."""

    DELETE = "Delete"
    KEEP = "Keep"


class TolerationOperator(StrEnum):
    """How a toleration compares."""

    EXISTS = "Exists"
    EQUAL = "Equal"


class TaintEffect(StrEnum):
    """What a taint does; the empty string matches all."""

    ANY = ""
    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"
