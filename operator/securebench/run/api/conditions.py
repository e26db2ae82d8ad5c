"""Conditions of a BenchmarkRun: types, reasons, end states, and how one is set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from securebench.core.clock import rfc3339
from securebench.run.api.base import ApiModel

MAX_MESSAGE = 2048
"""Characters of a condition's message, so that status stays below 32 KiB."""


class ConditionType(StrEnum):
    """What a condition speaks of."""

    SUCCEEDED = "Succeeded"
    COMPLETE = "Complete"
    READY = "Ready"
    STALLED = "Stalled"
    SUSPENDED = "Suspended"
    ISOLATION_VERIFIED = "IsolationVerified"
    RESULTS_SEALED = "ResultsSealed"


class ConditionStatus(StrEnum):
    """Status of a condition, as Kubernetes spells it."""

    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


class Reason(StrEnum):
    """Why a condition has its status."""

    STARTING = "Starting"
    RUNNING = "Running"
    COMPLETED = "Completed"
    INCOMPLETE = "Incomplete"
    INVALID_SPEC = "InvalidSpec"
    PACK_INVALID = "PackInvalid"
    ISOLATION_NOT_VERIFIED = "IsolationNotVerified"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    CANCELLED = "Cancelled"
    POD_REFUSED = "PodRefused"
    STORAGE_UNAVAILABLE = "StorageUnavailable"
    INTERNAL = "Internal"
    CANCELLING = "Cancelling"
    SUSPENDED = "Suspended"
    NOT_SUSPENDED = "NotSuspended"
    QUOTA_EXCEEDED = "QuotaExceeded"
    FORBIDDEN = "Forbidden"
    UNSCHEDULABLE = "Unschedulable"
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
        Reason.POD_REFUSED: EndState(ConditionStatus.FALSE, 1),
        Reason.GATEWAY_FAILED: EndState(ConditionStatus.FALSE, 1),
    }
)
"""The reasons with which a run ends. ``Internal`` and ``StorageUnavailable`` are none of them: what
they speak of is tried again for as long as the run is there, and ``Succeeded`` stays Unknown.

Source: contract 21.20, decision 0001.
"""


class Condition(ApiModel):
    """One observation about the run."""

    type: Annotated[str, Field(min_length=1, max_length=64)]
    """What the condition speaks of."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Annotated[str, Field(min_length=1, max_length=64)]
    """One word for programs."""
    message: Annotated[str, Field(max_length=MAX_MESSAGE)] = ""
    """One sentence for people."""
    last_transition_time: Annotated[
        str, Field(max_length=32, json_schema_extra={"format": "date-time"})
    ]
    """When status changed last."""
    observed_generation: Annotated[int, Field(ge=0)]
    """Generation of the spec that this condition speaks of."""


@dataclass(frozen=True, slots=True)
class ConditionUpdate:
    """What a condition shall say.

    Args:
        type: Which condition.
        status: Whether it holds.
        reason: Why.
        message: One sentence for people; cut at ``MAX_MESSAGE``.
    """

    type: ConditionType
    status: ConditionStatus
    reason: Reason
    message: str = ""


def set_condition(
    conditions: Sequence[Condition],
    finding: ConditionUpdate,
    *,
    observed_generation: int,
    now: float,
) -> tuple[Condition, ...]:
    """Return the conditions with one of them set.

    Args:
        conditions: At most one of each type; the order is kept.
        finding: What the condition shall say.
        observed_generation: Generation of the spec that was looked at.
        now: Seconds since the epoch; used only when the status changes.

    Returns:
        The same conditions with the one of ``finding.type`` replaced or added at the end.
    """
    old = get_condition(conditions, finding.type)
    unchanged = old is not None and old.status is finding.status
    new = Condition(
        type=finding.type.value,
        status=finding.status,
        reason=finding.reason.value,
        message=_cut(finding.message),
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
    """Return the conditions with several of them set, in the order of ``findings``."""
    result = tuple(conditions)
    for finding in findings:
        result = set_condition(result, finding, observed_generation=observed_generation, now=now)
    return result


def get_condition(conditions: Sequence[Condition], kind: ConditionType) -> Condition | None:
    """Return the condition of that type, or None."""
    return next((item for item in conditions if item.type == kind.value), None)


def end_state(reason: str) -> EndState | None:
    """Return how a run ends with this reason of ``Succeeded``, or None: no run does."""
    return next((state for key, state in END_STATES.items() if key.value == reason), None)


def run_end(status: str, reason: str) -> EndState | None:
    """Return how a run ended, or None while it goes on.

    Args:
        status: Of the condition ``Succeeded``; it alone decides. Empty before there is one.
        reason: Of the same; one that this version does not know ends with 0 or 1 by the status.

    Source: contract 21.20.
    """
    if status not in {ConditionStatus.TRUE, ConditionStatus.FALSE}:
        return None
    succeeded = ConditionStatus(status)
    return end_state(reason) or EndState(succeeded, 0 if succeeded is ConditionStatus.TRUE else 1)


def read_conditions(raw: object) -> tuple[Condition, ...]:
    """Return the conditions of a status, or none where they cannot be read.

    Args:
        raw: ``status.conditions`` as the API server has it.
    """
    try:
        return TypeAdapter(tuple[Condition, ...]).validate_python(raw, strict=False)
    except ValidationError:
        return ()


def derived_findings(
    succeeded: ConditionUpdate,
) -> tuple[ConditionUpdate, ConditionUpdate, ConditionUpdate]:
    """Return ``Complete``, and ``Ready`` and ``Stalled`` as kstatus readers expect them.

    A run that goes on is neither complete nor ready nor stalled (in progress), one that succeeded
    is ready (current), one that ended otherwise is stalled (failed); both are complete.

    Args:
        succeeded: What the condition ``Succeeded`` says.

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


def _cut(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE else f"{message[: MAX_MESSAGE - 1]}…"
