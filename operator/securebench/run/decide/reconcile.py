"""One pass of the loop over a whole run, as a pure function."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from operator import itemgetter
from typing import TypeVar

from securebench.core.reasons import PROVIDER_REASONS
from securebench.run.api.conditions import Reason
from securebench.run.decide.attempt.decision_cache import DecisionCache
from securebench.run.decide.attempt_decisions import CancelCause, stop_cause, update_decisions
from securebench.run.decide.capacity.launch_limits import CapacityUse
from securebench.run.decide.capacity.launch_selection import (
    LaunchSelection,
    no_launches,
    select_launches,
)
from securebench.run.decide.desired_state import Controls, Halt
from securebench.run.decide.network.canary import ObservedCanary
from securebench.run.decide.network.network_step import NetworkState, NetworkStep, network_step
from securebench.run.decide.reporting.budget import budget_stop, with_tokens_used
from securebench.run.decide.reporting.verdict import EndReason, end_reason, run_failure
from securebench.run.decide.reporting.wait_message import joined
from securebench.run.decide.reporting.wait_reason import (
    YIELDING_MESSAGE,
    Throttled,
    parked_wait,
    run_waits,
    throttled_wait,
)
from securebench.run.decide.run_decision import Deletion, ObservedState, RunDecision
from securebench.run.observe.waiting import WaitReason
from securebench.run.plan.keys import AttemptKey, LaunchKey
from securebench.run.state.attempt_index import AttemptIndex

LIST_SECONDS = 5.0
"""Between two lists that launches of a run wait for before they are given up."""

T = TypeVar("T")


def reconcile(
    observed: ObservedState, controls: Controls, cache: DecisionCache | None = None
) -> RunDecision:
    """Decide what to do next about a whole run.

    Args:
        observed: The input of the pass.
        controls: What is allowed.
        cache: The decisions of earlier passes, which this one updates. Without it, or without
            ``observed.changes``, it decides about every attempt.

    Returns:
        The decision, the same with and without ``cache``. Applying it is idempotent: names are
        deterministic, and every entry is in the journal before its effect.

    Invariants:
        Launch Pods that live after the decision are at most ``parallelism``, unless it was
        lowered; an attempt has at most one live launch; a finished attempt begins nothing.
    """
    controls, cause = _effective_controls(observed, _within_budget(observed, controls))
    cache = cache if cache is not None else DecisionCache()
    update_decisions(cache, observed, controls, cause)
    launches = _select_launches(cache, observed, controls)
    is_probing = _is_probing(observed, controls)
    deletions = (*_pod_deletions(cache), *(() if is_probing else _probe_deletions(cache)))
    network = _network_step(cache, observed, controls, is_probing=is_probing)
    list_at = _list_at(cache, observed)
    decision = RunDecision(
        network=network,
        lost=_in_order(cache.lost),
        begin=tuple(pod[0] for pod in launches.pods if len(pod) == 1),
        batches=tuple(pod for pod in launches.pods if len(pod) > 1),
        repeat=tuple(_creatable(dict.fromkeys(_in_order(cache.repeats)), observed.network)),
        captures=_in_order(cache.captures),
        finishes=_in_order(cache.finishes),
        deletions=deletions,
        halt=controls.halt,
        needs_list=network.needs_list or list_at <= observed.now,
        wait_reason=joined(
            _waits(cache, _with_memory(observed, network), controls, launches.usage)
        ),
        usage=launches.usage,
    )
    is_over = observed.history.open == 0 and not deletions and observed.writes.is_idle
    return replace(
        decision,
        wake_at=_wake_at(cache, observed, controls, decision, launches.due_at),
        parked=_parked(cache, observed, controls, decision),
        end=_end(observed, controls) if is_over else None,
    )


def _list_at(cache: DecisionCache, observed: ObservedState) -> float:
    """Return when launches need a list before they are given up; without any, never."""
    if not cache.unconfirmed:
        return math.inf
    return max(observed.listed_at + LIST_SECONDS, observed.settled_at)


def _in_order(steps: Mapping[AttemptKey, T]) -> tuple[T, ...]:
    return tuple(step for _, step in sorted(steps.items(), key=itemgetter(0)))


def _within_budget(observed: ObservedState, controls: Controls) -> Controls:
    """Return the controls, draining after the run's budget is used up."""
    spent = budget_stop(observed.plan, observed.network, observed.history)
    if spent is None or controls.stop is not None:
        return controls
    return replace(controls, halt=Halt.DRAINING, stop=spent, is_yielding=False)


def _effective_controls(
    observed: ObservedState, controls: Controls
) -> tuple[Controls, CancelCause]:
    """Return the controls, stopped after a permanent refusal, and the cause for records."""
    failure = run_failure(observed.network, observed.writes.refusal)
    message = observed.plan_mismatch or (failure.message if failure is not None else "")
    if message and controls.halt is not Halt.STOPPED:
        stopped = replace(controls, halt=Halt.STOPPED, is_yielding=False)
        return stopped, CancelCause(message=message)
    return controls, stop_cause(controls.stop)


def _with_memory(observed: ObservedState, step: NetworkStep) -> ObservedState:
    """Return the input with what a step remembers of the gateway: nothing else may wake the run."""
    if step.gateway is None:
        return observed
    network = replace(observed.network, gateway_memory=step.gateway.memory)
    return replace(observed, network=network)


def _waits(
    cache: DecisionCache, observed: ObservedState, controls: Controls, usage: CapacityUse
) -> Iterator[WaitReason]:
    """Yield all that the run waits for, by priority."""
    if controls.stop is not None:
        yield WaitReason(Reason.CANCELLING, controls.stop.message)
    if controls.stop is not None and controls.halt is not Halt.DRAINING:
        return
    found = run_waits(
        observed.network,
        observed.pods.values(),
        observed.history,
        observed.now,
        observed.writes,
        cache.launches,
    )
    is_idle = not (cache.live or usage.begun)
    for each in found:
        is_idle = False
        yield each
    throttled = observed.writes.rate
    if usage.message:
        throttled = Throttled(usage.message, controls.headroom.held_since)
    has_results = observed.history.has_results
    held = throttled_wait(throttled, observed.now, is_idle=is_idle, has_results=has_results)
    if held is not None:
        yield held
    if controls.is_yielding:
        yield WaitReason(Reason.RUNNING, YIELDING_MESSAGE)


def _wake_at(
    cache: DecisionCache,
    observed: ObservedState,
    controls: Controls,
    decision: RunDecision,
    launch_at: float | None,
) -> float | None:
    list_at = _list_at(cache, observed)
    times = [
        launch_at,
        cache.wake_times.next(),
        # A list that is due is asked for; if that got lost, it is asked for again.
        list_at if list_at > observed.now else observed.now + LIST_SECONDS,
        decision.network.wake_at,
        decision.wait_reason.changes_at if decision.wait_reason is not None else None,
        # A deadline in the past is already part of the controls.
        controls.deadline if (controls.deadline or 0.0) > observed.now else None,
    ]
    return min((at for at in times if at is not None and at < math.inf), default=None)


def _parked(
    cache: DecisionCache, observed: ObservedState, controls: Controls, decision: RunDecision
) -> WaitReason | None:
    is_resting = controls.halt is Halt.SUSPENDED and not cache.live
    is_busy = decision.has_journal_entries or decision.deletions or not observed.writes.is_idle
    if is_busy or not is_resting:
        return None
    return parked_wait(is_yielding=controls.is_yielding)


def _end(observed: ObservedState, controls: Controls) -> EndReason:
    failure = run_failure(observed.network, observed.writes.refusal)
    attempts = observed.history.values()
    end = with_tokens_used(end_reason(failure, controls.stop, attempts), observed.network, attempts)
    return end._replace(message="; ".join(filter(None, (end.message, observed.plan_mismatch))))


def _select_launches(
    cache: DecisionCache, observed: ObservedState, controls: Controls
) -> LaunchSelection:
    is_full = len(cache.pods.unschedulable) >= controls.max_unschedulable
    if controls.halt in {Halt.SUSPENDED, Halt.STOPPED} or is_full:
        return no_launches(cache)
    roles, headroom = observed.network.creatable, controls.headroom
    cache.startable.holds_new = _awaits_provider(cache, observed.history)
    return select_launches(
        cache, observed.plan, roles, observed.now, controls.parallelism, headroom
    )


def _awaits_provider(cache: DecisionCache, attempts: AttemptIndex) -> bool:
    """Whether a launch was lost to the model provider and no attempt of the run has a result yet.

    Further attempts would meet the same error; those that have begun find out when it is over.
    """
    if attempts.done:
        return False
    losses = [*cache.lost.values()]
    for each in attempts.under_way:
        if each.production is not None and each.key not in cache.lost:
            return False
        if each.last_lost is not None:
            losses.append(each.last_lost)
    return any(lost.reason in PROVIDER_REASONS for lost in losses)


def _creatable(launches: Iterable[LaunchKey], network: NetworkState) -> Iterable[LaunchKey]:
    return (launch for launch in launches if launch.role in network.creatable)


def _is_probing(observed: ObservedState, controls: Controls) -> bool:
    """Whether the run is active and has no proof of its isolation yet."""
    is_needed = observed.history.open > 0 and observed.network.found is None
    return is_needed and controls.halt is Halt.NONE


def _network_step(
    cache: DecisionCache, observed: ObservedState, controls: Controls, *, is_probing: bool
) -> NetworkStep:
    """Keep policies, gateway and canary for as long as a launch may need them."""
    is_resting = controls.halt is Halt.SUSPENDED and not cache.live
    if observed.history.open == 0 or controls.halt is Halt.STOPPED or is_resting:
        return NetworkStep()
    network = observed.network
    canary = ObservedCanary(
        run_uid=observed.plan.identity.uid,
        pods=observed.pods,
        last_vanished=network.last_vanished,
        is_network_ready=network.has_policies and network.has_address,
        is_ready=network.has_policies and network.is_gateway_ready,
        create_blocked=network.create_blocked,
        listed_at=network.listed_at,
        answered_at=network.answered_at,
    )
    return network_step(network, canary, observed.now, is_probing=is_probing)


def _pod_deletions(cache: DecisionCache) -> Iterable[Deletion]:
    for _, view in sorted(cache.pods.to_delete.items()):
        yield Deletion(view.name, view.uid, at_once=not view.has_ended)


def _probe_deletions(cache: DecisionCache) -> Iterable[Deletion]:
    """Return the canary and control Pods, once the proof is there or the run is stopping."""
    for _, view in sorted(cache.pods.probing.items()):
        yield Deletion(view.name, view.uid, at_once=True)
