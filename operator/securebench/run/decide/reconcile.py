"""One pass of the loop over a whole run, as a pure function."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from operator import itemgetter
from typing import TypeVar

from securebench.core.rates import MAX_UNSCHEDULABLE
from securebench.core.reasons import POD_LOST, FailurePhase
from securebench.run.api.conditions import Reason
from securebench.run.decide.batches import BatchableLaunch, is_batchable, may_become_batchable
from securebench.run.decide.canary import ObservedCanary
from securebench.run.decide.decision_cache import ChangeSet, DecisionCache, RepeatCreate
from securebench.run.decide.launch_selection import LaunchSelection, no_launches, select_launches
from securebench.run.decide.machine import (
    PHASE_OF_ROLE,
    Begin,
    Capture,
    Wait,
    attempt_step,
    unreadable,
)
from securebench.run.decide.network import NetworkState, NetworkStep, network_step
from securebench.run.decide.room import CapacityUse, Headroom, launch_image
from securebench.run.decide.verdict import EndReason, RunOutcome
from securebench.run.decide.wait_reason import (
    ObservedWrites,
    Throttled,
    WaitReason,
    gated_wait_reason,
    run_wait_reason,
    throttled_wait_reason,
)
from securebench.run.observe.pods import PodView
from securebench.run.plan.model import AttemptKey, LaunchKey, RunPlan, pod_name
from securebench.run.state.attempt_index import AttemptIndex
from securebench.run.state.attempts import AttemptHistory, Doubt, Finish, Lost, Outcome

T = TypeVar("T")


class Halt(StrEnum):
    """Why a run begins nothing new."""

    NONE = ""
    SUSPENDED = "suspended"
    DRAINING = "draining"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class Controls:
    """What the user and the cluster allow right now.

    Attributes:
        parallelism: Attempts in flight at most.
        halt: ``DRAINING`` ends what is queued, ``STOPPED`` ends everything.
        stop: Why the user or the deadline ends the run early, or None.
        deadline: When the run is ended, seconds since the epoch, or None before its start.
        max_unschedulable: Unschedulable Pods of this run at which nothing new begins.
        headroom: What the bounds of the operator leave to the run.
    """

    parallelism: int
    halt: Halt = Halt.NONE
    stop: EndReason | None = None
    deadline: float | None = None
    max_unschedulable: int = MAX_UNSCHEDULABLE
    headroom: Headroom = field(default_factory=Headroom)


@dataclass(frozen=True, slots=True)
class Deletion:
    """One Pod to delete.

    Attributes:
        name: Its name.
        uid: Its uid; a later Pod of that name stays.
        at_once: Whether it may lose its grace.
    """

    name: str
    uid: str
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class RunDecision:
    """What one pass decided, in the order in which it is carried out.

    Attributes:
        network: What to do about policies, gateway and canary; the proof to journal.
        lost: Launches to journal as lost.
        begin: Launches to journal and then to create, each with a Pod of its own.
        batches: The same for launches that share a Pod, by Pod.
        repeat: Launches whose Pods' create has no definite answer yet; the first one of a batch.
        captures: Ended launches to read.
        finishes: Attempts to end with a record.
        deletions: Pods to delete.
        halt: Why the run begins nothing new.
        wait_reason: What keeps it from going on for now, or None.
        wake_at: When to look again without an event, or None.
        is_parked: Whether it is suspended and nothing of it is under way.
        end: How it ended; None while an attempt is open or something is left to do.
        usage: What the run has of what the operator bounds, the launches that begin included.
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
    wait_reason: WaitReason | None = None
    wake_at: float | None = None
    is_parked: bool = False
    end: EndReason | None = None
    usage: CapacityUse = field(default_factory=CapacityUse)

    @property
    def has_journal_entries(self) -> bool:
        """Whether the journal learns what the next decision depends on."""
        return bool(self.captures or self.finishes or self.lost or self.network.found)


@dataclass(frozen=True, slots=True)
class ObservedState:
    """Everything a pass looks at.

    ``pods``, ``history`` and ``vanished`` are live views that the loop owns: what decides reads
    them and never changes them, and nothing keeps them for the next pass.

    Attributes:
        plan: The run.
        history: What the journal knows, by attempt; every attempt of the plan is there.
        network: What launches need around them.
        pods: All Pods of the run by name, as the listing and the watch show them.
        pending: Names of Pods whose create has no definite answer yet.
        vanished: Names of Pods that were seen and are gone.
        now: Seconds since the epoch.
        writes: What is known of requests that are on their way.
        unreadable: Why this version may only end the run, or empty.
        changes: What happened since the last pass; None: the whole run is looked at.
    """

    plan: RunPlan
    history: AttemptIndex
    network: NetworkState
    pods: Mapping[str, PodView]
    pending: Collection[str]
    vanished: Collection[str]
    now: float
    writes: ObservedWrites = field(default_factory=ObservedWrites)
    unreadable: str = ""
    changes: ChangeSet | None = None


def reconcile(
    observed: ObservedState, controls: Controls, cache: DecisionCache | None = None
) -> RunDecision:
    """Decide one pass.

    Args:
        observed: What is known and seen.
        controls: What is allowed.
        cache: What earlier passes of the run decided, which this one brings up to date; without
            it, or where ``observed`` does not say what has changes, every attempt is looked at.

    Returns:
        The decision, the same with and without ``cache``. Carrying it out twice does nothing
        twice: names are deterministic and every entry it makes is in the journal before its effect.

    Invariants:
        Launch Pods that live after the decision are at most ``parallelism``, unless it was
        lowered; an attempt has at most one live launch; a finished attempt begins nothing.
    """
    controls, words = _halting(observed, controls)
    cache = cache if cache is not None else DecisionCache()
    _look(cache, observed, controls, words)
    begun = _begun(cache, observed, controls)
    is_probing = _is_probing(observed, controls)
    deletions = (*_deletions(cache), *(() if is_probing else _probes(cache)))
    repeats = dict.fromkeys(_in_order(cache.repeats))
    decision = RunDecision(
        network=_network_step(cache, observed, controls, is_probing=is_probing),
        lost=_in_order(cache.lost),
        begin=tuple(pod[0] for pod in begun.pods if len(pod) == 1),
        batches=tuple(pod for pod in begun.pods if len(pod) > 1),
        repeat=tuple(_creatable(repeats, observed.network)),
        captures=_in_order(cache.captures),
        finishes=_in_order(cache.finishes),
        deletions=deletions,
        halt=controls.halt,
        wait_reason=_wait_reason(cache, observed, controls, begun.usage.words),
        usage=begun.usage,
    )
    is_over = observed.history.open == 0 and not deletions and observed.writes.is_idle
    return replace(
        decision,
        wake_at=_wake_at(observed, controls, decision, (cache.wake_times.next(), begun.due_at)),
        is_parked=_is_parked(cache, observed, decision),
        end=_end(observed, controls) if is_over else None,
    )


def _in_order(steps: Mapping[AttemptKey, T]) -> tuple[T, ...]:
    return tuple(step for _, step in sorted(steps.items(), key=itemgetter(0)))


def _halting(observed: ObservedState, controls: Controls) -> tuple[Controls, str]:
    """Return what is allowed after what was refused for good, and the words for the records."""
    network = observed.network
    failure = network.gateway_memory.failure
    refusal = observed.unreadable or network.not_proven or observed.writes.refusal or failure
    if refusal and controls.halt is not Halt.STOPPED:
        return replace(controls, halt=Halt.STOPPED), refusal
    return controls, controls.stop.message if controls.stop is not None else ""


def _wait_reason(
    cache: DecisionCache, observed: ObservedState, controls: Controls, held: str
) -> WaitReason | None:
    if controls.stop is not None:
        return WaitReason(Reason.CANCELLING, controls.stop.message)
    found = run_wait_reason(
        observed.network,
        observed.pods.values(),
        observed.history,
        observed.now,
        observed.writes,
        cache.launches,
    )
    gated = [observed.pods[name] for name in cache.pods.queued if name in observed.pods]
    found = found or gated_wait_reason(gated, observed.now)
    if found is not None:
        return found
    back = Throttled(held, controls.headroom.held_since) if held else observed.writes.rate
    is_idle, has_results = not cache.live, observed.history.has_results
    return throttled_wait_reason(back, observed.now, is_idle=is_idle, has_results=has_results)


def _wake_at(
    observed: ObservedState,
    controls: Controls,
    decision: RunDecision,
    waits: Iterable[float | None],
) -> float | None:
    times = [
        *waits,
        decision.network.wake_at,
        decision.wait_reason.changes_at if decision.wait_reason is not None else None,
        # One that has passed is acted on already.
        controls.deadline if (controls.deadline or 0.0) > observed.now else None,
    ]
    return min((at for at in times if at is not None), default=None)


def _is_parked(cache: DecisionCache, observed: ObservedState, decision: RunDecision) -> bool:
    is_resting = decision.halt is Halt.SUSPENDED and not cache.live
    return (
        is_resting
        and observed.writes.is_idle
        and not (decision.has_journal_entries or decision.deletions)
    )


def _end(observed: ObservedState, controls: Controls) -> EndReason:
    end = RunOutcome(
        not_isolated=observed.network.not_proven,
        refusal=observed.writes.refusal,
        gateway_failure=observed.network.gateway_memory.failure,
        stop=controls.stop,
        attempts=observed.history.values(),
    ).verdict()
    return end._replace(message="; ".join(filter(None, (end.message, observed.unreadable))))


def _look(cache: DecisionCache, observed: ObservedState, controls: Controls, words: str) -> None:
    """Look at every attempt about which the last pass may have decided otherwise."""
    changes, basis, attempts = observed.changes, (controls.halt, words), observed.history
    is_whole = cache.basis != basis or observed.now < cache.decided_at
    if changes is None or is_whole:
        cache.reset(basis)
        keys = {key for key, history in attempts.items() if history.finish is None}
        changes = ChangeSet(keys, observed.pods.keys())
    cache.decided_at = observed.now
    keys = {*changes.attempts, *cache.without_pod, *cache.wake_times.due(observed.now)}
    for name in changes.pods:
        cache.pods.upsert(name, observed.pods.get(name))
        keys.update(cache.live.attempts_of(name))
    for key in keys:
        cache.invalidate(key)
        if attempts[key].finish is None:
            _consider(cache, observed, controls, words, attempts[key])
    for name in {*changes.pods, *(name for key in keys for name in cache.pods.names_of(key))}:
        cache.pods.classify(name, attempts, observed.plan.policy.keep_pods)
        if name in cache.pods.working:
            cache.live.mark_started(name)


def _consider(
    cache: DecisionCache,
    observed: ObservedState,
    controls: Controls,
    words: str,
    history: AttemptHistory,
) -> None:
    key, plan = history.key, observed.plan
    ended = _halted(controls, words, history)
    if ended is None and history.doubt is Doubt.CONDEMNED:
        ended = unreadable(key)
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
        cache.store(key, _unseen(observed, history, name))
        return
    match attempt_step(plan, history, view, observed.now):
        case Begin(launch) if is_batchable(plan, history, launch):
            cache.store(key, BatchableLaunch(launch, history.produced_at))
        case step:
            if isinstance(step, Wait) and history.live is None:
                cache.backing_off.add(key)
            cache.store(key, step)


def _halted(controls: Controls, words: str, history: AttemptHistory) -> Finish | None:
    is_queued = history.live is None and history.production is None
    if controls.halt is Halt.STOPPED or (controls.halt is Halt.DRAINING and is_queued):
        phase = (
            PHASE_OF_ROLE[history.live.role] if history.live is not None else FailurePhase.QUEUED
        )
        return Finish(history.key, Outcome.CANCELLED, "cancelled", phase, words)
    return None


def _unseen(
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


def _begun(cache: DecisionCache, observed: ObservedState, controls: Controls) -> LaunchSelection:
    is_full = len(cache.pods.unschedulable) >= controls.max_unschedulable
    if controls.halt in {Halt.SUSPENDED, Halt.STOPPED} or is_full:
        return no_launches(cache)
    roles, headroom = observed.network.creatable, controls.headroom
    return select_launches(
        cache, observed.plan, roles, observed.now, controls.parallelism, headroom
    )


def _creatable(launches: Iterable[LaunchKey], network: NetworkState) -> Iterable[LaunchKey]:
    return (launch for launch in launches if launch.role in network.creatable)


def _is_probing(observed: ObservedState, controls: Controls) -> bool:
    """Whether the run needs a proof and goes on."""
    is_needed = observed.history.open > 0 and observed.network.found is None
    return is_needed and controls.halt is Halt.NONE


def _network_step(
    cache: DecisionCache, observed: ObservedState, controls: Controls, *, is_probing: bool
) -> NetworkStep:
    """Look after policies, gateway and canary for as long as a launch may need them."""
    is_resting = controls.halt is Halt.SUSPENDED and not cache.live
    if observed.history.open == 0 or controls.halt is Halt.STOPPED or is_resting:
        return NetworkStep()
    network = observed.network
    seen = ObservedCanary(
        run_uid=observed.plan.identity.uid,
        pods=observed.pods,
        vanished=observed.vanished,
        is_guarded=network.has_policies and network.has_address,
        is_ready=network.has_policies and network.is_gateway_ready,
        create_blocked=network.create_blocked,
        listed_at=network.listed_at,
    )
    return network_step(network, seen, observed.now, is_probing=is_probing)


def _deletions(cache: DecisionCache) -> Iterable[Deletion]:
    for _, view in sorted(cache.pods.to_delete.items()):
        yield Deletion(view.name, view.uid, at_once=not view.is_terminal)


def _probes(cache: DecisionCache) -> Iterable[Deletion]:
    """Return probing Pods that nobody needs: the proof is there, or the run does not go on."""
    for _, view in sorted(cache.pods.probing.items()):
        yield Deletion(view.name, view.uid, at_once=True)
