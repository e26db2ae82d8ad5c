"""Decides about single attempts and keeps the decisions in the cache of the run. Pure."""

from __future__ import annotations

import math
from itertools import chain
from typing import NamedTuple

from securebench.core.reasons import POD_LOST, RUN_BUDGET_EXHAUSTED, FailurePhase
from securebench.run.api.conditions import Reason
from securebench.run.api.outcomes import Outcome
from securebench.run.decide.attempt.batches import (
    BatchableLaunch,
    is_batchable,
    may_become_batchable,
)
from securebench.run.decide.attempt.decision_cache import ChangeSet, DecisionCache, RepeatCreate
from securebench.run.decide.attempt.machine import (
    PHASE_OF_ROLE,
    Begin,
    Wait,
    attempt_step,
    unreadable_output_finish,
)
from securebench.run.decide.capacity.launch_limits import launch_image
from securebench.run.decide.desired_state import Controls, Halt
from securebench.run.decide.reporting.verdict import EndReason
from securebench.run.decide.run_decision import ObservedState
from securebench.run.observe.pods import PodView
from securebench.run.plan.keys import pod_name
from securebench.run.state.attempts import AttemptHistory, CrashSuspicion, Finish, Lost


class CancelCause(NamedTuple):
    """Why a run ends attempts, as their records say it.

    Attributes:
        reason: Their ``failure_reason``.
        message: One plain sentence.
    """

    reason: str = "cancelled"
    message: str = ""


def stop_cause(stop: EndReason | None) -> CancelCause:
    """Return the cause for records of a run that is ended early for this reason."""
    if stop is None:
        return CancelCause()
    if stop.reason is Reason.BUDGET_EXHAUSTED:
        return CancelCause(RUN_BUDGET_EXHAUSTED, stop.message)
    return CancelCause(message=stop.message)


def update_decisions(
    cache: DecisionCache, observed: ObservedState, controls: Controls, cause: CancelCause
) -> None:
    """Decide again about every attempt whose decision in the cache is no longer valid.

    Args:
        cache: The decisions of earlier passes; updated.
        observed: The input of the pass.
        controls: What is allowed.
        cause: For the records of attempts that ``controls`` end.
    """
    changes, basis, attempts = observed.changes, (controls.halt, cause), observed.history
    # A wake time is compared with ``now``: it means nothing after the clock was set back.
    is_stale = cache.basis != basis or observed.now < cache.decided_at
    if changes is None or is_stale:
        cache.reset(basis)
        keys = {key for key, history in attempts.items() if history.finish is None}
        changes = ChangeSet(keys, observed.pods.keys())
    cache.decided_at = observed.now
    awaited = (cache.without_pod, cache.unconfirmed, cache.wake_times.due(observed.now))
    keys = {*changes.attempts, *chain.from_iterable(awaited)}
    for name in changes.pods:
        cache.pods.upsert(name, observed.pods.get(name))
        keys.update(cache.live.attempts_of(name))
    for key in keys:
        cache.invalidate(key)
        if attempts[key].finish is None:
            _decide_attempt(cache, observed, controls, cause, attempts[key])
    for name in {*changes.pods, *(name for key in keys for name in cache.pods.names_of(key))}:
        cache.pods.classify(name, attempts, observed.plan.policy.keep_pods)
        if name in cache.pods.working:
            cache.live.mark_started(name)


def _decide_attempt(
    cache: DecisionCache,
    observed: ObservedState,
    controls: Controls,
    cause: CancelCause,
    history: AttemptHistory,
) -> None:
    key, plan = history.key, observed.plan
    ended = _cancelled(controls, cause, history)
    if ended is None and history.crash_suspicion is CrashSuspicion.CONDEMNED:
        ended = unreadable_output_finish(key)
    if ended is not None:
        cache.store(key, ended)
        return
    if may_become_batchable(plan, history):
        cache.batch_candidates.add(key)
    name = pod_name(plan.identity.uid, history.pod) if history.pod is not None else ""
    view = observed.pods.get(name)
    if history.pod is not None:
        cache.live.put(key, name, launch_image(plan, history.pod))
    if name and view is None:
        cache.without_pod.add(key)
        cache.store(key, _without_pod(observed, history, name))
        return
    match attempt_step(plan, history, view, observed.now):
        case Lost() | Finish() if not _is_confirmed(observed, history, view):
            cache.unconfirmed.add(key)
        case Begin(launch) if is_batchable(plan, history, launch):
            cache.store(key, BatchableLaunch(launch, history.produced_at))
        case step:
            if isinstance(step, Wait) and history.live is None:
                cache.backing_off.add(key)
            cache.store(key, step)


def _is_confirmed(observed: ObservedState, history: AttemptHistory, view: PodView | None) -> bool:
    """Whether a launch that is given up was seen after its time was over.

    Its Pod may have got on since: an event may have been lost, or the API server does not answer.
    """
    if history.live is None:
        return True
    is_settled = observed.listed_at >= observed.settled_at
    shown_at = min(observed.listed_at, observed.now) if is_settled else -math.inf
    return isinstance(attempt_step(observed.plan, history, view, shown_at), Lost | Finish)


def _cancelled(controls: Controls, cause: CancelCause, history: AttemptHistory) -> Finish | None:
    is_queued = history.live is None and (history.production is None or history.is_untouched)
    if controls.halt is Halt.STOPPED or (controls.halt is Halt.DRAINING and is_queued):
        phase = (
            PHASE_OF_ROLE[history.live.role] if history.live is not None else FailurePhase.QUEUED
        )
        return Finish(history.key, Outcome.CANCELLED, cause.reason, phase, cause.message)
    return None


def _without_pod(
    observed: ObservedState, history: AttemptHistory, name: str
) -> Lost | RepeatCreate | Wait:
    live, pod = history.live, history.pod
    if live is None or pod is None:
        return Wait()
    if name in observed.vanished:
        message = f"Pod {name} disappeared before it gave a result"
        is_shared = history.batch is not None
        return Lost(live, POD_LOST, message, observed.now, is_shared=is_shared)
    return RepeatCreate(pod) if name in observed.pending else Wait()
