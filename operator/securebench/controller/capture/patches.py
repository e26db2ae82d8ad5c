"""Candidate patches on the volume: what the operator judges itself and what it hands to the check.

Source: contract 14.5.1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from securebench.benchmark.families.verification import PatchPlan
from securebench.benchmark.patch.judgement import PatchJudgement, judge_changes, listed
from securebench.digests import content_digest
from securebench.errors import DigestMismatchError
from securebench.files.durable import replace_file
from securebench.protocol.exit_codes import Code
from securebench.protocol.extraction import CHANGED_FILE, TEXT_FILE
from securebench.reasons import EVALUATOR_TAMPERED, VERIFIER_ERROR, FailurePhase
from securebench.run.api.field_types import Outcome
from securebench.run.observe.termination import STEP_OF_CODE, PatchStep
from securebench.run.pods.verify.repository_check import APPLIED, DECLARED
from securebench.run.state.attempts import SealedPatch, VerifierResult
from securebench.sizes import KIB

TAMPERED_MESSAGE = "the checks succeeded although a test was added that must fail"

CHANGED_BYTES = 256 * KIB
"""What is read of a list of changed paths; beyond it the patch counts as one that does not do what
it declares, without a list."""


def seal_patch(plan: PatchPlan, folder: Path) -> SealedPatch:
    """Judge a sealed patch by its text and write what the check applies. Blocks.

    Args:
        plan: How patches of the task are judged.
        folder: The candidate's folder; writing there again writes the same.
    """
    judgement = plan.judged((folder / TEXT_FILE).read_bytes())
    if judgement.problem is not None:
        problem = judgement.problem
        return SealedPatch(problem.value, problem.phase, judgement.message)
    applied, declared = judgement.text, _declared(judgement)
    replace_file(folder / APPLIED, applied)
    replace_file(folder / DECLARED, declared)
    return SealedPatch(
        applied_digest=content_digest(applied), declared_digest=content_digest(declared)
    )


def _declared(judgement: PatchJudgement) -> bytes:
    links = dict(sorted(judgement.links.items()))
    declared = {"version": 1, "changed": sorted(judgement.changed), "links": links}
    return json.dumps(declared, separators=(",", ":")).encode()


def failed_step(plan: PatchPlan, base: VerifierResult, code: int, folder: Path) -> VerifierResult:
    """Say how a check ended that gave no verdict of its own.

    Args:
        plan: How patches of the task are judged.
        base: What is known of the launch.
        code: Exit code of supervise.
        folder: What the courier collected.
    """
    if code == Code.TAMPERED:
        return replace(
            base,
            problem=EVALUATOR_TAMPERED,
            outcome=Outcome.SCORED.value,
            phase=FailurePhase.CHECKS,
            message=TAMPERED_MESSAGE,
        )
    step = STEP_OF_CODE.get(code)
    if step is None:
        reason = f"the repository could not be prepared: {base.command.error}"
        return replace(base, problem=VERIFIER_ERROR, message=reason)
    suffix = f": {base.command.error}" if base.command.error else ""
    known = replace(
        base,
        problem=step.reason,
        outcome=step.outcome.value,
        phase=step.phase,
        message=step.message + suffix,
    )
    return _denied(plan, known, folder) if step is PatchStep.PATHS else known


def _denied(plan: PatchPlan, known: VerifierResult, folder: Path) -> VerifierResult:
    """Tell a policy violation from a patch that changes other paths than it declares."""
    changed = _changed(folder / CHANGED_FILE)
    if changed is None:
        return known
    judgement = judge_changes(changed, plan.candidate_policy)
    metadata = listed("actual_candidate_patch_paths", sorted(changed))
    if judgement.denied:
        metadata |= listed("denied_candidate_patch_paths", sorted(judgement.denied))
    reason = judgement.problem.value if judgement.problem is not None else known.problem
    return replace(known, problem=reason, message=judgement.message, metadata=metadata)


def _changed(path: Path) -> Mapping[str, str | None] | None:
    """Read the list that supervise wrote before any candidate code ran; None for a long one."""
    try:
        if path.stat().st_size > CHANGED_BYTES:
            return None
        value = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise DigestMismatchError(f"the list of changed paths is damaged: {error}") from error
    if not isinstance(value, dict):
        raise DigestMismatchError("the list of changed paths is damaged")
    return {str(name): None if target is None else str(target) for name, target in value.items()}
