"""The spec of a BenchmarkRun. The docstrings below are the CRD's descriptions.

Harness types are an enum of the registered agents; resources and scheduling of Pods come next, then
the spec itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, Self

from pydantic import Field, GetCoreSchemaHandler, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from securebench.agents.registry import AGENTS, cli_agents, provider_key
from securebench.run.api.field_types import (
    ENV_HAS_VALUES,
    EQUAL_HAS_KEY,
    EXISTS_HAS_NO_VALUE,
    MAX_DEADLINE_SECONDS,
    ONE_EARLIER_RUN,
    ONE_SOURCE,
    ApiModel,
    CancelMode,
    DangerousCommand,
    Digest,
    EnvName,
    Glob,
    IsolationGap,
    IsolationRequirement,
    LabelKey,
    LabelValue,
    LaneRetention,
    LocalReference,
    ObjectName,
    ObjectUid,
    OptionalName,
    PackImage,
    PackPath,
    PodRetention,
    Quantity,
    RunId,
    TaintEffect,
    TolerationOperator,
    quantity,
)

MAX_ATTEMPTS = 100


MAX_PARALLELISM = 1000


MAX_RETRIES = 10


MAX_LIMIT = 1_000_000


MAX_BUDGET_TOKENS = 10**12


MAX_TTL_SECONDS = 10 * 365 * 86_400


MANIFEST_FILE = "manifest.yaml"


TASKS_FILE = "tasks.jsonl"
"""Files of every pack, at its root."""


DEFAULT_MEMORY_LIMIT = "1Gi"
"""Contract 10: the default of a sandbox."""


DEFAULT_REQUESTS: Mapping[str, str] = MappingProxyType({"cpu": "100m", "memory": "256Mi"})
"""Resource requests of a task container when the spec sets none."""


@dataclass(frozen=True, slots=True)
class _RegisteredAgent:
    """Validates that a string names a registered agent."""

    @staticmethod
    def _check(value: str) -> str:
        if value not in AGENTS:
            *names, last = map(repr, AGENTS)
            raise ValueError(f"Input should be {', '.join(names)} or {last}")
        return value

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), "enum": list(AGENTS)}


def _listed(names: Iterable[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


HARNESS_TYPES: Final = (
    f"command runs a command in the task image; {_listed(name for name, _ in cli_agents())} run"
    f" these agents there; {_listed(name for name, agent in AGENTS.items() if agent.is_audit)}"
    " audit the pack itself, in runs with the label securebench.dev/purpose: audit."
)
"""The registered agents, as the API describes them."""


HarnessType = Annotated[str, _RegisteredAgent()]
"""What produces the candidates."""


def without_provider() -> tuple[str, ...]:
    """Return the harness types that never have a model provider, sorted."""
    return tuple(sorted(name for name, agent in AGENTS.items() if agent.is_audit))


def provider_fits() -> str:
    """Return the error message for a provider that the harness type does not use."""
    return f"provider does not belong to harness types {' and '.join(without_provider())}"


def with_agents(record_schema: str) -> str:
    """Return the record schema with the fields that registered agents add to a record.

    Args:
        record_schema: JSON text; nothing in it is removed, so that records of earlier agents stay
            valid.
    """
    schema = json.loads(record_schema)
    producer = schema["properties"]["producer_metadata"]["properties"]
    producer["harness"] = {"enum": list(AGENTS)}
    for name, _ in cli_agents():
        for key in ("version", "model"):
            producer.setdefault(f"{name}_{key}", {"type": "string", "minLength": 1})
    return json.dumps(schema, indent=2) + "\n"


class Requests(ApiModel):
    """Resource requests of a container."""

    cpu: Quantity | None = None
    """Cores; by default 100m, or the limit if that is lower."""
    memory: Quantity | None = None
    """Bytes; by default 256Mi, or the limit if that is lower."""


class Limits(ApiModel):
    """Resource limits of a container."""

    cpu: Quantity | None = None
    """Cores; by default 4, or the request if that is higher."""
    memory: Quantity = DEFAULT_MEMORY_LIMIT
    """Bytes; a container that exceeds them is killed (outcome resource)."""


class Resources(ApiModel):
    """Resources of the harness and the check container."""

    requests: Requests = Requests()
    """Resource requests of the container."""
    limits: Limits = Limits()
    """Resource limits of the container."""
    workspace: Quantity = "1Gi"
    """Size of the workspace on the node's disk."""

    @model_validator(mode="after")
    def _requests_within_limits(self) -> Self:
        limits = self.limited()
        for name, request in (("cpu", self.requests.cpu), ("memory", self.requests.memory)):
            limit = limits.get(name)
            if request and limit and quantity(request) > quantity(limit):
                raise ValueError(f"requests.{name} must not exceed limits.{name} ({limit})")
        return self

    def limited(self) -> dict[str, str]:
        """Return the container's limits as Kubernetes spells them; memory is always present."""
        cpu = {"cpu": self.limits.cpu} if self.limits.cpu else {}
        return {**cpu, "memory": self.limits.memory}

    def requested(self) -> dict[str, str]:
        """Return the container's requests as Kubernetes spells them, never above the limits."""
        limits = self.limited()
        chosen = {"cpu": self.requests.cpu, "memory": self.requests.memory}
        return {
            name: chosen[name] or min(default, limits.get(name, default), key=quantity)
            for name, default in DEFAULT_REQUESTS.items()
        }


class Toleration(ApiModel):
    """A taint that the run's Pods tolerate."""

    key: LabelKey | None = None
    """Key of the taint; omitted, with operator Exists, it matches all taints."""
    operator: TolerationOperator = TolerationOperator.EQUAL
    """Exists matches any value."""
    value: LabelValue | None = None
    """Value of the taint."""
    effect: TaintEffect = TaintEffect.ANY
    """Effect of the taint; empty means all."""
    toleration_seconds: Annotated[int, Field(ge=0, le=MAX_DEADLINE_SECONDS)] | None = None
    """How long a NoExecute taint is tolerated."""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.operator is TolerationOperator.EXISTS and self.value:
            raise ValueError(EXISTS_HAS_NO_VALUE)
        if self.operator is TolerationOperator.EQUAL and self.key is None:
            raise ValueError(EQUAL_HAS_KEY)
        return self


class PodTemplate(ApiModel):
    """Where the run's Pods are scheduled.

    The administrator lists the allowed values in the chart. No security setting of a Pod can be
    changed.
    """

    runtime_class_name: OptionalName = ""
    """Runtime class, for example gvisor."""
    node_selector: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=16)
    """Labels that a node must have."""
    tolerations: Annotated[
        tuple[Toleration, ...],
        Field(max_length=16, json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """Taints that are tolerated."""
    priority_class_name: OptionalName = ""
    """Priority class."""
    image_pull_secrets: Annotated[
        tuple[LocalReference, ...],
        Field(
            max_length=8,
            json_schema_extra={
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
            },
        ),
    ] = ()
    """Secrets for pulling task images, labelled securebench.dev/usable-by-runs: "true"."""


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
