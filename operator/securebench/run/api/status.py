"""The status of a BenchmarkRun: a bounded summary on which no decision is based."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from securebench.run.api.base import ApiModel
from securebench.run.api.conditions import Condition

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
