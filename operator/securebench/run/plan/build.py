"""Puts spec, pack and settings together into one frozen plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from typing import Final

from securebench.agents.harness_config import LATEST, CommandHarness, HarnessConfig, ProviderHarness
from securebench.agents.registry import (
    agent_named,
    cli_named,
    forwarded,
    harness_config,
    harness_digest,
)
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.reading.manifest import BenchmarkManifest
from securebench.benchmark.scorers.dangerous_commands import VerificationPolicy
from securebench.benchmark.scorers.verifier_version import VERIFIER_VERSION
from securebench.core.digests import json_digest
from securebench.core.errors import ConfigErrors, InvalidInputError, SpecError
from securebench.core.names import AUDIT, PURPOSE_LABEL
from securebench.protocol.audit_result import PackAudit
from securebench.protocol.sidecar import NO_PROXY
from securebench.run.api.models import BenchmarkRunSpec, TaskSelector
from securebench.run.plan.model import (
    PROVIDER_URL,
    AgentPlan,
    EgressPlan,
    HarnessPlan,
    PodPolicy,
    ProviderPlan,
    RunIdentity,
    RunPlan,
    RunPolicy,
    TaskLimits,
    TaskPlan,
)
from securebench.run.plan.tasks import task_plan

DIGESTED_RESOURCES = frozenset({"requests", "limits", "workspace"})
DIGESTED_ISOLATION = frozenset({"require", "allow"})
"""Fields of the spec that the policy digest reads, by name: with a field that a later version adds
the digests of runs under way would change, and they could not go on."""


_NO_PROXIES: Final = {"NO_PROXY": NO_PROXY, "no_proxy": NO_PROXY}
"""A proxy of the image is none for the sidecar."""

Overlays = Mapping[str, Mapping[str, str]]
"""By harness type: the image of each version, and under ``LATEST`` one of these versions."""


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """Everything that a plan is made of.

    Attributes:
        identity: The BenchmarkRun.
        spec: Its spec.
        manifest: The pack's manifest.
        tasks: All compiled rows within the limit, in pack order.
        pack_digest: ``sha256:…`` of the pack.
        pods: What launch Pods share.
        policy: Numbers of the loop.
        limits: Bounds.
        audit: Whether the run says that it examines a pack.
        pack_audit: What the newest audit of the pack said when the run started.
        answers_digest: Of the reference answers that an oracle hands in, else empty.
        kept: Indexes of tasks whose records come from an earlier run; part of the plan unless the
            pack has fewer tasks, and then its digest differs.
        overlays: Images of the tools of model providers.
        agent_version: Version of the tool that this run, or the one that it continues, began with;
            empty where none was chosen yet.
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


def spec_harness(spec: BenchmarkRunSpec) -> HarnessConfig:
    """Return the checked harness of a spec.

    Raises:
        ConfigErrors: Its configuration does not hold.
    """
    return harness_config(spec.harness.type, spec.harness.config)


def require_audit(spec: BenchmarkRunSpec, *, audit: bool) -> None:
    """Refuse what examines a pack in a run that does not say so: its records would look normal.

    Raises:
        SpecError: The harness is an oracle or a nop, and the run's purpose is no audit.
    """
    kind = spec.harness.type
    if agent_named(kind).is_audit and not audit:
        raise SpecError(
            f"spec.harness.type: {kind} examines the pack, not an agent; it runs only with the"
            f" label {PURPOSE_LABEL}: {AUDIT} on the BenchmarkRun: create it anew with the label"
        )


def build_plan(inputs: PlanInputs) -> RunPlan:
    """Build the plan of a run.

    Args:
        inputs: See PlanInputs.

    Returns:
        The plan; equal inputs give an equal plan with an equal digest.

    Raises:
        SpecError: The spec names something that this version does not run.
        ConfigErrors: Tasks or harness do not hold, all defects together.
    """
    require_audit(inputs.spec, audit=inputs.audit)
    harness = spec_harness(inputs.spec)
    verification = VerificationPolicy(
        inputs.spec.verification.disallow_dangerous_commands,
        tuple(command.value for command in inputs.spec.verification.deny_commands),
    )
    tasks = _task_plans(inputs, harness, verification)
    harness_part = _harness_plan(inputs, harness)
    policy_digest = _policy_digest(inputs, verification)
    return RunPlan(
        identity=inputs.identity,
        pack_id=inputs.manifest.id,
        pack_version=inputs.manifest.version,
        pack_digest=inputs.pack_digest,
        harness=harness_part,
        policy=inputs.policy,
        pods=inputs.pods,
        limits=inputs.limits,
        tasks={task.index: task for task in tasks},
        verifier_version=VERIFIER_VERSION,
        policy_digest=policy_digest,
        audit=inputs.audit,
        pack_audit=inputs.pack_audit,
        egress=egress_plan(harness, inputs.spec),
        digest=json_digest(
            {
                "run_id": inputs.identity.run_id,
                "pack": inputs.pack_digest,
                "harness": harness_part.digest,
                "verifier": VERIFIER_VERSION,
                "policy": policy_digest,
                "attempts": inputs.policy.attempts,
                "tasks": [task.index for task in tasks],
                **_agent_part(harness_part),
            }
        ),
    )


def _agent_part(harness: HarnessPlan) -> dict[str, object]:
    """Return what ``latest`` meant; the harness's own digest has the word as it was written."""
    return {} if harness.agent is None else {"agent": harness.agent.version}


def _policy_digest(inputs: PlanInputs, verification: VerificationPolicy) -> str:
    return json_digest(
        {
            "verification": asdict(verification),
            "limits": asdict(inputs.limits),
            "resources": inputs.spec.resources.model_dump(
                mode="json", include=set(DIGESTED_RESOURCES)
            ),
            "isolation": inputs.spec.isolation.model_dump(
                mode="json", include=set(DIGESTED_ISOLATION)
            ),
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
    known = {index for index in inputs.kept if index < len(inputs.tasks)}
    for index in sorted(known.union(chosen)):
        try:
            plans.append(task_plan(index, inputs.tasks[index], harness, policy))
        except InvalidInputError as error:
            errors.append(error)
    if errors:
        raise ConfigErrors(errors)
    return plans


def _harness_plan(inputs: PlanInputs, harness: HarnessConfig) -> HarnessPlan:
    spec = inputs.spec
    agent = None
    if isinstance(harness, ProviderHarness):
        agent = agent_plan(harness, inputs.overlays, inputs.agent_version)
    return HarnessPlan(
        type=harness.type,
        command=harness.argv if isinstance(harness, CommandHarness) else (),
        task_file=harness.task_file,
        config=harness.filled_config(),
        env=forwarded(harness.type, spec.harness.env),
        secret=spec.harness.secret_ref.name if spec.harness.secret_ref is not None else "",
        digest=harness_digest(
            harness, spec.harness.env, audit=inputs.audit, answers=inputs.answers_digest
        ),
        agent=agent,
    )


def agent_plan(harness: ProviderHarness, overlays: Overlays, begun_with: str = "") -> AgentPlan:
    """Return how a tool runs in a task's image.

    Args:
        harness: With the version that the tester wants.
        overlays: What the administrator offers.
        begun_with: Version that this run, or the one that it continues, began with; empty: none
            was chosen yet. ``latest`` may mean another one by now.

    Raises:
        SpecError: That version is not offered.
    """
    offered = {
        version: image
        for version, image in overlays.get(harness.type, {}).items()
        if version != LATEST
    }
    version = _version(harness, overlays, begun_with)
    if version not in offered:
        raise SpecError(_not_offered(harness, version, sorted(offered)))
    cli = cli_named(harness.type)
    return AgentPlan(
        overlay=offered[version],
        overlay_path=cli.overlay_path,
        home=cli.home,
        version=version,
        environment=_NO_PROXIES | dict(cli.environment(PROVIDER_URL)),
        preflight=cli.preflight,
        search=cli.search,
    )


def egress_plan(harness: HarnessConfig, spec: BenchmarkRunSpec) -> EgressPlan | None:
    """Return the egress of a run's harness Pods, or None for no network at all."""
    provider = _provider_plan(harness, spec) if isinstance(harness, ProviderHarness) else None
    if provider is None and not harness.allowed_domains:
        return None
    return EgressPlan(domains=harness.allowed_domains, provider=provider)


def _provider_plan(harness: ProviderHarness, spec: BenchmarkRunSpec) -> ProviderPlan:
    cli = cli_named(harness.type)
    if spec.provider is None:
        raise SpecError(f"spec.provider: harness type {harness.type} needs provider.secretRef")
    return ProviderPlan(
        name=cli.provider.name,
        host=cli.provider.host,
        secret=spec.provider.secret_ref.name,
        key=cli.key,
        allow_external_tools=harness.allow_external_tools,
        max_requests=harness.max_requests,
        max_tokens=harness.max_tokens,
    )


def _version(harness: ProviderHarness, overlays: Overlays, begun_with: str) -> str:
    if harness.version != LATEST:
        return harness.version
    return begun_with or overlays.get(harness.type, {}).get(LATEST, LATEST)


def _not_offered(harness: ProviderHarness, version: str, offered: list[str]) -> str:
    what = f"spec.harness.config.version: {harness.type} {version} is not installed here"
    if not offered:
        return f"{what}: the chart's value settings.overlays names no image for {harness.type}"
    return f"{what}; there is {', '.join(offered)}"
