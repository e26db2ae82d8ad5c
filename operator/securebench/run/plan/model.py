"""The run plan: built once from spec, pack and settings, then frozen.

First come the keys of attempts and launches with the names of their Pods, what only the cluster can
report of a run, and what the run may reach. The plan itself follows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from securebench.protocol.candidate import RECORD_BYTES, CandidateBounds, Extraction
from securebench.protocol.gateway import PROVIDER_PORT, ProviderConfig
from securebench.protocol.volume import PackAudit
from securebench.run.api.field_types import PodRetention
from securebench.run.plan.environment import Environment

if TYPE_CHECKING:  # readers of the volume start without the reader of packs and its JSON Schema
    from securebench.benchmark.pack.oracle import ReferenceAnswer
    from securebench.benchmark.pack.task import SecureBenchTask
    from securebench.run.artifacts import PodMedium
    from securebench.run.verification.base import Verification

VERIFIER_STDERR: Final = "verifier_stderr"
"""Key of a denial's metadata that becomes a field of the record."""

_HARNESS_POD = re.compile(r"sb-([0-9a-f]+)-([0-9]{1,9})-([0-9]{1,9})h([0-9]{1,9})")


class Role(StrEnum):
    """What a Pod of a run is for."""

    HARNESS = "harness"
    VERIFIER = "verifier"
    CANARY = "canary"
    CONTROL = "control"
    GATEWAY = "gateway"


class AttemptKey(NamedTuple):
    """One logical attempt of one task: task index from 0 in pack order, attempt from 1."""

    task: int
    attempt: int


class LaunchKey(NamedTuple):
    """One Pod of one launch; launches count from 1 per attempt and role."""

    task: int
    attempt: int
    role: Role
    launch: int

    @property
    def attempt_key(self) -> AttemptKey:
        """The attempt that this launch belongs to."""
        return AttemptKey(self.task, self.attempt)


def pod_name(run_uid: str, launch: LaunchKey) -> str:
    """Return the deterministic name of a launch Pod."""
    role = launch.role.value[0]
    return f"sb-{short_uid(run_uid)}-{launch.task}-{launch.attempt}{role}{launch.launch}"


def harness_launch(run_uid: str, name: str) -> LaunchKey | None:
    """Return the harness launch whose Pod has this name, or None for another name."""
    found = _HARNESS_POD.fullmatch(name)
    if found is None or found[1] != short_uid(run_uid):
        return None
    return LaunchKey(int(found[2]), int(found[3]), Role.HARNESS, int(found[4]))


def member_name(launch: LaunchKey) -> str:
    """Return the name of a launch among those that share its Pod."""
    return f"{launch.task}-{launch.attempt}-{launch.launch}"


def short_uid(run_uid: str) -> str:
    """Return the part of a run's uid that object names contain: its first twelve hex digits."""
    return run_uid.replace("-", "")[:12]


class PodUserNamespaces(StrEnum):
    """Whether launch Pods get a user namespace of their own."""

    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """What manifests of launches need besides the plan.

    Attributes:
        gateway: Address of the run's gateway; empty for a run without one, or before its Service
            is there.
        user_namespaces: As the canary found; OFF before that.
        max_processes: Process limit per user; 0 without a user namespace, where the limit would
            count other Pods' processes too.
    """

    gateway: str
    user_namespaces: PodUserNamespaces
    max_processes: int


PROVIDER_URL: Final = f"http://127.0.0.1:{PROVIDER_PORT}"
"""Where a tool finds its provider: the sidecar of its own Pod."""


@dataclass(frozen=True, slots=True)
class ClusterProvider:
    """A model provider inside the cluster that the administrator lists.

    Attributes:
        host: DNS name of its Service.
        port: Port of the Service, as in the tester's URL.
        namespace: Namespace of its Pods.
        pod_port: Port of its Pods, which network policies are about.
    """

    host: str
    port: int
    namespace: str
    pod_port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderPlan(ProviderConfig):
    """The model provider of a run: what its gateway is told, and what only the operator knows.

    Attributes:
        secret: Name of the Secret with its API key, mounted in the gateway only; empty: no key.
        key: Key of the API key in that Secret; empty: no key.
        inside: Present if it is inside the cluster.
        title: What messages call it; empty: its name.
    """

    secret: str = ""
    key: str = ""
    inside: ClusterProvider | None = None
    title: str = ""

    @property
    def config(self) -> ProviderConfig:
        """The part that the gateway is told."""
        return ProviderConfig(
            **{each.name: getattr(self, each.name) for each in fields(ProviderConfig)}
        )


@dataclass(frozen=True, slots=True)
class EgressPlan:
    """The egress of a run's harness Pods; without a plan they have no network at all.

    Attributes:
        domains: Configured ``allowed_domains``; the proxy route is closed when empty.
        provider: Present if the harness works with a model.
    """

    domains: tuple[str, ...]
    provider: ProviderPlan | None


@dataclass(frozen=True, slots=True)
class TaskLimits(CandidateBounds):
    """Bounds on captured data and on a record (contract 15.7).

    Attributes:
        record_bytes: One line of candidates.jsonl.
    """

    record_bytes: int = RECORD_BYTES


@dataclass(frozen=True, slots=True)
class PodPolicy:
    """Settings shared by all launch Pods of a run.

    Attributes:
        image: SecureBench's Pod image (courier).
        text_verifier_image: Image of the text verifier: the operator's, which has Python and the
            scorers.
        queue: Queue that admits the Pods of launches (Kueue), or empty.
        medium: Brings artifacts into Pods and out of them.
        tools: Tree digest of the programs of task containers.
        service_account: Name of a service account without rights or token.
        requests: Resource requests of the harness and check containers.
        limits: Resource limits of the harness and check containers.
        workspace_size: Size limit of the workspace emptyDir, a Kubernetes quantity.
        runtime_class: Name or empty.
        priority_class: Name or empty.
        node_name: Node that all Pods share because the volume is ReadWriteOnce, or empty.
        probes: Addresses ``host:port`` that a harness must not reach.
        startup_allowance_seconds: Time from creation to the start of the command.
        grace_seconds: Time for sealing.
    """

    image: str
    image_pull_policy: str
    medium: PodMedium
    tools: str
    service_account: str
    requests: Mapping[str, str]
    limits: Mapping[str, str]
    workspace_size: str
    runtime_class: str
    priority_class: str
    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, object], ...]
    image_pull_secrets: tuple[str, ...]
    node_name: str
    probes: tuple[str, ...]
    startup_allowance_seconds: int
    grace_seconds: int
    text_verifier_image: str
    queue: str = ""


@dataclass(frozen=True, slots=True)
class AgentPlan:
    """How an agent from an image of its own runs in a task's image.

    Attributes:
        overlay: Image with the agent, mounted read-only at ``overlay_path``.
        overlay_path: Absolute folder.
        home: Absolute folder; an empty, writable volume.
        version: Resolved version of a provider's CLI; empty for the tester's own agent.
        environment: Variables for the agent, besides those of the proxy.
        preflight: Argv that must succeed before the agent's turn; empty: none.
        search: Folders appended to the image's PATH.
    """

    overlay: str
    overlay_path: str
    home: str
    version: str
    environment: Mapping[str, str]
    preflight: tuple[str, ...]
    search: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HarnessPlan:
    """The tester's harness.

    Attributes:
        type: A name in ``agents.registry.AGENTS``.
        command: The argv; a shell string becomes ``sh -lc STRING``. Empty for a CLI, whose command
            depends on the task.
        task_file: Workspace-relative path of the task file.
        config: As given, with defaults filled in; for the record.
        env: Names of the variables passed to the harness container.
        secret: Name of the Secret with their values, or empty.
        digest: ``sha256:…`` (contract 15.6).
        agent: Present for the CLI of a provider, and for an agent in an image of its own.
        environment: Variables by which a command finds its model provider.
    """

    type: str
    command: tuple[str, ...]
    task_file: str
    config: Mapping[str, object]
    env: tuple[str, ...]
    secret: str
    digest: str
    agent: AgentPlan | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a task gets its record without a verifier Pod.

    Attributes:
        outcome: ``verifier`` for a verifier configuration error, ``agent`` for a denied command.
        reason: The record's failure_reason.
        phase: The record's failure_phase.
        message: One plain sentence.
        metadata: Verifier metadata of the record; may be empty.
    """

    outcome: str
    reason: str
    phase: str
    message: str
    metadata: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """One task of the run.

    Attributes:
        index: Position in the pack, from 0.
        task: The compiled row with all lanes.
        environment: In what the agent works.
        extraction: What the courier captures as the candidate.
        verification: How the candidate is judged; None where nothing judges it.
        refusal: Present if the task ends before any Pod is started.
        denial: Present if the task ends after the harness, without a verifier Pod.
        row_digest: ``sha256:…`` of the row.
        command: What the harness container runs; when empty, the harness's own command.
    """

    index: int
    task: SecureBenchTask
    environment: Environment
    extraction: Extraction
    verification: Verification | None
    refusal: Refusal | None
    denial: Refusal | None
    row_digest: str
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Identifies the BenchmarkRun.

    Attributes:
        run_id: Run ID of its records.
        run_ordinal: As of ``IndexEntry``.
        resume_generation: The same.
    """

    uid: str
    name: str
    namespace: str
    run_id: str
    run_ordinal: int = 1
    resume_generation: int = 0


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """Retries, back-off, timeouts and retention of a run.

    Attributes:
        attempts: Logical attempts per task.
        infrastructure_retries: Launches beyond the first after infrastructure failures.
        provider_retries: Launches beyond the first after an outage of the model provider.
        backoff_seconds: Wait before the first repeated launch; doubled for each further one.
        backoff_limit_seconds: Longest wait between launches.
        lost_after_seconds: Grace after which a Pod that stays Terminating counts as lost.
        sandbox_wait_seconds: How long a node may take to set up a Pod's volumes, network and
            sandbox.
        image_wait_seconds: How long an image may stay unpullable before the launch is abandoned.
        keep_pods: Which finished Pods stay.
        keep_lanes: Whether the lanes stay on the volume after the attempt.
    """

    attempts: int
    infrastructure_retries: int
    provider_retries: int
    backoff_seconds: float
    backoff_limit_seconds: float
    lost_after_seconds: float
    keep_pods: PodRetention
    keep_lanes: bool
    sandbox_wait_seconds: float = 180.0
    image_wait_seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """The run whose sealed candidates a run verifies again.

    Attributes:
        uid: UID of its BenchmarkRun.
        run_id: Run ID of its records.
    """

    name: str
    uid: str
    run_id: str


@dataclass(frozen=True, slots=True)
class RunPlan:
    """Everything about a run that is fixed when it starts.

    Attributes:
        pack_digest: ``sha256:…`` (contract 15.6).
        tasks: The selected tasks by index, in pack order.
        verifier_version: Part of every record.
        policy_digest: ``sha256:…`` over verification policy, limits and isolation.
        digest: ``sha256:…`` over everything that may change an outcome; binds the journal.
        audit: Whether the run audits a pack; its records say so.
        egress: The allowed egress, or None for no network at all.
        pack_audit: Result of the latest audit when the run started; part of every record.
        regrade: The run that it grades again, without an agent; None: it runs its harness.
        answers: Reference answers by task id; empty for every harness but an oracle.
        mismatch: Why this version may only end the run, in one sentence; empty where it is active.
            The tasks then are this version's reading of the pack, the digests those of the binding.
    """

    identity: RunIdentity
    pack_id: str
    pack_version: int
    pack_digest: str
    harness: HarnessPlan
    policy: RunPolicy
    pods: PodPolicy
    limits: TaskLimits
    tasks: Mapping[int, TaskPlan]
    verifier_version: str
    policy_digest: str
    digest: str
    audit: bool = False
    egress: EgressPlan | None = None
    pack_audit: PackAudit = PackAudit.NONE
    regrade: EarlierRun | None = None
    answers: Mapping[str, ReferenceAnswer] = field(default_factory=dict)
    mismatch: str = ""

    @property
    def has_gateway(self) -> bool:
        """Whether a gateway runs for it: its harness Pods exist and have egress."""
        return self.egress is not None and self.regrade is None

    @property
    def token_budget(self) -> int | None:
        """Tokens that all its launches together may use, or None; a regrade uses none."""
        provider = self.egress.provider if self.has_gateway and self.egress is not None else None
        return None if provider is None else provider.run_tokens

    @property
    def asks_provider(self) -> bool:
        """Whether its launches ask a model provider."""
        return self.has_gateway and self.egress is not None and self.egress.provider is not None
