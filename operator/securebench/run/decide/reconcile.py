"""One pass of the loop over a whole run, as a pure function.

``ObservedState`` goes in, ``RunDecision`` comes out. A pass decides again about each attempt whose
cached decision is no longer valid, selects the launches that start, and takes the next step for the
run's network.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from operator import itemgetter
from typing import NamedTuple, TypeVar

from securebench.clock import Instant
from securebench.reasons import POD_LOST, PROVIDER_REASONS, RUN_BUDGET_EXHAUSTED, FailurePhase
from securebench.run.api.field_types import Outcome
from securebench.run.api.status import Reason
from securebench.run.decide.attempt import (
    PHASE_OF_ROLE,
    BatchableLaunch,
    Begin,
    Capture,
    Wait,
    attempt_step,
    is_batchable,
    may_become_batchable,
)
from securebench.run.decide.canary import ObservedCanary
from securebench.run.decide.capacity import (
    CapacityUse,
    LaunchSelection,
    launch_image,
    no_launches,
    select_launches,
)
from securebench.run.decide.controls import (
    Controls,
    EndReason,
    Halt,
    budget_stop,
    end_reason,
    run_failure,
    with_tokens_used,
)
from securebench.run.decide.decision_cache import ChangeSet, DecisionCache, RepeatCreate
from securebench.run.decide.network import NetworkState, NetworkStep, network_step
from securebench.run.decide.waits import (
    YIELDING_MESSAGE,
    ObservedWrites,
    Throttled,
    joined,
    parked_wait,
    run_waits,
    throttled_wait,
)
from securebench.run.observe.pods import KUBELETS_SECONDS, PodView
from securebench.run.observe.waiting import WaitReason
from securebench.run.plan.model import AttemptKey, LaunchKey, RunPlan, pod_name
from securebench.run.state.attempts import (
    AttemptHistory,
    Finish,
    LaunchedState,
    Lost,
    ProducedState,
)
from securebench.run.state.history import AttemptIndex

LIST_SECONDS = 5.0
"""Between two lists that launches of a run wait for before they are given up."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Deletion:
    """One Pod to delete.

    Attributes:
        uid: Its uid; a later Pod of that name is not deleted.
        at_once: Whether it is deleted without its grace period.
    """

    name: str
    uid: str
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class RunDecision:
    """The result of a pass, in the order in which it is applied.

    Attributes:
        network: What to do about policies, gateway and canary; the proof to journal.
        lost: Launches to journal as lost.
        begin: Launches to journal and then to create, each with a Pod of its own.
        batches: The same for launches that share a Pod, by Pod.
        repeat: Launches whose Pod's create is repeated; of a batch, its first.
        captures: Ended launches to read.
        finishes: Attempts to end with a record.
        deletions: Pods to delete.
        halt: Why the run starts no new launches.
        needs_list: Whether Pods are to be listed: an event about them may have been lost.
        wait_reason: Why it makes no progress at the moment, or None.
        wake_at: When the next pass is due without an event, or None.
        parked: What it waits for while nothing of it is under way; None while it is active.
        end: How it ended; None while an attempt is open or an action is left.
        usage: What the run uses of the operator's limits, the new launches included.
    """

    network: NetworkStep = field(default_factory=NetworkStep)
    lost: tuple[Lost, ...] = ()
    begin: tuple[LaunchKey, ...] = ()
    batches: tuple[tuple[LaunchKey, ...], ...] = ()
    repeat: tuple[LaunchKey, ...] = ()
    captures: tuple[Capture, ...] = ()
    finishes: tuple[Finish, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    halt: Halt = Halt.NONE
    needs_list: bool = False
    wait_reason: WaitReason | None = None
    wake_at: float | None = None
    parked: WaitReason | None = None
    end: EndReason | None = None
    usage: CapacityUse = field(default_factory=CapacityUse)

    @property
    def has_journal_entries(self) -> bool:
        """Whether applying it adds journal entries on which the next decision depends."""
        return bool(self.captures or self.finishes or self.lost or self.network.found)


@dataclass(frozen=True, slots=True)
class ObservedState:
    """The input of a pass.

    ``pods``, ``history`` and ``vanished`` are live views owned by the loop: decisions only read
    them, and keep no reference after the pass.

    Attributes:
        history: State of every attempt of the plan, as folded from the journal.
        network: State of the policies, the gateway and the canary.
        pods: All Pods of the run by name, as listed and watched.
        pending: Names of Pods whose create has no definite answer yet.
        vanished: Names of Pods that were observed and are gone, but for those of ended attempts.
        now: Seconds since the epoch.
        writes: State of the requests that change the cluster.
        plan_mismatch: Why this version may only end the run, or empty.
        changes: What has changed since the last pass; None requires a full resync.
    """

    plan: RunPlan
    history: AttemptIndex
    network: NetworkState
    pods: Mapping[str, PodView]
    pending: Collection[str]
    vanished: Collection[str]
    now: float
    writes: ObservedWrites = field(default_factory=ObservedWrites)
    plan_mismatch: str = ""
    changes: ChangeSet | None = None

    @property
    def listed_at(self) -> float:
        """Start of the latest list of Pods, seconds since the epoch."""
        return self._wall_at(self.network.listed_at)

    @property
    def settled_at(self) -> float:
        """When a list shows again what became of every Pod, seconds since the epoch."""
        return self._wall_at(self.network.answered_at + KUBELETS_SECONDS)

    def _wall_at(self, monotonic: float) -> float:
        return Instant(self.now, self.network.monotonic).wall_at(monotonic)


class CancelCause(NamedTuple):
    """Why a run ends attempts, as their records say it.

    Attributes:
        reason: Their ``failure_reason``.
        message: One plain sentence.
    """

    reason: str = "cancelled"
    message: str = ""


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
    _update_decisions(cache, observed, controls, cause)
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
    return controls, _stop_cause(controls.stop)


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


def _stop_cause(stop: EndReason | None) -> CancelCause:
    """Return the cause for records of a run that is ended early for this reason."""
    if stop is None:
        return CancelCause()
    if stop.reason is Reason.BUDGET_EXHAUSTED:
        return CancelCause(RUN_BUDGET_EXHAUSTED, stop.message)
    return CancelCause(message=stop.message)


def _update_decisions(
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
    if ended is not None:
        cache.store(key, ended)
        return
    if may_become_batchable(plan, history):
        cache.batch_candidates.add(key)
    launched = history.launched
    name = pod_name(plan.identity.uid, launched.pod) if launched is not None else ""
    view = observed.pods.get(name)
    if launched is not None:
        cache.live.put(key, name, launch_image(plan, launched.pod))
    if launched is not None and view is None:
        cache.without_pod.add(key)
        cache.store(key, _without_pod(observed, launched, name))
        return
    match attempt_step(plan, history, view, observed.now):
        case Lost() | Finish() if not _is_confirmed(observed, history, view):
            cache.unconfirmed.add(key)
        case Begin(launch) if is_batchable(plan, history, launch):
            cache.store(key, BatchableLaunch(launch, _produced_at(history)))
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


def _produced_at(history: AttemptHistory) -> float:
    return history.state.at if isinstance(history.state, ProducedState) else 0.0


def _without_pod(
    observed: ObservedState, launched: LaunchedState, name: str
) -> Lost | RepeatCreate | Wait:
    if name in observed.vanished:
        message = f"Pod {name} disappeared before it gave a result"
        is_shared = launched.batch is not None
        return Lost(launched.launch, POD_LOST, message, observed.now, is_shared=is_shared)
    return RepeatCreate(launched.pod) if name in observed.pending else Wait()
