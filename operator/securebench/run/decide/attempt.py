"""What to do next with one attempt. Pure; the first rule that applies decides.

``attempt_step`` reads the attempt's history and the Pod of its live launch. The end of a production
and of a verification is judged here, and why an agent handed nothing in: the record names the
cause, not only its trace. At the end: which sealed candidates of text families share a verifier
Pod, and when.

Source: contract 15.1, 21.10; decisions 0025 and 0061.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import PurePosixPath
from signal import Signals
from typing import Final, NamedTuple, TypeVar, assert_never

from securebench.benchmark.patch.judgement import PatchProblem
from securebench.clock import backoff
from securebench.protocol.candidate import KINDS, Problem
from securebench.protocol.gateway import RelayReport
from securebench.reasons import (
    BUDGET_EXHAUSTED,
    DISK_LIMIT_EXCEEDED,
    EMPTY_CANDIDATE,
    HARNESS_FAILED,
    HARNESS_NOT_STARTED,
    IMAGE_CHANGED,
    OOM_KILLED,
    POD_LOST,
    PREFLIGHT_FAILED,
    PRODUCER_TIMEOUT,
    PROVIDER_AUTH,
    PROVIDER_QUOTA,
    PROVIDER_UNAVAILABLE,
    PROVIDER_USAGE,
    RUN_BUDGET_EXHAUSTED,
    SUPERVISOR_KILLED,
    VERIFIER_TIMEOUT,
    FailurePhase,
)
from securebench.run.api.field_types import Outcome
from securebench.run.observe.pods import PodView
from securebench.run.observe.stage import (
    HARNESS_WORK,
    Ended,
    InProgress,
    Interrupted,
    Work,
    launch_stage,
)
from securebench.run.plan.model import (
    AttemptKey,
    EarlierRun,
    LaunchKey,
    Role,
    RunPlan,
    RunPolicy,
    TaskPlan,
)
from securebench.run.state.attempts import (
    AttemptHistory,
    CommandReport,
    Finish,
    FinishedState,
    HarnessResult,
    JudgedState,
    LaunchedState,
    Lost,
    ProducedState,
    QueuedState,
    SealedCandidate,
    VerifierResult,
    was_refused_by_run_budget,
)
from securebench.run.verification.base import MAX_BATCH_MEMBERS, agent_end, blank_end

OUTAGES: Mapping[str, str] = {
    PROVIDER_AUTH: "the model provider {provider} refused the key",
    PROVIDER_QUOTA: "the model provider {provider} refused for its quota or rate limit",
    PROVIDER_UNAVAILABLE: "the model provider {provider} did not answer as it should",
    PROVIDER_USAGE: "the model provider {provider} reports no tokens, so that a budget of tokens"
    " cannot be kept: remove the budget, or take budget.requests",
}
"""What a record says of an outage, by reason."""

PHASE_OF_REASON: Mapping[str, str] = {PREFLIGHT_FAILED: FailurePhase.PREFLIGHT}
"""failure_phase of reasons that have one of their own."""

MAX_SUSPECT_LAUNCHES = 2
"""Failures of one role on the agent's output after which the agent is at fault (21.16)."""

PHASE_OF_ROLE = {Role.HARNESS: FailurePhase.PRODUCER, Role.VERIFIER: FailurePhase.VERIFICATION}


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing until the next event, or until ``until``."""

    until: float | None = None


@dataclass(frozen=True, slots=True)
class Begin:
    """A launch may begin when a slot is free."""

    launch: LaunchKey


@dataclass(frozen=True, slots=True)
class Capture:
    """Read what an ended launch left on the volume and in its messages.

    Attributes:
        batch: First launch of the batch that shared the Pod, or None.
    """

    launch: LaunchKey
    view: PodView
    ended: Ended
    batch: LaunchKey | None = None


Step = Wait | Begin | Capture | Lost | Finish


def attempt_step(plan: RunPlan, history: AttemptHistory, view: PodView | None, now: float) -> Step:
    """Decide about one unfinished attempt of an active run.

    Args:
        history: What the journal knows; not finished.
        view: The Pod of the live launch, None when the cluster shows none.
        now: Seconds since the epoch.

    Returns:
        ``Lost`` only for a live launch whose Pod is seen and was interrupted, and for a production
        during which the model provider failed; whether a Pod that is not seen is lost is decided
        where the listing is known.
    """
    task = plan.tasks[history.key.task]
    match history.state:
        case LaunchedState() as launched:
            return _launched_step(plan, launched, view, now)
        case JudgedState(produced, verification):
            return after_verification(task, history.key, produced.production, verification)
        case ProducedState(production):
            return (
                _refused(task, history)
                or _cut_by_budget(history.key, production)
                or _outage(plan, history, production, now)
                or after_production(task, history.key, production)
                or _next_launch(history, Role.VERIFIER, plan.policy, now)
            )
        case QueuedState():
            return (
                _refused(task, history)
                or _never_sealed(history.key, plan.regrade)
                or _next_launch(history, Role.HARNESS, plan.policy, now)
            )
        case FinishedState():
            return Wait()
        case _:
            assert_never(history.state)


def unreadable_output_finish(key: AttemptKey) -> Finish:
    """Return the end of an attempt whose output ended the process that read it, twice."""
    message = "reading what the attempt left ended the process that read it, twice"
    return agent_end(key, Problem.INVALID.value, FailurePhase.CANDIDATE_EXTRACTION, message)


def _refused(task: TaskPlan, history: AttemptHistory) -> Finish | None:
    """End an attempt whose task was refused when the run was planned."""
    refusal = task.refusal
    if refusal is None or history.launches:
        return None
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


def _never_sealed(key: AttemptKey, earlier: EarlierRun | None) -> Finish | None:
    """End an attempt of a regrade of which the earlier run left neither candidate nor record."""
    if earlier is None:
        return None
    message = f"run {earlier.name} ended before it sealed a candidate for this attempt"
    return Finish(key, Outcome.CANCELLED, "cancelled", FailurePhase.QUEUED, message)


def _cut_by_budget(key: AttemptKey, production: HarnessResult) -> Finish | None:
    """End an attempt whose agent could not continue; what it submitted is not its full answer."""
    if not was_refused_by_run_budget(production):
        return None
    message = "the budget of the run was used up while the agent worked"
    return Finish(key, Outcome.CANCELLED, RUN_BUDGET_EXHAUSTED, FailurePhase.PRODUCER, message)


def _launched_step(
    plan: RunPlan, launched: LaunchedState, view: PodView | None, now: float
) -> Step:
    live, is_shared = launched.launch, launched.batch is not None
    if view is None:
        return Wait()
    match launch_stage(view, _work(plan, live), launched.since, plan.policy, now):
        case InProgress(wake_at):
            return Wait(wake_at)
        case Interrupted(reason, message, is_final=True):
            phase = PHASE_OF_ROLE[live.role]
            return Finish(live.attempt_key, Outcome.INFRASTRUCTURE, reason, phase, message)
        case Interrupted(reason, message) if is_shared:
            return Lost(live, reason, message, now, is_shared=True)
        case Ended(problem=problem, message=message) if problem and is_shared:
            return Lost(live, POD_LOST, message, now, is_shared=True)
        case Interrupted(reason, message) if reason == PREFLIGHT_FAILED:
            return Lost(live, reason, f"{_preflight(plan)} failed: {message}", now)
        case Interrupted(reason, message, is_suspect=is_suspect):
            return Lost(live, reason, message, now, is_suspect=is_suspect)
        case ended:
            return Capture(live, view, ended, launched.batch)


def _work(plan: RunPlan, launch: LaunchKey) -> Work:
    """Return what a launch's Pod is for."""
    verification = plan.tasks[launch.task].verification
    if launch.role is Role.HARNESS or verification is None:
        return HARNESS_WORK
    return verification


def _next_launch(history: AttemptHistory, role: Role, policy: RunPolicy, now: float) -> Step:
    lost = history.last_lost
    if lost is None:
        return Begin(LaunchKey(*history.key, role, history.lost + 1))
    if history.suspect.count(role) >= MAX_SUSPECT_LAUNCHES:
        return _ended_by_agent(history.key, lost, role)
    if len(history.retries) > policy.infrastructure_retries:
        phase = PHASE_OF_REASON.get(lost.reason, PHASE_OF_ROLE[lost.launch.role])
        return Finish(history.key, Outcome.INFRASTRUCTURE, lost.reason, phase, lost.message)
    ready_at = lost.at + launch_backoff(policy, history.lost)
    if now < ready_at:
        return Wait(ready_at)
    return Begin(LaunchKey(*history.key, role, history.lost + 1))


def _ended_by_agent(key: AttemptKey, lost: Lost, role: Role) -> Finish:
    """End an attempt whose workspace or candidate cannot be taken or staged.

    Source: contract 21.16, decision 0044.
    """
    phase = FailurePhase.CANDIDATE_EXTRACTION if role is Role.HARNESS else PHASE_OF_ROLE[role]
    message = f"{lost.message}; what the agent left does that each time ({lost.reason})"
    return agent_end(key, Problem.INVALID.value, phase, message)


def launch_backoff(policy: RunPolicy, lost: int) -> float:
    """Return the wait in seconds before launch ``lost`` + 1; lost counts from 1."""
    return backoff(policy.backoff_seconds, policy.backoff_limit_seconds, lost)


def _outage(
    plan: RunPlan, history: AttemptHistory, production: HarnessResult, now: float
) -> Lost | Finish | None:
    """Return what an outage of the model provider makes of a production, or None.

    A text or patch that was handed in all the same is judged. A workspace is always there and
    shows nothing. A budget that was used up is the agent's, and so is a limit of its container that
    it ran into: neither buys another launch.

    As long as the provider has answered no request of the run, nothing that was handed in comes
    from its model: whatever the errors were, the run waits and launches again without bound, unless
    its tester wants no second launch at all.

    Source: contract 15.1; it comes before a producer timeout, which an outage may cause.
    """
    egress = production.egress
    relay = egress.relay if egress is not None else None
    if egress is None or relay is None or production.problem:
        return None
    launch = LaunchKey(*history.key, Role.HARNESS, production.launch)
    if egress.unanswered:
        message = f"{_outage_message(plan, relay, egress.unanswered)}; it has answered no request"
        message += " of this run"
        reason = relay.failure or PROVIDER_UNAVAILABLE
        if plan.policy.provider_retries:
            message += ", which waits until it does"
            return Lost(launch, reason, message, now, is_shared=True)
        return Finish(history.key, Outcome.PROVIDER, reason, FailurePhase.PRODUCER, message)
    if not relay.failure or relay.budget_exhausted:
        return None
    task = plan.tasks[history.key.task]
    is_handed_in = (
        not KINDS[task.extraction.kind].archive
        and not production.command.timed_out
        and _judged(task, history.key, production.candidate) is None
    )
    if is_handed_in:
        return None
    message = _outage_message(plan, relay, relay.failure_cause)
    message += f"; {relay.failures} of {relay.requests} requests failed"
    can_help = relay.failure != PROVIDER_USAGE
    if can_help and history.provider_retries < plan.policy.provider_retries:
        return Lost(launch, relay.failure, message, now)
    return Finish(history.key, Outcome.PROVIDER, relay.failure, FailurePhase.PRODUCER, message)


def _outage_message(plan: RunPlan, relay: RelayReport, cause: str) -> str:
    message = OUTAGES[relay.failure or PROVIDER_UNAVAILABLE].format(provider=_provider(plan))
    return f"{message}: {cause}" if cause else message


def _provider(plan: RunPlan) -> str:
    provider = plan.egress.provider if plan.egress is not None else None
    return "(unknown)" if provider is None else provider.title or provider.name


def _preflight(plan: RunPlan) -> str:
    """Return the last words of an agent's preflight: its program without folder, its option."""
    agent = plan.harness.agent
    words = agent.preflight[-2:] if agent is not None else ()
    return " ".join(PurePosixPath(word).name for word in words) or "the preflight"


T = TypeVar("T")


def _first(steps: Iterable[T | None]) -> T | None:
    """Return the first step that applies; the later ones are not taken."""
    return next((step for step in steps if step is not None), None)


def after_production(task: TaskPlan, key: AttemptKey, production: HarnessResult) -> Finish | None:
    """Judge what needs no verifier Pod; None where a verifier decides.

    Source: contract 13.1, 14.7, 15.1; a producer timeout comes before everything else.
    """
    policies = (
        _producer_timeout,
        _harness_killed,
        _harness_limit,
        _launch_budget,
        _harness_not_started,
        _not_verified,
        _candidate_end,
    )
    return _first(policy(task, key, production) for policy in policies)


def is_judged_late(task: TaskPlan, production: HarnessResult) -> bool:
    """Whether what the agent left at its time limit is verified all the same."""
    candidate = production.candidate
    is_sealed = candidate is not None and candidate.problem is None
    return is_sealed and KINDS[task.extraction.kind].is_judged_late


def _producer_timeout(task: TaskPlan, key: AttemptKey, production: HarnessResult) -> Finish | None:
    if not production.command.timed_out or is_judged_late(task, production):
        return None
    seconds = task.environment.timeout_seconds or 0.0
    message = f"candidate production timed out after {seconds:g} seconds"
    return agent_end(key, PRODUCER_TIMEOUT, FailurePhase.PRODUCER, message)


def _harness_killed(_task: TaskPlan, key: AttemptKey, production: HarnessResult) -> Finish | None:
    if production.problem != SUPERVISOR_KILLED:
        return None
    message = "the harness ended the supervisor of its own container"
    return agent_end(key, SUPERVISOR_KILLED, FailurePhase.PRODUCER, message)


def _harness_limit(_task: TaskPlan, key: AttemptKey, production: HarnessResult) -> Finish | None:
    reason = production.problem
    if not reason:
        return None
    message = _limit_message(reason, "harness")
    return Finish(key, Outcome.RESOURCE, reason, FailurePhase.PRODUCER, message, passed=False)


def _launch_budget(_task: TaskPlan, key: AttemptKey, production: HarnessResult) -> Finish | None:
    relay = production.egress.relay if production.egress is not None else None
    if relay is None or not relay.budget_exhausted:
        return None
    message = "the agent used up the budget of its launch for the model provider"
    return agent_end(key, BUDGET_EXHAUSTED, FailurePhase.PRODUCER, message)


def _harness_not_started(
    _task: TaskPlan, key: AttemptKey, production: HarnessResult
) -> Finish | None:
    """End an attempt whose harness program does not exist or cannot be executed."""
    command = production.command
    if not command.unstarted:
        return None
    message = f"the harness cannot be started (exit code {command.exit_code}): {command.error}"
    return agent_end(key, HARNESS_NOT_STARTED, FailurePhase.PRODUCER, message)


def _not_verified(task: TaskPlan, key: AttemptKey, _production: HarnessResult) -> Finish | None:
    return Finish(key, Outcome.NOT_VERIFIED) if task.verification is None else None


def _candidate_end(task: TaskPlan, key: AttemptKey, production: HarnessResult) -> Finish | None:
    return _with_failure_cause(_judged(task, key, production.candidate), production)


def _judged(task: TaskPlan, key: AttemptKey, candidate: SealedCandidate | None) -> Finish | None:
    if candidate is None:
        message = "there is no candidate"
        return agent_end(key, Problem.MISSING.value, FailurePhase.CANDIDATE_EXTRACTION, message)
    if candidate.problem is not None:
        return agent_end(
            key, candidate.problem, FailurePhase.CANDIDATE_EXTRACTION, candidate.message
        )
    judged = blank_end if task.verification is None else partial(task.verification.rejected, task)
    end = judged(key, candidate)
    if end is not None:
        return end
    if task.denial is not None:
        end = agent_end(key, task.denial.reason, task.denial.phase, task.denial.message)
        return replace(end, metadata=task.denial.metadata)
    return None


def after_verification(
    task: TaskPlan, key: AttemptKey, production: HarnessResult, verification: VerifierResult
) -> Finish:
    """Turn what the verifier Pod reported into the attempt's end.

    Nothing that happened in another image than the harness's counts, a failure as little as a pass.
    """
    if _image_changed(task, production, verification):
        message = "the task image resolved to different contents in harness and verifier"
        return Finish(
            key, Outcome.INFRASTRUCTURE, IMAGE_CHANGED, FailurePhase.VERIFICATION, message
        )
    policies = (_check_killed, _check_limit, _check_failure, _check_timeout, _check_memory)
    end = _first(policy(key, verification) for policy in policies)
    passed, score = verification.passed, verification.score
    return end or Finish(key, Outcome.SCORED, passed=passed, score=score)


def _check_killed(key: AttemptKey, verification: VerifierResult) -> Finish | None:
    if verification.problem != SUPERVISOR_KILLED:
        return None
    message = "the candidate ended the supervisor of the check"
    return Finish(
        key, Outcome.SCORED, SUPERVISOR_KILLED, FailurePhase.VERIFICATION, message, passed=False
    )


def _check_limit(key: AttemptKey, verification: VerifierResult) -> Finish | None:
    reason = verification.problem
    if reason not in {OOM_KILLED, DISK_LIMIT_EXCEEDED}:
        return None
    message = _limit_message(reason, "verifier")
    return Finish(key, Outcome.RESOURCE, reason, FailurePhase.VERIFICATION, message, passed=False)


def _check_failure(key: AttemptKey, verification: VerifierResult) -> Finish | None:
    """End an attempt whose check gave no verdict of its own."""
    if not verification.problem:
        return None
    outcome = Outcome(verification.outcome or Outcome.VERIFIER)
    passed = None if outcome is Outcome.VERIFIER else False
    phase = verification.phase or FailurePhase.VERIFICATION
    return Finish(key, outcome, verification.problem, phase, verification.message, passed=passed)


def _check_timeout(key: AttemptKey, verification: VerifierResult) -> Finish | None:
    if not verification.command.timed_out:
        return None
    message = "the check ran into its time limit"
    phase = verification.command.phase or FailurePhase.CHECKER
    return Finish(key, Outcome.SCORED, VERIFIER_TIMEOUT, phase, message, passed=False)


def _check_memory(key: AttemptKey, verification: VerifierResult) -> Finish | None:
    has_reward = verification.score is not None
    if verification.passed or has_reward or not verification.command.memory_kills:
        return None
    message = "the check failed and a process in it was killed at the memory limit"
    return Finish(
        key, Outcome.RESOURCE, OOM_KILLED, FailurePhase.VERIFICATION, message, passed=False
    )


def _image_changed(task: TaskPlan, production: HarnessResult, verification: VerifierResult) -> bool:
    if task.verification is None or not task.verification.runs_in_task_image:
        return False
    before, after = production.facts.image_id, verification.facts.image_id
    return bool(before and after and before != after)


def _limit_message(reason: str, place: str) -> str:
    limits: Mapping[str, str] = {
        OOM_KILLED: f"the {place} container was killed at its memory limit",
        DISK_LIMIT_EXCEEDED: f"the {place} Pod was evicted at its disk limit",
    }
    return limits[reason]


NOTHING_HANDED_IN: Final = frozenset(
    {Problem.MISSING.value, EMPTY_CANDIDATE, PatchProblem.EMPTY.value}
)
"""Reasons that say what is missing and not why."""

_SIGNALLED: Final = range(129, 129 + 64)
"""Exit codes after a signal, as supervise and shells give them: 128 and its number."""

_SHELL_WORDS: Final[Mapping[int, str]] = {
    126: ", as when a program cannot be executed",
    127: ", as when a program is not found",
}


def _with_failure_cause(end: Finish | None, production: HarnessResult) -> Finish | None:
    """Return an end that says why nothing was handed in, where that is what it says.

    Args:
        end: What was judged.
        production: The harness launch that it was judged by.

    Returns:
        The end with the memory limit or the exit code as its reason; an end for other reasons as it
        is, one after exit code 0 with the last words of the harness.
    """
    if end is None or end.reason not in NOTHING_HANDED_IN:
        return end
    command = production.command
    if command.memory_kills:
        message = "a process of the harness was killed at the memory limit of its container, and "
        message += f"nothing was handed in: {end.message}{_last_words(production)}"
        known = replace(end, outcome=Outcome.RESOURCE, reason=OOM_KILLED)
    elif command.exit_code:
        message = f"the harness handed nothing in and ended with {_ended_with(command)}: "
        message += f"{end.message}{_last_words(production)}"
        known = replace(end, reason=HARNESS_FAILED)
    else:
        return replace(end, message=end.message + _last_words(production))
    return replace(known, phase=FailurePhase.PRODUCER, message=message)


def _ended_with(command: CommandReport) -> str:
    code = command.exit_code or 0
    words = _SHELL_WORDS.get(code, "")
    if code in _SIGNALLED:
        number = code - _SIGNALLED.start + 1
        known = {signal.value: signal.name for signal in Signals}
        words = f", as after {known.get(number, f'signal {number}')}"
    return f"exit code {code}{words}"


def _last_words(production: HarnessResult) -> str:
    said = production.last_words
    return f"; last line of stderr: {said}" if said else ""


MAX_WAIT_SECONDS = 5.0
"""A partial batch waits this long for further members, and only while there may be some."""

MIN_BATCH_SLOTS = 4
"""Parallelism below which no batch waits, because a waiting batch reserves one slot."""


class BatchableLaunch(NamedTuple):
    """A verifier launch that is ready to start and may share its Pod.

    Attributes:
        since: When its candidate was captured, seconds since the epoch; 0 if unknown.
    """

    launch: LaunchKey
    since: float


class BatchDecision(NamedTuple):
    """Which batches start now.

    Attributes:
        ready: Launches that start, by Pod.
        due_at: When the partial batch starts as it is, or None without one. Until then it reserves
            one slot, so that it does not wait behind agents, which may run for hours.
    """

    ready: tuple[tuple[LaunchKey, ...], ...] = ()
    due_at: float | None = None


def is_batchable(plan: RunPlan, history: AttemptHistory, launch: LaunchKey) -> bool:
    """Whether a launch may share its Pod; not after an earlier verifier launch was lost."""
    lost = history.last_lost
    is_first = lost is None or lost.launch.role is Role.HARNESS
    return is_first and launch.role is Role.VERIFIER and _shares_pods(plan, history)


def may_become_batchable(plan: RunPlan, history: AttemptHistory) -> bool:
    """Whether an unfinished attempt, whose candidate is not sealed yet, may join a batch later."""
    return history.production is None and _shares_pods(plan, history)


def form_batches(
    waiting: Iterable[BatchableLaunch], now: float, *, may_grow: bool
) -> BatchDecision:
    """Group launches into batches of at most ``MAX_BATCH_MEMBERS``.

    Args:
        waiting: Launches that are ready to start.
        now: Seconds since the epoch.
        may_grow: Whether further launches of the run may join them later.

    Returns:
        Full batches, and the partial one once its oldest member has waited ``MAX_WAIT_SECONDS`` or
        no further member can come.
    """
    ordered = sorted(waiting, key=lambda each: each.since)
    groups = [
        ordered[at : at + MAX_BATCH_MEMBERS] for at in range(0, len(ordered), MAX_BATCH_MEMBERS)
    ]
    due_at = None
    if may_grow and groups and len(groups[-1]) < MAX_BATCH_MEMBERS:
        since = groups[-1][0].since
        if since <= now < since + MAX_WAIT_SECONDS:
            due_at = since + MAX_WAIT_SECONDS
            groups.pop()
    ready = (tuple(sorted(each.launch for each in group)) for group in groups)
    return BatchDecision(tuple(ready), due_at)


def _shares_pods(plan: RunPlan, history: AttemptHistory) -> bool:
    verification = plan.tasks[history.key.task].verification
    return verification is not None and verification.is_batched
