"""Verify one candidate and build its record without a cluster (contract 2.3)."""

from __future__ import annotations

from dataclasses import replace

from securebench.benchmark.families.registry import FAMILIES, verifier_for_task_type
from securebench.benchmark.pack.task import SecureBenchTask
from securebench.benchmark.scorers.dangerous_commands import VerificationPolicy, denial_result
from securebench.benchmark.scorers.result import CandidateArtifact, VerificationResult
from securebench.errors import ConfigError
from securebench.run.plan.build import command_decision, needed_commands
from securebench.run.records.record import task_fields, verdict_fields
from securebench.run.records.redaction import redact_verification, task_secrets


def verify_candidate(
    task: SecureBenchTask,
    candidate: CandidateArtifact,
    *,
    verification_policy: VerificationPolicy | None = None,
) -> VerificationResult | None:
    """Verify a candidate on this machine.

    Args:
        task: A compiled task.
        candidate: The candidate for that task.
        verification_policy: What checkers may do; None for the defaults.

    Returns:
        The verdict with unredacted metadata, or None for a family without a verifier.

    Raises:
        ConfigError: The verifier runs untrusted code and therefore needs a Pod, or the task has a
            verifier configuration error.
    """
    verifier = verifier_for_task_type(task.task_type)
    if verifier is None:
        return None
    policy = verification_policy or VerificationPolicy()
    decision = command_decision(task, policy)
    if not decision.allowed:
        denied = denial_result(task.task_type, decision, needed_commands(task), policy)
        return replace(denied, task_id=task.id)
    if verifier.scorer is None:
        raise ConfigError(
            f"task {task.id!r}: the verifier of {task.task_type} runs the task's check in a Pod;"
            " start a run to verify this candidate"
        )
    result = verifier.scorer.verify(
        candidate.for_kind(FAMILIES[task.task_type].candidate_kind),
        task.agent_payload(),
        task.hidden_payload(),
    )
    return replace(result, task_id=task.id)


def candidate_record(
    run_id: str,
    task: SecureBenchTask,
    candidate: CandidateArtifact,
    verification: VerificationResult | None = None,
) -> dict[str, object]:
    """Return the record of a candidate, with the fields of contract 15.3.

    Args:
        run_id: Any text.
        task: The candidate's task.
        candidate: Its fields are not redacted.
        verification: The verdict, or None for a pending record.
    """
    passed = None if verification is None else verification.passed
    return {
        **task_fields(run_id, task),
        **verdict_fields(passed),
        "candidate_text": candidate.text,
        "candidate_patch": candidate.patch,
        "candidate_workspace": candidate.workspace,
        "producer_stdout": candidate.stdout,
        "producer_stderr": candidate.stderr,
        "producer_metadata": dict(candidate.metadata),
        **({} if verification is None else _verifier_fields(task, verification)),
    }


def _verifier_fields(task: SecureBenchTask, verification: VerificationResult) -> dict[str, object]:
    redacted = redact_verification(
        task_secrets(task.resources),
        verification.stdout,
        verification.stderr,
        verification.metadata,
        None,
    )
    return {
        "verifier_stdout": redacted.stdout,
        "verifier_stderr": redacted.stderr,
        "verifier_metadata": redacted.metadata,
    }
