"""Plan one compiled row: image, folders, time limits, extraction and verification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from securebench.agents.harness_config import CommandHarness, HarnessConfig, ProviderHarness
from securebench.agents.harness_task import agent_time_limit, extraction_for, task_prompt
from securebench.agents.registry import cli_named
from securebench.benchmark.families.base import Family
from securebench.benchmark.families.counted_commands import argv_of
from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.families.verification import CheckRequest
from securebench.benchmark.pack.environment import MATERIALIZE, workspace_target
from securebench.benchmark.pack.lane_plan import check_task_file, materialization_plan
from securebench.benchmark.pack.references import checker_reference
from securebench.benchmark.pack.task import SecureBenchTask, row_digest
from securebench.benchmark.reading.rows import verifier_configuration_problem
from securebench.benchmark.scorers.dangerous_commands import (
    FAILURE_REASON,
    CommandDecision,
    VerificationPolicy,
    decide,
    denial_result,
)
from securebench.json_values import first_limit
from securebench.protocol.extraction import Extraction, ExtractionMode
from securebench.reasons import VERIFIER_CONFIGURATION, FailurePhase
from securebench.run.plan.egress_plan import PROVIDER_URL
from securebench.run.plan.model import CheckPlan, Refusal, SourcePlan, TaskPlan, VerifierKind

VERIFIER_STDERR = "verifier_stderr"
"""Key of a denial's metadata that becomes a field of the record."""

CHECK_SECONDS = 300.0
"""Default time limit of a check (contract 15.8)."""


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
    environment = task.environment
    workspace = workspace_target(task)
    family = FAMILIES.get(task.task_type)
    kind = _verifier_kind(family)
    decision = command_decision(task, policy)
    check = _check_plan(task, workspace, decision) if kind is VerifierKind.CHECK else None
    return TaskPlan(
        index=index,
        task=task,
        image=str(environment["image"]),
        workspace=workspace,
        workdir=_workdir(extraction, check, task.environment, workspace),
        timeout_seconds=agent_time_limit(environment, harness),
        materialize_from=workspace if environment.get(MATERIALIZE) else "",
        extraction=extraction,
        verifier=kind,
        check=check,
        refusal=_refusal(task),
        denial=_denial(task, decision, policy),
        row_digest=row_digest(task),
        code=None if family is None or family.code is None else family.code(task),
        command=_agent_command(harness, extraction, workspace),
    )


def _file_name(harness: HarnessConfig) -> str:
    """Return what error messages call the answer file."""
    is_command = isinstance(harness, CommandHarness)
    return "harness.config.artifact_path" if is_command else "the file of the answer"


def _workdir(
    extraction: Extraction,
    check: CheckPlan | None,
    environment: Mapping[str, object],
    workspace: str,
) -> str:
    """Return the working folder: the checkout if the agent edits a repository (12.1)."""
    if extraction.mode != ExtractionMode.GIT_DIFF or check is None:
        return workspace
    workdir = environment.get("workdir")
    return workdir if isinstance(workdir, str) else check.workdir


def _agent_command(
    harness: HarnessConfig, extraction: Extraction, workspace: str
) -> tuple[str, ...]:
    if not isinstance(harness, ProviderHarness):
        return ()
    prompt = task_prompt(extraction, workspace, harness.task_file)
    return cli_named(harness.type).command(harness, prompt, PROVIDER_URL)


def _verifier_kind(family: Family | None) -> VerifierKind:
    if family is None:
        return VerifierKind.NONE
    if family.scorer is not None:
        return VerifierKind.TEXT
    return VerifierKind.CHECK if family.check is not None else VerifierKind.CODE


def _refusal(task: SecureBenchTask) -> Refusal | None:
    problem = verifier_configuration_problem(task)
    if problem is None:
        return None
    message = f"the verifier cannot work with this task: {problem}"
    return Refusal("verifier", VERIFIER_CONFIGURATION, FailurePhase.VERIFICATION, message, {})


def needed_commands(task: SecureBenchTask) -> Sequence[str]:
    """Return the checker's commands that need a Linux capability; most tasks have none."""
    request = _check_request(task)
    return [] if request is None else list(request.needed_commands)


def command_decision(task: SecureBenchTask, policy: VerificationPolicy) -> CommandDecision:
    """Decide whether the task's verifier may run (contract 14.7)."""
    return decide(needed_commands(task), policy)


def _check_request(task: SecureBenchTask) -> CheckRequest | None:
    """Return the check that the row asks for; None if no check can run."""
    family = FAMILIES.get(task.task_type)
    if family is None or family.check is None or verifier_configuration_problem(task) is not None:
        return None
    return family.check(task)


def _denial(
    task: SecureBenchTask, decision: CommandDecision, policy: VerificationPolicy
) -> Refusal | None:
    if decision.allowed:
        return None
    result = denial_result(task.task_type, decision, needed_commands(task), policy)
    message = f"the checker needs a command that is {decision.reason}"
    metadata = {**result.metadata, VERIFIER_STDERR: result.stderr}
    return Refusal("agent", FAILURE_REASON, FailurePhase.CHECKER, message, metadata)


def _check_plan(
    task: SecureBenchTask, workspace: str, decision: CommandDecision
) -> CheckPlan | None:
    """Return the check; None for a row with a verifier configuration error."""
    request = _check_request(task)
    if request is None:
        return None
    return CheckPlan(
        command=argv_of(request.command),
        workdir=_folder(request.base or workspace, request.workdir),
        timeout_seconds=first_limit(request.timeouts, CHECK_SECONDS),
        capabilities=decision.capabilities,
        patch=request.patch,
        source=_source(task),
        skips=request.skips,
        plugins=request.plugins,
    )


def _source(task: SecureBenchTask) -> SourcePlan | None:
    reference = checker_reference(task)
    checker = task.resources.value("checker")
    if reference is None or not isinstance(checker, Mapping):
        return None
    return SourcePlan(str(checker.get("source")), reference.source)


def _folder(workspace: str, workdir: object) -> str:
    if not isinstance(workdir, str):
        return workspace
    return workdir if workdir.startswith("/") else f"{workspace}/{workdir}"
