"""The spec of a BenchmarkRun. The docstrings below are the CRD's descriptions."""

from __future__ import annotations

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from securebench.agents.registry import provider_key
from securebench.run.api.agents import HARNESS_TYPES, HarnessType, provider_fits, without_provider
from securebench.run.api.base import (
    ENV_HAS_VALUES,
    ONE_EARLIER_RUN,
    ONE_SOURCE,
    ApiModel,
    LocalReference,
)
from securebench.run.api.field_types import (
    MAX_DEADLINE_SECONDS,
    CancelMode,
    DangerousCommand,
    Digest,
    EnvName,
    Glob,
    IsolationGap,
    IsolationRequirement,
    LaneRetention,
    ObjectName,
    ObjectUid,
    PackImage,
    PackPath,
    PodRetention,
    RunId,
)
from securebench.run.api.pod_template import PodTemplate, Resources

MAX_ATTEMPTS = 100
MAX_PARALLELISM = 1000
MAX_RETRIES = 10
MAX_LIMIT = 1_000_000
MAX_BUDGET_TOKENS = 10**12
MAX_TTL_SECONDS = 10 * 365 * 86_400

MANIFEST_FILE = "manifest.yaml"
TASKS_FILE = "tasks.jsonl"
"""Files of every pack, at its root."""


class VolumePack(ApiModel):
    """A pack that was uploaded to the results volume."""

    path: PackPath
    """Folder of the pack below packs/ on the namespace's volume; no part begins with a dot."""


class KeyedPack(ApiModel):
    """A pack of less than 1 MiB whose files are the keys of a ConfigMap or Secret.

    The key hidden--tests.py is the file hidden/tests.py. The object's author decides that, not the
    author of the run.
    """

    name: ObjectName
    """Name of the ConfigMap or Secret, in the namespace of the BenchmarkRun."""


class Pack(ApiModel):
    """Where the benchmark pack comes from: exactly one of volume, configMap, secret and image."""

    volume: VolumePack | None = None
    """A folder on the namespace's volume."""
    config_map: KeyedPack | None = None
    """A ConfigMap; anyone who may read ConfigMaps can read the answers."""
    secret: KeyedPack | None = None
    """A Secret, for packs whose answers must not be readable with `get configmaps`; labelled
    securebench.dev/usable-by-runs: pack."""
    image: PackImage | None = None
    """An image of the pack by its digest: registry/repository[:tag]@sha256:..., in a registry that
    the chart's settings.packRegistries lists. Only the operator pulls it."""
    digest: Digest | None = None
    """Reject the run unless the pack has this digest."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = (self.volume, self.config_map, self.secret, self.image)
        if sum(source is not None for source in sources) != 1:
            raise ValueError(ONE_SOURCE)
        return self


class Harness(ApiModel):
    """What produces the candidates."""

    type: Annotated[HarnessType, Field(description=HARNESS_TYPES)]
    config: dict[str, object] = Field(
        default_factory=dict,
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )
    """harness.config of the tester YAML with the same key names (command, timeout_seconds, ...).
    The operator validates it and rejects unknown keys with InvalidSpec."""
    env: Annotated[
        tuple[EnvName, ...],
        Field(max_length=64, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = ()
    """Names of environment variables for the harness; their values are keys of secretRef."""
    secret_ref: LocalReference | None = None
    """Secret with the values of env, labelled securebench.dev/usable-by-runs: "true". The agent can
    read these values, and the record says so."""

    @model_validator(mode="after")
    def _env_has_values(self) -> Self:
        if self.env and self.secret_ref is None:
            raise ValueError(ENV_HAS_VALUES)
        return self


class Provider(ApiModel):
    """The key of the harness's model provider."""

    secret_ref: LocalReference
    """Secret with the provider's key, labelled securebench.dev/usable-by-runs: gateway (or "true").
    Only the gateway mounts it."""


class VerificationSettings(ApiModel):
    """The tester's policy for verifiers."""

    disallow_dangerous_commands: bool = True
    """Reject checks that need a dangerous command."""
    deny_commands: Annotated[
        tuple[DangerousCommand, ...],
        Field(max_length=8, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = ()
    """Dangerous commands that stay denied when the others are allowed."""


class TaskSelector(ApiModel):
    """Which rows of the pack run."""

    limit: Annotated[int, Field(ge=1, le=MAX_LIMIT)] | None = None
    """Only the first rows of the task file; all by default."""
    include: Annotated[
        tuple[Glob, ...],
        Field(max_length=1000, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = ("*",)
    """Task ids to run: shell patterns with *, ? and [abc], case-sensitive."""
    exclude: Annotated[
        tuple[Glob, ...],
        Field(max_length=1000, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = ()
    """Task ids to leave out, with the same patterns as include; takes precedence over it."""


class Isolation(ApiModel):
    """Whether the network isolation of the Pods must be proven, and what it may leave open."""

    require: IsolationRequirement = IsolationRequirement.VERIFIED
    """Verified: a canary Pod proves before the first task that nothing can be reached. Declared: no
    canary, unless the runtime class must be a sandbox; every record says so."""
    allow: Annotated[
        tuple[IsolationGap, ...],
        Field(max_length=4, json_schema_extra={"x-kubernetes-list-type": "set"}),
    ] = ()
    """Node: TCP addresses of the operator's node may be reachable, for network plugins that always
    let a Pod reach its own node; every record says whether they were."""

    @property
    def is_node_allowed(self) -> bool:
        """Whether Pods of the run may reach the node."""
        return IsolationGap.NODE in self.allow


class RunRetention(ApiModel):
    """What is kept after a task or the run has finished."""

    pods: PodRetention = PodRetention.FAILED
    """Which finished Pods are kept for inspection until the BenchmarkRun is deleted."""
    lanes: LaneRetention = LaneRetention.DELETE
    """Whether the task's inputs stay on the volume."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=MAX_TTL_SECONDS)] | None = None
    """Seconds after its end at which the BenchmarkRun is deleted; never by default. Results
    stay on the volume."""


class ResumeFrom(ApiModel):
    """An earlier run to resume."""

    run: ObjectName
    """Name of the earlier BenchmarkRun. Only attempts without a score run again; pack, harness
    and verifier must have the same digests."""
    uid: ObjectUid | None = None
    """UID of that run; needed where several runs on the volume had its name."""


class Budget(ApiModel):
    """What all launches together may use of the model provider."""

    tokens: Annotated[int, Field(ge=1, le=MAX_BUDGET_TOKENS)]
    """Tokens, input and output together. When they are used up, the gateway refuses further
    requests: use exceeds the budget by one request at most for each launch in flight, and by
    more only if the gateway is killed."""


class RunTemplate(ApiModel):
    """What a run may leave to its defaults; the runs of a BenchmarkSuite share it."""

    verification: VerificationSettings = VerificationSettings()
    """The tester's policy for verifiers."""
    task_selector: TaskSelector = TaskSelector()
    """Which rows of the pack run."""
    parallelism: Annotated[int, Field(ge=1, le=MAX_PARALLELISM)] = 4
    """Maximum number of concurrent attempts."""
    infrastructure_retries: Annotated[int, Field(ge=0, le=MAX_RETRIES)] = 2
    """Launches beyond the first after infrastructure failures; wrong answers are never retried."""
    provider_retries: Annotated[int, Field(ge=0, le=MAX_RETRIES)] = 2
    """Launches beyond the first after an outage of the model provider. While it has answered no
    request of the run, the run waits and launches without bound; with 0 it does not wait."""
    budget: Budget | None = None
    """What the run's launches together may use of the model provider; no bound by default. A run
    that uses it up ends with BudgetExhausted; attempts that it cut short are cancelled."""
    resources: Resources = Resources()
    """Resources of the harness and the check container."""
    pod_template: PodTemplate = PodTemplate()
    """Where the run's Pods are scheduled."""
    isolation: Isolation = Isolation()
    """Whether the network isolation of the Pods must be proven, and what it may leave open."""
    active_deadline_seconds: Annotated[int, Field(ge=1, le=MAX_DEADLINE_SECONDS)] = 86_400
    """Seconds after which the whole run is ended."""
    retention: RunRetention = RunRetention()
    """What is kept after a task or the run has finished."""


class Regrade(ApiModel):
    """An earlier run whose sealed candidates are verified again."""

    run: RunId
    """Name of the earlier BenchmarkRun, or its run id. No agent runs: pack is graded with as it is
    now, and may differ from that run's in hidden data and tests only; harness and attempts must be
    the same. Attempts without a sealed candidate keep their outcome."""
    uid: ObjectUid | None = None
    """UID of that run; needed where several runs on the volume have that name or run id."""


class BenchmarkRunSpec(RunTemplate):
    """What to run.

    All fields except suspend, cancel, parallelism, activeDeadlineSeconds and retention are
    immutable.
    """

    field_path: ClassVar[str] = "spec"

    run_id: RunId | None = None
    """The run_id of the records; by default the BenchmarkRun's name."""
    pack: Pack
    """The benchmark pack."""
    harness: Harness
    """What produces the candidates."""
    provider: Provider | None = None
    """The key of the model provider; required unless harness.config.provider is without a key."""
    attempts: Annotated[int, Field(ge=1, le=MAX_ATTEMPTS)] = 1
    """Independent attempts per task, all of which count (pass@k)."""
    suspend: bool = False
    """Start nothing new; launches in progress run to completion."""
    cancel: CancelMode = CancelMode.NONE
    """Graceful: start nothing new, let launches in progress complete. Immediate: end at once. It
    cannot be undone."""
    resume_from: ResumeFrom | None = None
    """An earlier run to resume."""
    regrade: Regrade | None = None
    """An earlier run to grade again, without its agent; not together with resumeFrom."""

    @model_validator(mode="after")
    def _one_earlier_run(self) -> Self:
        if self.resume_from is not None and self.regrade is not None:
            raise ValueError(ONE_EARLIER_RUN)
        return self

    @model_validator(mode="after")
    def _provider_fits(self) -> Self:
        if self.provider is not None and self.harness.type in without_provider():
            raise ValueError(provider_fits())
        key = provider_key(self.harness.type, self.harness.config)
        if self.provider is not None and not key:
            raise ValueError("provider.secretRef: harness.config.provider.key names no key in it")
        if self.provider is None and key:
            raise ValueError(f"harness type {self.harness.type} needs provider.secretRef")
        return self
