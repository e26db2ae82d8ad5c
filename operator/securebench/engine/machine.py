"""What to do next with one attempt: chained pure rules, the first that speaks decides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from securebench.candidates.extraction import Problem
from securebench.engine.model import (
    AttemptHistory,
    Finish,
    Lost,
    Outcome,
    Production,
    SealedCandidate,
    SealedPatch,
    Verification,
)
from securebench.engine.observe import PodView
from securebench.engine.stage import (
    Ended,
    InProgress,
    Interrupted,
    launch_stage,
)
from securebench.plan.model import (
    AttemptKey,
    LaunchKey,
    Refusal,
    Role,
    RunPolicy,
    TaskPlan,
    VerifierKind,
)
from securebench.reasons import (
    DISK_LIMIT_EXCEEDED,
    EMPTY_CANDIDATE,
    IMAGE_CHANGED,
    OOM_KILLED,
    PRODUCER_TIMEOUT,
    SUPERVISOR_KILLED,
    VERIFIER_TIMEOUT,
)

WITH_TASK_IMAGE = frozenset({VerifierKind.CHECK, VerifierKind.CODE})
"""Verifiers that run in the task's image."""

PHASE_OF_ROLE = {Role.HARNESS: "producer", Role.VERIFIER: "verification"}


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing before the next event, or before ``until``."""

    until: float | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """A launch may begin when a slot is free."""

    launch: LaunchKey


@dataclass(frozen=True, slots=True)
class Capture:
    """Read what an ended launch left on the volume and in its messages."""

    launch: LaunchKey
    view: PodView
    ended: Ended


Step = Wait | Begin | Capture | Lost | Finish


def attempt_step(
    task: TaskPlan, history: AttemptHistory, view: PodView | None, policy: RunPolicy, now: float
) -> Step:
    """Decide about one unfinished attempt of a run that goes on.

    Args:
        task: Its task.
        history: What the journal knows; not finished.
        view: The Pod of the live launch, None when the cluster shows none.
        policy: Numbers of the loop.
        now: Seconds since the epoch.

    Returns:
        ``Lost`` only for a live launch whose Pod is seen and was interrupted; whether a Pod
        that is not seen is lost is decided where the listing is known.
    """
    if history.live is not None:
        return _live_step(task, history, view, policy, now)
    if history.verification is not None:
        return after_verification(task, history, history.verification)
    if history.production is not None:
        judged = after_production(task, history, history.production)
        return judged if judged is not None else _next_launch(history, Role.VERIFIER, policy, now)
    if task.refusal is not None and history.launches == 0:
        return _refused(history, task.refusal)
    return _next_launch(history, Role.HARNESS, policy, now)


def _live_step(
    task: TaskPlan, history: AttemptHistory, view: PodView | None, policy: RunPolicy, now: float
) -> Step:
    live = history.live
    if live is None or view is None:
        return Wait()
    kind = task.verifier if live.role is Role.VERIFIER else None
    match launch_stage(view, kind, history.live_since, policy, now):
        case InProgress(wake_at):
            return Wait(wake_at)
        case Interrupted(reason, message):
            return Lost(live, reason, message, now)
        case ended:
            return Capture(live, view, ended)


def _next_launch(history: AttemptHistory, role: Role, policy: RunPolicy, now: float) -> Step:
    lost = history.last_lost
    if lost is None:
        return Begin(LaunchKey(*history.key, role, history.retries + 1))
    if history.retries > policy.infrastructure_retries:
        phase = PHASE_OF_ROLE[lost.launch.role]
        return Finish(history.key, Outcome.INFRASTRUCTURE, lost.reason, phase, lost.message)
    ready_at = lost.at + backoff(policy, history.retries)
    if now < ready_at:
        return Wait(ready_at)
    return Begin(LaunchKey(*history.key, role, history.retries + 1))


def backoff(policy: RunPolicy, retries: int) -> float:
    """Return the wait in seconds before launch ``retries`` + 1; retries counts from 1."""
    return min(policy.backoff_seconds * 2.0 ** (retries - 1), policy.backoff_limit_seconds)


def _refused(history: AttemptHistory, refusal: Refusal) -> Finish:
    outcome = Outcome(refusal.outcome)
    passed = False if outcome is Outcome.AGENT else None
    return Finish(
        history.key,
        outcome,
        refusal.reason,
        refusal.phase,
        refusal.message,
        passed,
        refusal.metadata,
    )


def after_production(
    task: TaskPlan, history: AttemptHistory, production: Production
) -> Finish | None:
    """Judge what needs no verifier Pod; None where a verifier decides.

    Source: contract 13.1, 14.7, 15.1; a producer timeout comes before everything else.
    """
    key = history.key
    if production.command.timed_out:
        message = f"candidate production timed out after {task.timeout_seconds or 0.0:g} seconds"
        return _agent(key, PRODUCER_TIMEOUT, "producer", message)
    if production.problem == SUPERVISOR_KILLED:
        message = "the harness ended the supervisor of its own container"
        return _agent(key, SUPERVISOR_KILLED, "producer", message)
    if production.problem:
        message = _limit_message(production.problem, "harness")
        return Finish(key, Outcome.RESOURCE, production.problem, "producer", message, passed=False)
    if task.verifier is VerifierKind.NONE:
        return Finish(key, Outcome.NOT_VERIFIED)
    return _judged(task, key, production.candidate)


def _judged(task: TaskPlan, key: AttemptKey, candidate: SealedCandidate | None) -> Finish | None:
    if candidate is None:
        message = "there is no candidate"
        return _agent(key, Problem.MISSING.value, "candidate_extraction", message)
    if candidate.problem is not None:
        return _agent(key, candidate.problem, "candidate_extraction", candidate.message)
    if candidate.patch is not None:
        return _patch_end(key, candidate.patch)
    if candidate.is_blank:
        return _agent(key, EMPTY_CANDIDATE, "verification", "the candidate is empty")
    if task.verifier is VerifierKind.CHECK and task.extraction.kind != "workspace":
        message = "the harness hands in a file; the checker needs a workspace directory"
        return _agent(key, Problem.MISSING.value, "candidate_extraction", message)
    if task.denial is not None:
        end = _agent(key, task.denial.reason, task.denial.phase, task.denial.message)
        return replace(end, metadata=task.denial.metadata)
    return None


def _patch_end(key: AttemptKey, patch: SealedPatch) -> Finish | None:
    if not patch.problem:
        return None
    end = _agent(key, patch.problem, patch.phase, patch.message)
    return replace(end, metadata={"phase": patch.phase, "failure_reason": patch.problem})


def _agent(key: AttemptKey, reason: str, phase: str, message: str) -> Finish:
    return Finish(key, Outcome.AGENT, reason, phase, message, passed=False)


def after_verification(
    task: TaskPlan, history: AttemptHistory, verification: Verification
) -> Finish:
    """Turn what the verifier Pod said into the attempt's end."""
    key = history.key
    if verification.problem == SUPERVISOR_KILLED:
        message = "the candidate ended the supervisor of the check"
        return Finish(key, Outcome.SCORED, SUPERVISOR_KILLED, "verification", message, passed=False)
    if verification.problem in {OOM_KILLED, DISK_LIMIT_EXCEEDED}:
        message = _limit_message(verification.problem, "verifier")
        return Finish(
            key, Outcome.RESOURCE, verification.problem, "verification", message, passed=False
        )
    if verification.problem:
        return _unfit(key, verification)
    if _image_changed(task, history, verification):
        message = "the task image resolved to different contents in harness and verifier"
        return Finish(key, Outcome.INFRASTRUCTURE, IMAGE_CHANGED, "verification", message)
    if verification.command.timed_out:
        message = "the check ran into its time limit"
        phase = verification.command.phase or "checker"
        return Finish(key, Outcome.SCORED, VERIFIER_TIMEOUT, phase, message, passed=False)
    return Finish(key, Outcome.SCORED, passed=verification.passed)


def _unfit(key: AttemptKey, verification: Verification) -> Finish:
    """End an attempt whose check gave no verdict of its own."""
    outcome = Outcome(verification.outcome or Outcome.VERIFIER)
    passed = None if outcome is Outcome.VERIFIER else False
    phase = verification.phase or "verification"
    return Finish(key, outcome, verification.problem, phase, verification.message, passed=passed)


def _image_changed(task: TaskPlan, history: AttemptHistory, verification: Verification) -> bool:
    production = history.production
    if task.verifier not in WITH_TASK_IMAGE or production is None:
        return False
    before, after = production.facts.image_id, verification.facts.image_id
    return bool(before and after and before != after)


def _limit_message(reason: str, place: str) -> str:
    limits: Mapping[str, str] = {
        OOM_KILLED: f"the {place} container was killed at its memory limit",
        DISK_LIMIT_EXCEEDED: f"the {place} Pod was evicted at its disk limit",
    }
    return limits[reason]
