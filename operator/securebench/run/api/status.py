"""The status of a BenchmarkRun: a bounded summary on which no decision is based.

First come the conditions, which a BenchmarkSuite has too: types, reasons, end states and updates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from securebench.clock import rfc3339
from securebench.run.api.field_types import ApiModel

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


MAX_FAILED_TASKS = 20
"""Failed task ids shown in status; the records have all of them."""

MAX_REASONS = 64
"""Bound on ``failureReasons``; above the number of values of failure_reason."""

MAX_LOSS_REASON = 32
"""Characters of a reason there."""

MAX_LOSSES = 12
"""Bound on ``lostLaunches``, of which the most frequent are kept."""

MAX_PASS_AT_K = 16
"""Bound on ``passAtK``; above the number of k that are listed."""

MAX_TASK_ID = 256
"""Characters of a task id in status; longer ids are truncated."""

Count = Annotated[int, Field(ge=0)]
ShortText = Annotated[str, Field(max_length=256)]
Time = Annotated[str, Field(max_length=32, json_schema_extra={"format": "date-time"})]


class Resolved(ApiModel):
    """What the run was bound to when it started."""

    run_id: Annotated[str, Field(max_length=512)] | None = None
    """The run_id of the records."""
    pack: ShortText | None = None
    """Id of the pack, from its manifest."""
    pack_digest: ShortText | None = None
    """Digest of the pack."""
    harness_digest: ShortText | None = None
    """Digest of the harness's type, variable names, configuration and domains."""
    policy_digest: ShortText | None = None
    """Digest of the verification policy."""
    verifier_version: ShortText | None = None
    """Version of the verifiers."""
    operator_version: ShortText | None = None
    """Version of the operator."""
    pack_audit: ShortText | None = None
    """Result of the latest audit of this pack when the run started: passed, failed or none."""


class TaskCounts(ApiModel):
    """Attempts of all tasks, by outcome."""

    total: Count = 0
    """Attempts of the whole run."""
    done: Count = 0
    """Finished attempts."""
    active: Count = 0
    """Attempts in progress."""
    scored: Count = 0
    """Attempts on which the verifier reached a verdict."""
    agent: Count = 0
    """Attempts without a usable candidate, or beyond the agent's time limit; counted as failed."""
    resource: Count = 0
    """Attempts that hit a declared resource limit; counted as failed."""
    verifier: Count = 0
    """Attempts whose verifier failed; not scored."""
    infrastructure: Count = 0
    """Attempts lost to the cluster; not scored."""
    provider: Count = 0
    """Attempts lost to the model provider; not scored."""
    cancelled: Count = 0
    """Attempts cancelled before they had a result."""
    unverified: Count = 0
    """Attempts of a family that has no verifier."""


class PassRate(ApiModel):
    """Share of verified attempts that passed, with 95 % interval; decimals as strings."""

    value: ShortText
    """Passed divided by verified."""
    low: ShortText
    """Lower end of the interval."""
    high: ShortText
    """Upper end of the interval."""


class StatusPassAtK(PassRate):
    """Probability that at least one of k attempts passes; 95 % interval, decimals as strings."""

    value: ShortText
    """Averaged over the tasks."""
    k: Annotated[int, Field(ge=1)]
    """Number of attempts."""
    tasks: Count
    """Tasks in the average, the same for every k."""


class MeanReward(ApiModel):
    """Mean score of the verdicts, with 95 % interval; decimals as strings."""

    value: ShortText
    """Mean over all attempts with a verdict."""
    low: ShortText
    """Lower end of the interval."""
    high: ShortText
    """Upper end of the interval."""


class Score(ApiModel):
    """The result so far."""

    passed: Count = 0
    """Attempts that passed."""
    verified: Count = 0
    """Attempts with a verdict."""
    score_sum: ShortText = "0.0"
    """Sum of all scores, a decimal as a string."""
    pass_rate: PassRate | None = None
    """Absent while nothing is verified."""
    pass_at_k: (
        Annotated[
            tuple[StatusPassAtK, ...],
            Field(
                max_length=MAX_PASS_AT_K,
                json_schema_extra={
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["k"],
                },
            ),
        ]
        | None
    ) = None
    """pass@1 to pass@n, once the run has ended; absent with one attempt per task."""
    mean_reward: MeanReward | None = None
    """Absent in a run whose verifiers leave no rewards."""


class ReasonCount(ApiModel):
    """Number of attempts with one failure_reason."""

    reason: ShortText
    """The failure_reason of their records."""
    count: Count
    """Number of attempts."""


class LaunchCount(ApiModel):
    """Number of launches that were lost for one reason."""

    reason: Annotated[str, Field(max_length=MAX_LOSS_REASON)]
    """Why: a failure_reason of outcome infrastructure or provider."""
    count: Count
    """Number of launches."""


class StatusUsage(ApiModel):
    """Model provider usage of the run's launches, including lost ones."""

    requests: Count = 0
    """Requests sent to the provider."""
    input_tokens: Count = 0
    """Tokens of all requests, cached ones included."""
    cached_tokens: Count = 0
    """Part of the input that came from the provider's cache."""
    output_tokens: Count = 0
    """Tokens of all answers."""
    budget_tokens: Count | None = None
    """Budget of the run; absent without one."""
    budget_used_tokens: Count | None = None
    """What is used of the budget, by launches in progress too; absent without a budget."""


class Results(ApiModel):
    """Where the results are."""

    path: Annotated[str, Field(max_length=512)]
    """Path of candidates.jsonl on the namespace's volume."""
    records: Count = 0
    """Lines of the file."""
    sha256: ShortText | None = None
    """Digest of the file once it is sealed."""
    published_sha256: ShortText | None = None
    """Digest of the published records, which viewers may fetch; absent for audits and before the
    end."""


class BenchmarkRunStatus(ApiModel):
    """Status as reported by the operator."""

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """Generation of the spec that this status is based on."""
    start_time: Time | None = None
    """When the operator started the run."""
    completion_time: Time | None = None
    """When the run ended."""
    resolved: Resolved | None = None
    """What the run was bound to when it started."""
    tasks: TaskCounts | None = None
    """Attempts of all tasks, by outcome."""
    score: Score | None = None
    """The result so far."""
    usage: StatusUsage | None = None
    """Model provider usage of the run's launches; absent without a provider."""
    results: Results | None = None
    """Where the results are."""
    failed_tasks: Annotated[
        tuple[Annotated[str, Field(max_length=MAX_TASK_ID)], ...],
        Field(max_length=MAX_FAILED_TASKS, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """Ids of the first failed tasks."""
    failure_reasons: Annotated[
        tuple[ReasonCount, ...],
        Field(
            max_length=MAX_REASONS,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["reason"],
            },
        ),
    ] = ()
    """Number of attempts by failure_reason, the most frequent first."""
    lost_launches: Annotated[
        tuple[LaunchCount, ...],
        Field(
            max_length=MAX_LOSSES,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["reason"],
            },
        ),
    ] = ()
    """Number of launches that the cluster or the model provider lost, by reason, the most frequent
    first; most of them were repeated."""
    noisy_launches: Count | None = None
    """Number of launches that met a memory or CPU limit, whatever became of them; absent without
    one."""
    conditions: Annotated[
        tuple[Condition, ...],
        Field(
            max_length=8,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["type"],
            },
        ),
    ] = ()
    """Succeeded, Complete, Ready, Stalled, Suspended, IsolationVerified, ResultsSealed."""
