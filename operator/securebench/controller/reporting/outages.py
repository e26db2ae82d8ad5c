"""Transient errors that runs and suites retry, and the reason reported for each."""

from __future__ import annotations

from typing import Final

from securebench.cluster.port import Forbidden, QuotaExceeded
from securebench.errors import ClusterError, RegistryUnavailableError, StorageError
from securebench.run.api.conditions import Reason
from securebench.run.decide.refusals import REMEDY
from securebench.run.observe.waiting import WaitReason

Outage = ClusterError | RegistryUnavailableError | StorageError | OSError

OUTAGES: Final = (ClusterError, RegistryUnavailableError, StorageError, OSError)
"""For ``except``: errors of the surroundings, retried with back-off for as long as the object
exists. Anything else is invalid input or a defect."""


def outage_reason(error: Outage) -> WaitReason:
    """Return why a run or suite that met an outage makes no progress.

    Source: contract 21.20.
    """
    match error:
        case QuotaExceeded():
            return WaitReason(Reason.QUOTA_EXCEEDED, error.reason)
        case Forbidden():
            return WaitReason(Reason.FORBIDDEN, f"{error.reason}; {REMEDY}")
        case RegistryUnavailableError():
            return WaitReason(Reason.REGISTRY_UNAVAILABLE, error.reason)
        case ClusterError():
            return WaitReason(Reason.INTERNAL, f"the API server: {error}")
        case StorageError():
            problem = error.reason
        case OSError():
            problem = error.strerror or str(error)
    return WaitReason(Reason.STORAGE_UNAVAILABLE, f"the results volume: {problem}")
