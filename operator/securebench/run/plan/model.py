"""The run plan: built once from spec, pack and settings, then frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from securebench.benchmark.pack.task import SecureBenchTask
from securebench.protocol.audit_result import PackAudit
from securebench.protocol.bounds import RECORD_BYTES, CandidateBounds
from securebench.protocol.extraction import Extraction
from securebench.run.api.field_types import PodRetention
from securebench.run.plan.egress_plan import EgressPlan

if TYPE_CHECKING:
    from securebench.run.verification.base import Verification


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
        claim: Name of the PersistentVolumeClaim of the results volume.
        tools: Folder of that volume with the programs of task containers.
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
    claim: str
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
        image: Task image as written.
        workspace: Absolute path of the workspace in containers of the task image.
        workdir: Working folder of the harness command.
        timeout_seconds: Time limit of the harness command, or None.
        materialize_from: Folder of the image to copy into the workspace first, or empty.
        extraction: What the courier captures as the candidate.
        verification: How the candidate is judged; None where nothing judges it.
        refusal: Present if the task ends before any Pod is started.
        denial: Present if the task ends after the harness, without a verifier Pod.
        row_digest: ``sha256:…`` of the row.
        command: What the harness container runs; when empty, the harness's own command.
    """

    index: int
    task: SecureBenchTask
    image: str
    workspace: str
    workdir: str
    timeout_seconds: float | None
    materialize_from: str
    extraction: Extraction
    verification: Verification | None
    refusal: Refusal | None
    denial: Refusal | None
    row_digest: str
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Identifies the BenchmarkRun."""

    uid: str
    name: str
    namespace: str
    run_id: str


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
        name: Name of its BenchmarkRun.
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
