"""Plan one compiled row: image, folders, time limits, extraction and verification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from securebench.agents.harness_config import CommandHarness, HarnessConfig, ProviderHarness
from securebench.agents.harness_task import agent_time_limit, extraction_for, task_prompt
from securebench.agents.registry import cli_named
from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.pack.environment import MATERIALIZE, workspace_target
from securebench.benchmark.pack.lane_plan import check_task_file, materialization_plan
from securebench.benchmark.pack.task import SecureBenchTask, row_digest
from securebench.benchmark.reading.rows import verifier_configuration_problem
from securebench.benchmark.scorers.dangerous_commands import (
    FAILURE_REASON,
    CommandDecision,
    VerificationPolicy,
    decide,
    denial_result,
)
from securebench.protocol.extraction import Extraction, ExtractionMode
from securebench.reasons import VERIFIER_CONFIGURATION, FailurePhase
from securebench.run.plan.egress_plan import PROVIDER_URL
from securebench.run.plan.kinds import PlanRequest, check_request, kind_named
from securebench.run.plan.model import Refusal, TaskPlan

if TYPE_CHECKING:
    from securebench.run.verification.base import Verification

VERIFIER_STDERR = "verifier_stderr"
"""Key of a denial's metadata that becomes a field of the record."""


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
    decision = command_decision(task, policy)
    verification = None
    if family is not None:
        request = PlanRequest(task, family, workspace, decision)
        verification = kind_named(family.verification).planned(request)
    return TaskPlan(
        index=index,
        task=task,
        image=str(environment["image"]),
        workspace=workspace,
        workdir=_workdir(extraction, verification, task.environment, workspace),
        timeout_seconds=agent_time_limit(environment, harness),
        materialize_from=workspace if environment.get(MATERIALIZE) else "",
        extraction=extraction,
        verification=verification,
        refusal=_refusal(task),
        denial=_denial(task, decision, policy),
        row_digest=row_digest(task),
        command=_agent_command(harness, extraction, workspace),
    )


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
    if extraction.mode != ExtractionMode.GIT_DIFF or verification is None:
        return workspace
    workdir = environment.get("workdir")
    return workdir if isinstance(workdir, str) else verification.checkout


def _agent_command(
    harness: HarnessConfig, extraction: Extraction, workspace: str
) -> tuple[str, ...]:
    if not isinstance(harness, ProviderHarness):
        return ()
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
