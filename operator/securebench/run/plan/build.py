"""Combine spec, pack and settings into one frozen run plan.

A compiled row becomes a task plan: image, folders, time limits, extraction and verification. The
egress of a run is its domains and its model provider, within the administrator's list.

Source: contract 11 and 12.7; decision 0075.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final

from securebench.agents.harness import (
    DUMMY_KEY,
    LATEST,
    CommandHarness,
    HarnessConfig,
    ProviderHarness,
    agent_time_limit,
    candidate_form,
    extraction_for,
    task_prompt,
)
from securebench.agents.providers.endpoint import APIS, ProviderEndpoint
from securebench.agents.registry import agent_named, cli_named, forwarded_env
from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.pack.lane_plan import check_task_file, materialization_plan
from securebench.benchmark.pack.paths import MATERIALIZE, workspace_target
from securebench.benchmark.pack.task import LoadedPack, SecureBenchTask, row_digest
from securebench.benchmark.reading.rows import verifier_configuration_problem
from securebench.benchmark.scorers.dangerous_commands import (
    FAILURE_REASON,
    CommandDecision,
    VerificationPolicy,
    decide,
    denial_result,
)
from securebench.digests import json_digest
from securebench.errors import (
    ConfigError,
    ConfigErrors,
    InvalidInputError,
    PackError,
    SpecError,
)
from securebench.names import AUDIT, PURPOSE_LABEL
from securebench.protocol.candidate import KINDS, Extraction
from securebench.protocol.gateway import NO_PROXY, PROVIDER_KEY
from securebench.protocol.supervise import SOURCES
from securebench.reasons import VERIFIER_CONFIGURATION, FailurePhase
from securebench.run.api.models import BenchmarkRunSpec, TaskSelector
from securebench.run.plan.environment import Environment, in_image
from securebench.run.plan.kinds import PlanRequest, check_request, kind_named
from securebench.run.plan.model import (
    PROVIDER_URL,
    VERIFIER_STDERR,
    AgentPlan,
    ClusterProvider,
    EgressPlan,
    HarnessPlan,
    PodPolicy,
    ProviderPlan,
    Refusal,
    RunPlan,
    RunPolicy,
    TaskPlan,
)
from securebench.run.plan.score_fields import (
    Overlays,
    RunBinding,
    ScoreFields,
    agent_version,
    score_fields,
    spec_harness,
)

if TYPE_CHECKING:
    from securebench.run.verification.base import Verification

_NO_PROXIES: Final = {"NO_PROXY": NO_PROXY, "no_proxy": NO_PROXY}
"""Keeps the CLI from sending requests for the sidecar through a proxy that the image configures."""


AGENT_FOLDER: Final = "/opt/securebench/agent"


AGENT_HOME: Final = "/opt/securebench/agent-home"
"""Where the harness container has the image of a tester's own agent, and its empty home."""


INSIDE: Final = (".svc", ".cluster.local", ".local", ".internal")
"""Endings of names that never have a public address."""


_PLACE: Final = "spec.harness.config.provider.url"


_ADVICE: Final = "ask the administrator to list it in the chart's value settings.gateway.providers"


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


def build_plan(
    spec: BenchmarkRunSpec,
    pack: LoadedPack,
    binding: RunBinding,
    pods: PodPolicy,
    policy: RunPolicy,
    providers: Sequence[ClusterProvider] = (),
) -> RunPlan:
    """Build the plan of a run; equal arguments give an equal plan with an equal digest.

    Args:
        pack: Its pack with all rows within the limit.
        binding: What it keeps from its first start.
        pods: Settings shared by all launch Pods.
        policy: Retries, back-off, timeouts and retention.
        providers: Model providers inside the cluster that the administrator allows.

    Raises:
        SpecError: The spec asks for something that this version does not support.
        ConfigErrors: Tasks or harness are invalid; lists all defects.
    """
    require_audit(spec, audit=binding.audit)
    harness = spec_harness(spec)
    tasks = _task_plans(spec, pack.tasks, binding.kept, harness)
    fields = score_fields(spec, binding)
    return RunPlan(
        identity=binding.identity,
        pack_id=pack.pack.manifest.id,
        pack_version=pack.pack.manifest.version,
        pack_digest=binding.pack_digest,
        harness=_harness_plan(spec, binding, harness, fields.harness),
        policy=policy,
        pods=pods,
        limits=binding.limits,
        tasks={task.index: task for task in tasks},
        verifier_version=fields.verifier,
        policy_digest=fields.policy_digest,
        audit=binding.audit,
        pack_audit=binding.pack_audit,
        regrade=binding.regrade,
        egress=egress_plan(harness, spec, providers),
        digest=_plan_digest(fields, binding, [task.index for task in tasks]),
        answers=binding.answers.by_id,
    )


def _plan_digest(fields: ScoreFields, binding: RunBinding, tasks: Sequence[int]) -> str:
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
            **({} if binding.regrade is None else {"regrade": binding.regrade.uid}),
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
    spec: BenchmarkRunSpec,
    tasks: Sequence[SecureBenchTask],
    kept: Iterable[int],
    harness: HarnessConfig,
) -> list[TaskPlan]:
    plans: list[TaskPlan] = []
    errors: list[InvalidInputError] = []
    policy = VerificationPolicy(
        spec.verification.disallow_dangerous_commands,
        tuple(command.value for command in spec.verification.deny_commands),
    )
    chosen = selected(spec.task_selector, [task.id for task in tasks])
    if not chosen:
        raise SpecError(f"spec.taskSelector matches none of {len(tasks)} tasks")
    problem = network_problem((tasks[index] for index in chosen), harness)
    if problem is not None:
        errors.append(PackError(problem))
    for index in sorted({index for index in kept if index < len(tasks)}.union(chosen)):
        try:
            plans.append(task_plan(index, tasks[index], harness, policy))
        except InvalidInputError as error:
            errors.append(error)
    if errors:
        raise ConfigErrors(errors)
    return plans


def _harness_plan(
    spec: BenchmarkRunSpec, binding: RunBinding, harness: HarnessConfig, digest: str
) -> HarnessPlan:
    agent = None
    if isinstance(harness, ProviderHarness):
        agent = agent_plan(harness, binding.agent_version, binding.overlay)
    elif isinstance(harness, CommandHarness) and harness.image:
        agent = _own_agent_plan(harness)
    return HarnessPlan(
        type=harness.type,
        command=harness.argv if isinstance(harness, CommandHarness) else (),
        task_file=harness.task_file,
        config=harness.filled_config(),
        env=forwarded_env(harness.type, spec.harness.env, spec.harness.config),
        secret=spec.harness.secret_ref.name if spec.harness.secret_ref is not None else "",
        digest=digest,
        agent=agent,
        environment=_provider_environment(harness),
    )


def _own_agent_plan(harness: CommandHarness) -> AgentPlan:
    """Return how an agent from the tester's own image runs beside a task's image."""
    return AgentPlan(
        overlay=harness.image,
        overlay_path=AGENT_FOLDER,
        home=AGENT_HOME,
        version="",
        environment={"HOME": AGENT_HOME, **_provider_environment(harness)},
        preflight=(),
        search=(f"{AGENT_FOLDER}/bin",),
    )


def agent_plan(harness: ProviderHarness, version: str, overlay: str) -> AgentPlan:
    """Return how a version of a provider's CLI, which an image has, runs in a task's image."""
    cli = cli_named(harness.type)
    return AgentPlan(
        overlay=overlay,
        overlay_path=cli.overlay_path,
        home=cli.home,
        version=version,
        environment=_NO_PROXIES | dict(cli.environment(harness, PROVIDER_URL)),
        preflight=cli.preflight,
        search=cli.search,
    )


def agent_image(
    harness: HarnessConfig, overlays: Overlays, bound_version: str = "", bound_image: str = ""
) -> tuple[str, str]:
    """Return version and image of the provider's CLI that a run uses; empty for other harnesses.

    Args:
        harness: Names the requested version, or ``latest``.
        overlays: The versions that the administrator offers.
        bound_version: Version that this run, or the run that it continues, already uses; it
            replaces ``latest``, which may have moved on since. Empty for a new run.
        bound_image: Image of that version, which counts where it is offered no longer.

    Raises:
        SpecError: That version is not offered.
    """
    if not isinstance(harness, ProviderHarness):
        return "", ""
    begun_with = {bound_version: bound_image} if bound_image else {}
    offered = {
        version: image
        for version, image in (begun_with | dict(overlays.get(harness.type, {}))).items()
        if version != LATEST
    }
    version = agent_version(harness, overlays, bound_version)
    if version not in offered:
        raise SpecError(_unavailable_message(harness, version, sorted(offered)))
    return version, offered[version]


def _unavailable_message(harness: ProviderHarness, version: str, offered: list[str]) -> str:
    what = f"spec.harness.config.version: {harness.type} {version} is not installed here"
    if not offered:
        return f"{what}: the chart's value settings.overlays names no image for {harness.type}"
    return f"{what}; available: {', '.join(offered)}"


def task_plan(
    index: int, task: SecureBenchTask, harness: HarnessConfig, policy: VerificationPolicy
) -> TaskPlan:
    """Plan one task.

    Args:
        index: Position of the row in the pack, from 0.
        task: The compiled row, with a valid environment.
        harness: The tester's harness.
        policy: Which dangerous commands the tester lets checkers run.

    Raises:
        PackError: This version cannot verify the task, or the harness's file collides with one of
            the task.
    """
    extraction = extraction_for(task.task_type, harness)
    if extraction.path is not None:
        check_task_file(materialization_plan(task, "agent"), extraction.path, _file_name(harness))
    workspace = workspace_target(task)
    family = FAMILIES.get(task.task_type)
    decision = command_decision(task, policy)
    verification = None
    if family is not None:
        request = PlanRequest(task, family, workspace, decision)
        verification = kind_named(family.verification).planned(request)
    workdir = _workdir(extraction, verification, task.environment, workspace)
    return TaskPlan(
        index=index,
        task=task,
        environment=_environment(task, harness, extraction, workdir),
        extraction=extraction,
        verification=verification,
        refusal=_refusal(task),
        denial=_denial(task, decision, policy),
        row_digest=row_digest(task),
        command=_agent_command(task, harness, extraction, workspace),
    )


def _environment(
    task: SecureBenchTask, harness: HarnessConfig, extraction: Extraction, workdir: str
) -> Environment:
    """Return in what the agent works.

    Raises:
        ConfigError: The candidate is a file of a workspace, and there is none.
    """
    wanted = task.environment
    seconds = agent_time_limit(wanted, harness)
    family = FAMILIES.get(task.task_type)
    if family is None or KINDS[family.candidate_kind].has_workspace:
        return Environment(
            image=str(wanted["image"]),
            workspace=workspace_target(task),
            workdir=workdir,
            timeout_seconds=seconds,
            starts_filled=bool(wanted.get(MATERIALIZE)),
            writable_root=SOURCES[extraction.mode].is_image,
        )
    if extraction.path is not None:
        raise ConfigError(
            f"task {task.id!r} has no workspace: its files are handed in as they are, without"
            f" {_file_name(harness)}"
        )
    return in_image(wanted, seconds)


def _file_name(harness: HarnessConfig) -> str:
    """Return what error messages call the answer file."""
    is_command = isinstance(harness, CommandHarness)
    return "harness.config.artifact_path" if is_command else "the file of the answer"


def _workdir(
    extraction: Extraction,
    verification: Verification | None,
    environment: Mapping[str, object],
    workspace: str,
) -> str:
    """Return the working folder: the checkout if the agent edits a repository (12.1)."""
    if not SOURCES[extraction.mode].is_image or verification is None:
        return workspace
    workdir = environment.get("workdir")
    return workdir if isinstance(workdir, str) else verification.checkout


def check_kinds(tasks: Iterable[SecureBenchTask]) -> None:
    """Check that somebody knows what tasks are handed in as, and how that is verified.

    Raises:
        ConfigError: No installed package does.
    """
    for name in dict.fromkeys(task.task_type for task in tasks):
        family = FAMILIES.get(name)
        if family is not None:
            candidate_form(family.candidate_kind)
            kind_named(family.verification)


def network_problem(tasks: Iterable[SecureBenchTask], harness: HarnessConfig) -> str | None:
    """Return why tasks cannot run with the network that they ask for, or None."""
    if harness.network:
        return None
    asked: dict[str, str] = {}
    for task in tasks:
        family = FAMILIES.get(task.task_type)
        if family is not None and (wanted := family.asked_network(task, harness.allowed_domains)):
            asked[task.id] = wanted
    if not asked:
        return None
    (first, wanted), more = next(iter(asked.items())), len(asked) - 1
    others = f" (and {more} other task{'s ask' if more > 1 else ' asks'} for an open network)"
    return (
        f"task {first!r} asks for the network {wanted}{others if more else ''}: run without it by"
        " --network none, or name the hosts of an agent's list in harness.config.allowed_domains"
    )


def _agent_command(
    task: SecureBenchTask, harness: HarnessConfig, extraction: Extraction, workspace: str
) -> tuple[str, ...]:
    if not isinstance(harness, ProviderHarness):
        return ()
    family = FAMILIES.get(task.task_type)
    if family is not None and family.prompt:
        prompt = str(task.resources.value(family.prompt))
    else:
        prompt = task_prompt(extraction, workspace, harness.task_file)
    return cli_named(harness.type).command(harness, prompt, PROVIDER_URL)


def _refusal(task: SecureBenchTask) -> Refusal | None:
    problem = verifier_configuration_problem(task)
    if problem is None:
        return None
    message = f"the verifier cannot work with this task: {problem}"
    return Refusal("verifier", VERIFIER_CONFIGURATION, FailurePhase.VERIFICATION, message, {})


def needed_commands(task: SecureBenchTask) -> Sequence[str]:
    """Return the checker's commands that need a Linux capability; most tasks have none."""
    request = check_request(task)
    return [] if request is None else list(request.needed_commands)


def command_decision(task: SecureBenchTask, policy: VerificationPolicy) -> CommandDecision:
    """Decide whether the task's verifier may run (contract 14.7)."""
    return decide(needed_commands(task), policy)


def _denial(
    task: SecureBenchTask, decision: CommandDecision, policy: VerificationPolicy
) -> Refusal | None:
    if decision.allowed:
        return None
    result = denial_result(task.task_type, decision, needed_commands(task), policy)
    message = f"the checker needs a command that is {decision.reason}"
    metadata = {**result.metadata, VERIFIER_STDERR: result.stderr}
    return Refusal("agent", FAILURE_REASON, FailurePhase.CHECKER, message, metadata)


def egress_plan(
    harness: HarnessConfig, spec: BenchmarkRunSpec, listed: Sequence[ClusterProvider] = ()
) -> EgressPlan | None:
    """Return the egress of a run's harness Pods, or None for no network at all.

    Args:
        harness: Harness of the run.
        spec: Names the Secret with the provider's key.
        listed: Providers inside the cluster that the administrator allows.

    Raises:
        SpecError: The provider needs a key that is not there, or is not public and not listed; or
            there is a budget without a provider.
    """
    provider = _provider_plan(harness, spec, listed)
    if provider is None and spec.budget is not None:
        raise SpecError(
            "spec.budget: the harness has no model provider whose tokens the gateway counts; set"
            " harness.config.provider, or remove the budget"
        )
    if provider is None and not harness.allowed_domains:
        return None
    return EgressPlan(domains=harness.allowed_domains, provider=provider)


def _provider_environment(harness: HarnessConfig) -> dict[str, str]:
    """Return the variables by which a command finds its provider; they hold no secret."""
    endpoint = harness.endpoint
    if endpoint is None:
        return {}
    url = f"{PROVIDER_URL}{APIS[endpoint.api].base}"
    vendor = "ANTHROPIC" if APIS[endpoint.api].name == "anthropic" else "OPENAI"
    model = {f"{vendor}_MODEL": harness.model} if harness.model else {}
    return {
        f"{vendor}_BASE_URL": url,
        f"{vendor}_API_KEY": DUMMY_KEY,
        **model,
        "NO_PROXY": NO_PROXY,
        "no_proxy": NO_PROXY,
    }


def _provider_plan(
    harness: HarnessConfig, spec: BenchmarkRunSpec, listed: Sequence[ClusterProvider]
) -> ProviderPlan | None:
    endpoint = harness.endpoint
    if isinstance(harness, ProviderHarness):
        cli = cli_named(harness.type)
        rules, key = cli.provider, cli.key if endpoint is None else endpoint.key
    elif endpoint is not None:
        rules, key = APIS[endpoint.api], endpoint.key
    else:
        return None
    if key and spec.provider is None:
        raise SpecError(f"spec.provider: harness type {harness.type} needs provider.secretRef")
    secret = "" if spec.provider is None or not key else spec.provider.secret_ref.name
    vendor = ProviderPlan(
        rules.name,
        rules.host,
        PROVIDER_KEY if secret else "",
        secret=secret,
        key=key,
        allow_external_tools=harness.allow_external_tools,
        max_requests=harness.max_requests,
        max_tokens=harness.max_tokens,
        run_tokens=None if spec.budget is None else spec.budget.tokens,
        model=harness.model,
    )
    return vendor if endpoint is None else _elsewhere(vendor, endpoint, listed)


def _elsewhere(
    vendor: ProviderPlan, endpoint: ProviderEndpoint, listed: Sequence[ClusterProvider]
) -> ProviderPlan:
    """Return the plan for a provider that the tester names by its URL.

    Raises:
        SpecError: Only the administrator may allow it.
    """
    place = endpoint.host, endpoint.port
    inside = next((each for each in listed if (each.host, each.port) == place), None)
    if inside is None and endpoint.is_plain:
        raise SpecError(f"{_PLACE}: {endpoint.url} has no TLS; write https://, or {_ADVICE}")
    if inside is None and endpoint.host.endswith(INSIDE):
        raise SpecError(f"{_PLACE}: {endpoint.host} is not public; {_ADVICE}")
    return replace(
        vendor,
        host=endpoint.host,
        port=endpoint.port,
        base=endpoint.base,
        is_plain=endpoint.is_plain,
        ca=endpoint.ca,
        is_inside=inside is not None,
        inside=inside,
        title=endpoint.host,
    )
