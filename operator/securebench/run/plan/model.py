"""What a run is going to do. Built once, frozen, a pure function of spec, pack and settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from securebench.benchmark.families.terminal_task import PYTEST
from securebench.benchmark.families.verification import CodePlan, PatchPlan
from securebench.benchmark.pack.compile import SecureBenchTask
from securebench.protocol.audit_result import PackAudit
from securebench.protocol.bounds import RECORD_BYTES, CandidateBounds
from securebench.protocol.extraction import Extraction
from securebench.run.api.enums import PodRetention
from securebench.run.plan.egress_plan import AgentPlan, EgressPlan


class Role(StrEnum):
    """What a Pod of a run is for."""

    HARNESS = "harness"
    VERIFIER = "verifier"
    CANARY = "canary"
    CONTROL = "control"
    GATEWAY = "gateway"


class VerifierKind(StrEnum):
    """How a task's candidate is judged."""

    TEXT = "text"
    CHECK = "check"
    CODE = "code"
    NONE = "none"


class AttemptKey(NamedTuple):
    """One logical attempt of one task: index from 0 in pack order, attempt from 1."""

    task: int
    attempt: int


class LaunchKey(NamedTuple):
    """One Pod of one launch: launch counts from 1 within the attempt and role."""

    task: int
    attempt: int
    role: Role
    launch: int

    @property
    def attempt_key(self) -> AttemptKey:
        """The attempt that this launch belongs to."""
        return AttemptKey(self.task, self.attempt)


class PodUserNamespaces(StrEnum):
    """Whether launch Pods get a user namespace of their own."""

    ON = "on"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class TaskLimits(CandidateBounds):
    """Bounds of contract 15.7: those of what is captured, and of a record.

    Attributes:
        record_bytes: One line of candidates.jsonl.
    """

    record_bytes: int = RECORD_BYTES


@dataclass(frozen=True, slots=True)
class PodPolicy:
    """What every launch Pod of a run has in common.

    Attributes:
        image: Our Pod image (courier, text verifier).
        image_pull_policy: As in Kubernetes.
        claim: Name of the PersistentVolumeClaim of the results volume.
        service_account: Name of an account without rights and token.
        requests: Resource requests of the harness and check containers.
        limits: Resource limits of the harness and check containers.
        workspace_size: Size limit of the workspace emptyDir, a Kubernetes quantity.
        user_namespaces: What the canary found to work or the settings force.
        runtime_class: Name or empty.
        priority_class: Name or empty.
        node_selector: Label map.
        tolerations: As in Kubernetes.
        image_pull_secrets: Names.
        node_name: Node the Pods must share because the volume is ReadWriteOnce, or empty.
        probes: Addresses ``host:port`` that must be closed for a harness.
        startup_allowance_seconds: Time from creation to the start of the command.
        grace_seconds: Time for sealing.
        max_processes: Limit per user where a user namespace makes it ours, else 0.
    """

    image: str
    image_pull_policy: str
    claim: str
    service_account: str
    requests: Mapping[str, str]
    limits: Mapping[str, str]
    workspace_size: str
    user_namespaces: PodUserNamespaces
    runtime_class: str
    priority_class: str
    node_selector: Mapping[str, str]
    tolerations: tuple[Mapping[str, object], ...]
    image_pull_secrets: tuple[str, ...]
    node_name: str
    probes: tuple[str, ...]
    startup_allowance_seconds: int
    grace_seconds: int
    max_processes: int


@dataclass(frozen=True, slots=True)
class HarnessPlan:
    """The tester's harness.

    Attributes:
        type: ``command``, ``oracle`` or ``nop``.
        command: A string for ``sh -lc`` as a three-word argv, or the argv.
        task_file: Workspace-relative path of the task file.
        config: As given, defaults filled in; for the record.
        env: Names of variables that enter the harness container.
        secret: Name of the Secret with their values, or empty.
        digest: ``sha256:…`` of contract 15.6.
        agent: Present for codex and claude_code; their command is the task's.
    """

    type: str
    command: tuple[str, ...]
    task_file: str
    config: Mapping[str, object]
    env: tuple[str, ...]
    secret: str
    digest: str
    agent: AgentPlan | None = None


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """A check by a file of the pack (contract 14.6, source form).

    Attributes:
        kind: ``pytest`` or ``script``.
        path: Normal path below the evaluation files of the pack.
    """

    kind: str
    path: str


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """How a workspace or a repository is checked.

    Attributes:
        command: The argv that runs; empty for a check by a file of the pack.
        workdir: Absolute working folder.
        timeout_seconds: Time limit.
        capabilities: Added for dangerous commands that the tester allowed.
        patch: Present where the candidate is a patch to the image's repository.
        source: Present where a file of the pack checks.
    """

    command: tuple[str, ...]
    workdir: str
    timeout_seconds: float
    capabilities: tuple[str, ...]
    patch: PatchPlan | None = None
    source: SourcePlan | None = None

    @property
    def is_pytest(self) -> bool:
        """Whether pytest files of the pack check: they may import candidate code."""
        return self.source is not None and self.source.kind == PYTEST


@dataclass(frozen=True, slots=True)
class Refusal:
    """A task that gets its record without any Pod.

    Attributes:
        outcome: ``verifier`` for a configuration that cannot work, ``agent`` for a denial.
        reason: The record's failure_reason.
        phase: The record's failure_phase.
        message: One plain sentence.
        metadata: Verifier metadata of the record, empty where no verifier speaks.
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
        workspace: Absolute folder of the workspace in the task image's containers.
        workdir: Working folder of the harness command.
        timeout_seconds: Time limit of the harness command, or None.
        materialize_from: Folder of the image to copy into the workspace first, or empty.
        extraction: What the courier takes.
        verifier: How the candidate is judged.
        check: Present exactly for ``VerifierKind.CHECK``.
        code: Present exactly for ``VerifierKind.CODE``.
        refusal: Present where the task is decided without a Pod before the harness.
        denial: Present where the verifier refuses after the harness has ended.
        row_digest: ``sha256:…`` of the row.
        command: What the harness container runs; empty: the harness's own command.
    """

    index: int
    task: SecureBenchTask
    image: str
    workspace: str
    workdir: str
    timeout_seconds: float | None
    materialize_from: str
    extraction: Extraction
    verifier: VerifierKind
    check: CheckPlan | None
    refusal: Refusal | None
    denial: Refusal | None
    row_digest: str
    code: CodePlan | None = None
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """Which BenchmarkRun this is."""

    uid: str
    name: str
    namespace: str
    run_id: str


@dataclass(frozen=True, slots=True)
class RunPolicy:
    """What steers the loop: the spec, and the administrator's settings.

    Attributes:
        attempts: Logical attempts of every task.
        infrastructure_retries: Launches beyond the first.
        provider_retries: The same after an outage of the model provider.
        backoff_seconds: Wait before the first repeated launch; doubled for each further one.
        backoff_limit_seconds: Longest wait between launches.
        lost_after_seconds: Margin after which a Pod that stays Terminating counts as lost.
        keep_pods: Which finished Pods stay.
        keep_lanes: Whether the lanes stay on the volume after the attempt.
        sandbox_wait_seconds: How long a node may take for volumes, network and sandbox of a Pod.
        image_wait_seconds: How long an image may stay unpullable before the launch is given up.
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
class RunPlan:
    """A whole run.

    Attributes:
        identity: The BenchmarkRun.
        pack_id: Manifest id.
        pack_version: Manifest version.
        pack_digest: ``sha256:…`` of contract 15.6.
        harness: The tester's harness.
        policy: Numbers of the loop.
        pods: What launch Pods share.
        limits: Bounds.
        tasks: The selected tasks by index, in pack order.
        verifier_version: Bound into every record.
        policy_digest: ``sha256:…`` over verification policy, limits and isolation.
        digest: ``sha256:…`` over everything that may change an outcome; binds the journal.
        audit: Whether the run examines a pack; its records say so.
        egress: What is allowed, or None for no network at all.
        pack_audit: What the newest audit said when the run started; its records say so.
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


def pod_name(run_uid: str, launch: LaunchKey) -> str:
    """Return the deterministic name of a launch Pod."""
    role = launch.role.value[0]
    return f"sb-{short_uid(run_uid)}-{launch.task}-{launch.attempt}{role}{launch.launch}"


def short_uid(run_uid: str) -> str:
    """Return the part of a run's uid that stands in names: its first twelve hex digits."""
    return run_uid.replace("-", "")[:12]
