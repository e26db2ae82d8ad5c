"""Conditions of a BenchmarkRun and a BenchmarkSuite: types, reasons, end states and updates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from securebench.clock import rfc3339
from securebench.run.api.base import ApiModel

MAX_MESSAGE = 2048
"""Characters of a condition's message; keeps status below 32 KiB."""


class ConditionType(StrEnum):
    """Types of conditions, as in ``status.conditions[].type``."""

    SUCCEEDED = "Succeeded"
    COMPLETE = "Complete"
    READY = "Ready"
    STALLED = "Stalled"
    SUSPENDED = "Suspended"
    ISOLATION_VERIFIED = "IsolationVerified"
    RESULTS_SEALED = "ResultsSealed"
    RECONCILING = "Reconciling"
    GATES_PASSED = "GatesPassed"


class ConditionStatus(StrEnum):
    """Status of a condition, as Kubernetes spells it."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Reason(StrEnum):
    """Why a condition of a BenchmarkRun has its status; suites have ``SuiteReason``."""

    STARTING = "Starting"
    RUNNING = "Running"
    COMPLETED = "Completed"
    INCOMPLETE = "Incomplete"
    INVALID_SPEC = "InvalidSpec"
    PACK_INVALID = "PackInvalid"
    ISOLATION_NOT_VERIFIED = "IsolationNotVerified"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    CANCELLED = "Cancelled"
    BUDGET_EXHAUSTED = "BudgetExhausted"
    POD_REFUSED = "PodRefused"
    REGISTRY_UNAVAILABLE = "RegistryUnavailable"
    STORAGE_UNAVAILABLE = "StorageUnavailable"
    INTERNAL = "Internal"
    CANCELLING = "Cancelling"
    SUSPENDED = "Suspended"
    NOT_SUSPENDED = "NotSuspended"
    QUOTA_EXCEEDED = "QuotaExceeded"
    FORBIDDEN = "Forbidden"
    UNSCHEDULABLE = "Unschedulable"
    SCHEDULING_GATED = "SchedulingGated"
    QUEUED = "Queued"
    INPUT_MISSING = "InputMissing"
    PROBING = "Probing"
    GATEWAY_STARTING = "GatewayStarting"
    GATEWAY_FAILED = "GatewayFailed"
    VERIFIED = "Verified"
    DECLARED = "Declared"
    NOT_SEALED = "NotSealed"
    SEALED = "Sealed"


@dataclass(frozen=True, slots=True)
class EndState:
    """How a run ended, as ``Succeeded`` and as the exit code of ``securebench run``."""

    succeeded: ConditionStatus
    exit_code: int


END_STATES: Mapping[Reason, EndState] = MappingProxyType(
    {
        Reason.COMPLETED: EndState(ConditionStatus.TRUE, 0),
        Reason.INCOMPLETE: EndState(ConditionStatus.FALSE, 0),
        Reason.INVALID_SPEC: EndState(ConditionStatus.FALSE, 1),
        Reason.PACK_INVALID: EndState(ConditionStatus.FALSE, 1),
        Reason.ISOLATION_NOT_VERIFIED: EndState(ConditionStatus.FALSE, 1),
        Reason.DEADLINE_EXCEEDED: EndState(ConditionStatus.FALSE, 1),
        Reason.CANCELLED: EndState(ConditionStatus.FALSE, 1),
        Reason.BUDGET_EXHAUSTED: EndState(ConditionStatus.FALSE, 1),
        Reason.POD_REFUSED: EndState(ConditionStatus.FALSE, 1),
        Reason.GATEWAY_FAILED: EndState(ConditionStatus.FALSE, 1),
    }
)
"""The reasons that end a run. ``Internal`` and ``StorageUnavailable`` are not among them: the
operator retries for as long as the BenchmarkRun exists, and ``Succeeded`` stays Unknown.

Source: contract 21.20, decision 0001.
"""


class Condition(ApiModel):
    """One observation about the object."""

    type: Annotated[str, Field(min_length=1, max_length=64)]
    """Type of the condition."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Annotated[str, Field(min_length=1, max_length=64)]
    """Machine-readable reason for the status, in CamelCase."""
    message: Annotated[str, Field(max_length=MAX_MESSAGE)] = ""
    """Human-readable message."""
    last_transition_time: Annotated[
        str, Field(max_length=32, json_schema_extra={"format": "date-time"})
    ]
    """When the status last changed."""
    observed_generation: Annotated[int, Field(ge=0)]
    """Generation of the spec that this condition is based on."""


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """The new value of a condition; its message is truncated to ``MAX_MESSAGE``.

    The reason is a ``Reason`` for a run and a ``SuiteReason`` for a suite.
    """

    type: ConditionType
    status: ConditionStatus
    reason: StrEnum
    message: str = ""


def set_condition(
    conditions: Sequence[Condition],
    finding: ConditionUpdate,
    *,
    observed_generation: int,
    now: float,
) -> tuple[Condition, ...]:
    """Return the conditions with one of them replaced, or appended if it is new.

    Args:
        conditions: At most one of each type; the order is kept.
        finding: The new value.
        observed_generation: Generation of the spec that the value is based on.
        now: Seconds since the epoch; becomes the transition time if the status changes.
    """
    old = get_condition(conditions, finding.type)
    unchanged = old is not None and old.status is finding.status
    new = Condition(
        type=finding.type.value,
        status=finding.status,
        reason=finding.reason.value,
        message=_truncated(finding.message),
        last_transition_time=old.last_transition_time if old and unchanged else rfc3339(now),
        observed_generation=observed_generation,
    )
    if old is None:
        return (*conditions, new)
    return tuple(new if item.type == new.type else item for item in conditions)


def set_conditions(
    conditions: Sequence[Condition],
    findings: Iterable[ConditionUpdate],
    *,
    observed_generation: int,
    now: float,
) -> tuple[Condition, ...]:
    """Apply several updates in order; see ``set_condition``."""
    result = tuple(conditions)
    for finding in findings:
        result = set_condition(result, finding, observed_generation=observed_generation, now=now)
    return result


def get_condition(conditions: Sequence[Condition], kind: ConditionType) -> Condition | None:
    """Return the condition of a type, or None."""
    return next((item for item in conditions if item.type == kind.value), None)


def end_state(reason: str) -> EndState | None:
    """Return how a run with this reason ended; None if the reason does not end a run."""
    return next((state for key, state in END_STATES.items() if key.value == reason), None)


def run_end(status: str, reason: str) -> EndState | None:
    """Return how a run ended, or None while it is active.

    Args:
        status: Status of the condition ``Succeeded``, which alone decides; empty if not set yet.
        reason: Its reason; for an unknown one the exit code follows from the status.

    Source: contract 21.20.
    """
    if status not in {ConditionStatus.TRUE, ConditionStatus.FALSE}:
        return None
    succeeded = ConditionStatus(status)
    return end_state(reason) or EndState(succeeded, 0 if succeeded is ConditionStatus.TRUE else 1)


def read_conditions(raw: object) -> tuple[Condition, ...]:
    """Parse ``status.conditions``; empty if it cannot be parsed."""
    try:
        return TypeAdapter(tuple[Condition, ...]).validate_python(raw, strict=False)
    except ValidationError:
        return ()


def derived_findings(
    succeeded: ConditionUpdate,
) -> tuple[ConditionUpdate, ConditionUpdate, ConditionUpdate]:
    """Derive ``Complete``, and ``Ready`` and ``Stalled`` for kstatus, from ``Succeeded``.

    An active run is neither complete nor ready nor stalled (kstatus: InProgress), a run that
    succeeded is ready (Current), any other ended run is stalled (Failed); both are complete.

    Source: contract 21.20.
    """
    has_ended = succeeded.status is not ConditionStatus.UNKNOWN
    complete = ConditionStatus.TRUE if has_ended else ConditionStatus.FALSE
    ready = ConditionStatus.TRUE
    stalled = ConditionStatus.FALSE
    if succeeded.status is not ConditionStatus.TRUE:
        ready = ConditionStatus.FALSE
    if succeeded.status is ConditionStatus.FALSE:
        stalled = ConditionStatus.TRUE
    return (
        ConditionUpdate(ConditionType.COMPLETE, complete, succeeded.reason, succeeded.message),
        ConditionUpdate(ConditionType.READY, ready, succeeded.reason, succeeded.message),
        ConditionUpdate(ConditionType.STALLED, stalled, succeeded.reason, succeeded.message),
    )


def _truncated(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 1]}…"
