"""Combine spec, pack and settings into one frozen run plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from securebench.agents.harness_config import LATEST, CommandHarness, HarnessConfig, ProviderHarness
from securebench.agents.registry import agent_named, cli_named, forwarded_env
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.reading.manifest import BenchmarkManifest
from securebench.benchmark.scorers.dangerous_commands import VerificationPolicy
from securebench.digests import json_digest
from securebench.errors import ConfigErrors, InvalidInputError, SpecError
from securebench.names import AUDIT, PURPOSE_LABEL
from securebench.protocol.audit_result import PackAudit
from securebench.protocol.sidecar import NO_PROXY
from securebench.run.api.models import BenchmarkRunSpec, TaskSelector
from securebench.run.plan.egress import egress_plan, provider_environment
from securebench.run.plan.egress_plan import PROVIDER_URL, ClusterProvider
from securebench.run.plan.model import (
    AgentPlan,
    EarlierRun,
    HarnessPlan,
    PodPolicy,
    RunIdentity,
    RunPlan,
    RunPolicy,
    TaskLimits,
    TaskPlan,
)
from securebench.run.plan.score_fields import (
    Overlays,
    ScoreContext,
    ScoreFields,
    ScoreSettings,
    agent_version,
    score_fields,
    spec_harness,
)
from securebench.run.plan.tasks import task_plan

_NO_PROXIES: Final = {"NO_PROXY": NO_PROXY, "no_proxy": NO_PROXY}
"""Keeps the CLI from sending requests for the sidecar through a proxy that the image configures."""

AGENT_FOLDER: Final = "/opt/securebench/agent"
AGENT_HOME: Final = "/opt/securebench/agent-home"
"""Where the harness container has the image of a tester's own agent, and its empty home."""


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """Inputs of ``build_plan``.

    Attributes:
        identity: The BenchmarkRun.
        spec: Its spec.
        manifest: The pack's manifest.
        tasks: All compiled rows within the limit, in pack order.
        pack_digest: ``sha256:…`` of the pack.
        pods: Settings shared by all launch Pods.
        policy: Retries, back-off, timeouts and retention.
        limits: Bounds on captured data.
        audit: Whether the run is labelled as an audit of the pack.
        pack_audit: Result of the latest audit of the pack when the run started.
        answers_digest: Digest of the reference answers that an oracle hands in, else empty.
        kept: Indexes of tasks whose records come from an earlier run. They stay in the plan unless
            the pack has fewer tasks, and then its digest differs anyway.
        overlays: Images of the providers' CLIs.
        agent_version: CLI version that this run, or the run that it resumes, already uses; empty
            for a new run.
        providers: Model providers inside the cluster that the administrator allows.
        regrade: The run that is graded again, or None.
    """

    identity: RunIdentity
    spec: BenchmarkRunSpec
    manifest: BenchmarkManifest
    tasks: Sequence[SecureBenchTask]
    pack_digest: str
    pods: PodPolicy
    policy: RunPolicy
    limits: TaskLimits
    audit: bool = False
    pack_audit: PackAudit = PackAudit.NONE
    answers_digest: str = ""
    kept: frozenset[int] = frozenset()
    overlays: Overlays = field(default_factory=dict)
    agent_version: str = ""
    providers: Sequence[ClusterProvider] = ()
    regrade: EarlierRun | None = None


def require_audit(spec: BenchmarkRunSpec, *, audit: bool) -> None:
    """Reject audit harnesses in a run without the audit label: its records would look normal.

    Raises:
        SpecError: The harness is ``oracle`` or ``nop``, and the run is not labelled as an audit.
    """
    kind = spec.harness.type
    if agent_named(kind).is_audit and not audit:
        raise SpecError(
            f"spec.harness.type: {kind} audits the pack, not an agent; it needs the label"
            f" {PURPOSE_LABEL}: {AUDIT} on the BenchmarkRun: create the run again with that label"
        )


def build_plan(inputs: PlanInputs) -> RunPlan:
    """Build the plan of a run; equal inputs give an equal plan with an equal digest.

    Raises:
        SpecError: The spec asks for something that this version does not support.
        ConfigErrors: Tasks or harness are invalid; lists all defects.
    """
    require_audit(inputs.spec, audit=inputs.audit)
    harness = spec_harness(inputs.spec)
    verification = VerificationPolicy(
        inputs.spec.verification.disallow_dangerous_commands,
        tuple(command.value for command in inputs.spec.verification.deny_commands),
    )
    tasks = _task_plans(inputs, harness, verification)
    fields = score_fields(inputs.spec, _score_context(inputs))
    return RunPlan(
        identity=inputs.identity,
        pack_id=inputs.manifest.id,
        pack_version=inputs.manifest.version,
        pack_digest=inputs.pack_digest,
        harness=_harness_plan(inputs, harness, fields.harness),
        policy=inputs.policy,
        pods=inputs.pods,
        limits=inputs.limits,
        tasks={task.index: task for task in tasks},
        verifier_version=fields.verifier,
        policy_digest=fields.policy_digest,
        audit=inputs.audit,
        pack_audit=inputs.pack_audit,
        regrade=inputs.regrade,
        egress=egress_plan(harness, inputs.spec, inputs.providers),
        digest=_plan_digest(fields, inputs, [task.index for task in tasks]),
    )


def _score_context(inputs: PlanInputs) -> ScoreContext:
    return ScoreContext(
        ScoreSettings(inputs.limits, inputs.overlays),
        inputs.identity.run_id,
        inputs.pack_digest,
        audit=inputs.audit,
        answers=inputs.answers_digest,
        agent_version=inputs.agent_version,
    )


def _plan_digest(fields: ScoreFields, inputs: PlanInputs, tasks: Sequence[int]) -> str:
    """Return the digest of all score fields.

    Tasks are those that were selected. A run that is graded again counts by its uid; one that is
    resumed does not count: the resumed part of a run is bound by its own journal.
    """
    return json_digest(
        {
            "run_id": fields.run_id,
            "pack": fields.pack,
            "harness": fields.harness,
            "verifier": fields.verifier,
            "policy": fields.policy_digest,
            "attempts": fields.attempts,
            "tasks": tasks,
            **({} if fields.agent is None else {"agent": fields.agent}),
            **({} if inputs.regrade is None else {"regrade": inputs.regrade.uid}),
        }
    )


def selected(selector: TaskSelector, task_ids: Sequence[str]) -> tuple[int, ...]:
    """Return the indexes of the tasks that a selector chooses, in pack order."""
    return tuple(
        index
        for index, task_id in enumerate(task_ids[: selector.limit])
        if _matches(task_id, selector.include) and not _matches(task_id, selector.exclude)
    )


def _matches(task_id: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(task_id, pattern) for pattern in patterns)


def _task_plans(
    inputs: PlanInputs, harness: HarnessConfig, policy: VerificationPolicy
) -> list[TaskPlan]:
    plans: list[TaskPlan] = []
    errors: list[InvalidInputError] = []
    chosen = selected(inputs.spec.task_selector, [task.id for task in inputs.tasks])
    if not chosen:
        raise SpecError(f"spec.taskSelector matches none of {len(inputs.tasks)} tasks")
    kept = {index for index in inputs.kept if index < len(inputs.tasks)}
    for index in sorted(kept.union(chosen)):
        try:
            plans.append(task_plan(index, inputs.tasks[index], harness, policy))
        except InvalidInputError as error:
            errors.append(error)
    if errors:
        raise ConfigErrors(errors)
    return plans


def _harness_plan(inputs: PlanInputs, harness: HarnessConfig, digest: str) -> HarnessPlan:
    spec = inputs.spec
    agent = None
    if isinstance(harness, ProviderHarness):
        agent = agent_plan(harness, inputs.overlays, inputs.agent_version)
    elif isinstance(harness, CommandHarness) and harness.image:
        agent = own_agent_plan(harness)
    return HarnessPlan(
        type=harness.type,
        command=harness.argv if isinstance(harness, CommandHarness) else (),
        task_file=harness.task_file,
        config=harness.filled_config(),
        env=forwarded_env(harness.type, spec.harness.env, spec.harness.config),
        secret=spec.harness.secret_ref.name if spec.harness.secret_ref is not None else "",
        digest=digest,
        agent=agent,
        environment=provider_environment(harness),
    )


def own_agent_plan(harness: CommandHarness) -> AgentPlan:
    """Return how an agent from the tester's own image runs beside a task's image."""
    return AgentPlan(
        overlay=harness.image,
        overlay_path=AGENT_FOLDER,
        home=AGENT_HOME,
        version="",
        environment={"HOME": AGENT_HOME, **provider_environment(harness)},
        preflight=(),
        search=(f"{AGENT_FOLDER}/bin",),
    )


def agent_plan(harness: ProviderHarness, overlays: Overlays, bound_version: str = "") -> AgentPlan:
    """Return how a provider's CLI runs in a task's image.

    Args:
        harness: Names the requested version, or ``latest``.
        overlays: The versions that the administrator offers.
        bound_version: Version that this run, or the run that it resumes, already uses; it replaces
            ``latest``, which may have moved on since. Empty for a new run.

    Raises:
        SpecError: That version is not offered.
    """
    offered = {
        version: image
        for version, image in overlays.get(harness.type, {}).items()
        if version != LATEST
    }
    version = agent_version(harness, overlays, bound_version)
    if version not in offered:
        raise SpecError(_unavailable_message(harness, version, sorted(offered)))
    cli = cli_named(harness.type)
    return AgentPlan(
        overlay=offered[version],
        overlay_path=cli.overlay_path,
        home=cli.home,
        version=version,
        environment=_NO_PROXIES | dict(cli.environment(harness, PROVIDER_URL)),
        preflight=cli.preflight,
        search=cli.search,
    )


def _unavailable_message(harness: ProviderHarness, version: str, offered: list[str]) -> str:
    what = f"spec.harness.config.version: {harness.type} {version} is not installed here"
    if not offered:
        return f"{what}: the chart's value settings.overlays names no image for {harness.type}"
    return f"{what}; available: {', '.join(offered)}"
