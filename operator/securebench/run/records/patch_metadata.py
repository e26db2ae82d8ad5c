"""Verifier metadata of a candidate patch (contract 14.5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from securebench.benchmark.patch.judgement import listed
from securebench.digests import content_digest
from securebench.reasons import VERIFIER_TIMEOUT, FailurePhase
from securebench.run.plan.build import VERIFIER_STDERR

if TYPE_CHECKING:
    from securebench.benchmark.families.verification import PatchPlan
    from securebench.run.plan.model import CheckPlan, TaskPlan
    from securebench.run.state.attempts import AttemptHistory


IN_PROCESS = {"containment_profile": "shared_runtime", "hidden_test_runtime_secrecy": False}
"""Metadata of a record whose candidate code ran in the interpreter of the tests."""


def patch_metadata(
    task: TaskPlan, check: CheckPlan, patch: PatchPlan, history: AttemptHistory, text: str | bytes
) -> dict[str, object]:
    """Return the verifier metadata of a candidate patch, before redaction.

    The function that decided at capture runs again on the sealed text: the journal keeps its
    decision, but not the lists of paths, which would make it as long as the patches.
    If no verifier Pod was started, the operator's own message is under ``VERIFIER_STDERR``.
    """
    judgement = patch.judged(text)
    tests = task.task.resources.value("tests")
    common: dict[str, object] = {
        "verifier": task.task.task_type,
        "image": task.image,
        "workdir": check.workdir,
        "base_commit": patch.base_commit,
        "command": tests.get("command") if isinstance(tests, Mapping) else list(check.command),
        "exit_code": None,
        "timed_out": False,
        "timeout_seconds": check.timeout_seconds,
        "candidate_allow_paths_configured": bool(patch.policy.get("allow_paths")),
        **IN_PROCESS,
        **judgement.metadata(),
    }
    if judgement.text:
        common["applied_candidate_patch_sha256"] = content_digest(judgement.text)
    verification = history.verification
    if verification is None:
        return common | _stopped(history) | {VERIFIER_STDERR: judgement.stderr}
    command = verification.command
    common |= {
        "phase": verification.phase or command.phase or FailurePhase.CHECKS,
        "timed_out": command.timed_out,
        "image_commit": command.commit or None,
    }
    if not verification.problem and not command.timed_out:
        common |= listed("actual_candidate_patch_paths", sorted(judgement.changed))
    reason = verification.problem or (VERIFIER_TIMEOUT if command.timed_out else "")
    if reason:
        common["failure_reason"] = reason
    return common | dict(verification.metadata)


def _stopped(history: AttemptHistory) -> dict[str, object]:
    return dict(history.finish.metadata) if history.finish is not None else {}
