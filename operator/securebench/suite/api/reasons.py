"""Reasons of a suite's conditions."""

from __future__ import annotations

from enum import StrEnum

from securebench.run.api.status import Reason


class SuiteReason(StrEnum):
    """Why a condition of a BenchmarkSuite has its status."""

    RUNNING = Reason.RUNNING.value
    COMPLETED = Reason.COMPLETED.value
    INVALID_SPEC = Reason.INVALID_SPEC.value
    SUSPENDED = Reason.SUSPENDED.value
    NOT_SUSPENDED = Reason.NOT_SUSPENDED.value
    QUOTA_EXCEEDED = Reason.QUOTA_EXCEEDED.value
    FORBIDDEN = Reason.FORBIDDEN.value
    REGISTRY_UNAVAILABLE = Reason.REGISTRY_UNAVAILABLE.value
    STORAGE_UNAVAILABLE = Reason.STORAGE_UNAVAILABLE.value
    INTERNAL = Reason.INTERNAL.value
    SCHEDULED = "Scheduled"
    CLOCK_SET_BACK = "ClockSetBack"
    CELLS_INVALID = "CellsInvalid"
    CELLS_FAILED = "CellsFailed"
    GATES_PASSED = "GatesPassed"
    GATES_FAILED = "GatesFailed"
    GATES_UNDECIDED = "GatesUndecided"
