"""The status of a BenchmarkRun: a bounded summary that nothing reads back to decide."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from securebench.run.api.base import ApiModel
from securebench.run.api.conditions import Condition

MAX_FAILED_TASKS = 20
"""Failed task ids shown in status; the records have all of them."""

MAX_REASONS = 64
"""More than there are values of failure_reason."""

MAX_TASK_ID = 256
"""Characters of a task id in status; longer ids are cut by the writer."""

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
    """Digest of the harness' type, variable names, configuration and domains."""
    policy_digest: ShortText | None = None
    """Digest of the verification policy."""
    verifier_version: ShortText | None = None
    """Version of the verifiers."""
    operator_version: ShortText | None = None
    """Version of the operator."""
    pack_audit: ShortText | None = None
    """What the newest audit of this pack said when the run started: passed, failed or none."""


class TaskCounts(ApiModel):
    """Attempts of all tasks, by outcome."""

    total: Count = 0
    """Attempts of the whole run."""
    done: Count = 0
    """Finished attempts."""
    active: Count = 0
    """Attempts that run now."""
    scored: Count = 0
    """A verifier reached a verdict."""
    agent: Count = 0
    """No usable candidate, or a time limit of the agent; counts as failed."""
    resource: Count = 0
    """A declared limit was hit; counts as failed."""
    verifier: Count = 0
    """The verifier itself broke; not scored."""
    infrastructure: Count = 0
    """The cluster broke; not scored."""
    provider: Count = 0
    """The model provider broke; not scored."""
    cancelled: Count = 0
    """Cancelled before there was a result."""
    unverified: Count = 0
    """The harness ran, and the family has no verifier."""


class PassRate(ApiModel):
    """Share of passed attempts with its 95 % Wilson interval, decimals as strings."""

    value: ShortText
    """Passed by verified."""
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
    """Sum of all scores, a decimal as string."""
    pass_rate: PassRate | None = None
    """Absent while nothing is verified."""


class ReasonCount(ApiModel):
    """How often attempts ended for a reason."""

    reason: ShortText
    """The failure_reason of their records."""
    count: Count
    """So many attempts."""


class StatusUsage(ApiModel):
    """What the run's launches asked the model provider, lost ones included."""

    requests: Count = 0
    """Requests sent to the provider."""
    input_tokens: Count = 0
    """Tokens of all requests, cached ones included."""
    cached_tokens: Count = 0
    """Part of the input that came from the provider's cache."""
    output_tokens: Count = 0
    """Tokens of all answers."""


class Results(ApiModel):
    """Where the results lie."""

    path: Annotated[str, Field(max_length=512)]
    """Path of candidates.jsonl on the namespace's volume."""
    records: Count = 0
    """Lines of the file."""
    sha256: ShortText | None = None
    """Digest of the file once it is sealed."""
    published_sha256: ShortText | None = None
    """Digest of what of it viewers may fetch; absent for audits and before the end."""


class BenchmarkRunStatus(ApiModel):
    """What the operator reports. Written by the operator only."""

    observed_generation: Annotated[int, Field(ge=0)] | None = None
    """Generation of the spec that this status speaks of."""
    start_time: Time | None = None
    """When the operator took up the run."""
    completion_time: Time | None = None
    """When the run ended."""
    resolved: Resolved | None = None
    """What the run was bound to when it started."""
    tasks: TaskCounts | None = None
    """Attempts of all tasks, by outcome."""
    score: Score | None = None
    """The result so far."""
    usage: StatusUsage | None = None
    """What the run's launches asked the model provider; absent without one."""
    results: Results | None = None
    """Where the results lie."""
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
    """Why attempts have no pass, where their records have a failure_reason; the commonest first."""
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
