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
from securebench.run.api.field_types import PodRetention
from securebench.run.decide.canary import CanarySeen
from securebench.run.decide.machine import PHASE_OF_ROLE, Capture, Wait, attempt_step, unreadable
from securebench.run.decide.network import NetworkState, NetworkStep, network_step
from securebench.run.decide.obstacles import Obstacle, WritesSeen, run_obstacle
from securebench.run.decide.standing import Changed, Repeat, Standing
from securebench.run.decide.verdict import EndReason, RunOutcome
from securebench.run.observe.pods import PodView
from securebench.run.observe.waiting import has_begun
from securebench.run.plan.model import AttemptKey, LaunchKey, Role, RunPlan, pod_name
from securebench.run.state.attempt_index import AttemptIndex
from securebench.run.state.attempts import AttemptHistory, Doubt, Finish, Lost, Outcome

BROKEN = frozenset({Outcome.INFRASTRUCTURE, Outcome.PROVIDER, Outcome.VERIFIER})
"""Outcomes whose Pods stay with ``retention.pods: Failed``."""

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
    """

    parallelism: int
    halt: Halt = Halt.NONE
    stop: EndReason | None = None
    deadline: float | None = None
    max_unschedulable: int = MAX_UNSCHEDULABLE


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
        begin: Launches to journal and then to create.
        repeat: Launches whose create has no definite answer yet.
        captures: Ended launches to read.
        finishes: Attempts to end with a record.
        deletions: Pods to delete.
        halt: Why the run begins nothing new.
        obstacle: What keeps it from going on for now, or None.
        wake_at: When to look again without an event, or None.
        is_parked: Whether it is suspended and nothing of it is under way.
        end: How it ended; None while an attempt is open or something is left to do.
    """

    network: NetworkStep = field(default_factory=NetworkStep)
    lost: tuple[Lost, ...] = ()
    begin: tuple[LaunchKey, ...] = ()
    repeat: tuple[LaunchKey, ...] = ()
    captures: tuple[Capture, ...] = ()
    finishes: tuple[Finish, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    halt: Halt = Halt.NONE
    obstacle: Obstacle | None = None
    wake_at: float | None = None
    is_parked: bool = False
    end: EndReason | None = None

    @property
    def is_news(self) -> bool:
        """Whether the journal learns what the next decision depends on."""
        return bool(self.captures or self.finishes or self.lost or self.network.found)


@dataclass(frozen=True, slots=True)
class ObservedState:
    """Everything a pass looks at.

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
        changed: What happened since the last pass; None: the whole run is looked at.
    """

    plan: RunPlan
    history: AttemptIndex
    network: NetworkState
    pods: Mapping[str, PodView]
    pending: Collection[str]
    vanished: Collection[str]
    now: float
    writes: WritesSeen = field(default_factory=WritesSeen)
    unreadable: str = ""
    changed: Changed | None = None


def reconcile(
    observed: ObservedState, controls: Controls, standing: Standing | None = None
) -> RunDecision:
    """Decide one pass.

    Args:
        observed: What is known and seen.
        controls: What is allowed.
        standing: What earlier passes of the run decided, which this one brings up to date; without
            it, or where ``observed`` does not say what has changed, every attempt is looked at.

    Returns:
        The decision, the same with and without ``standing``. Carrying it out twice does nothing
        twice: names are deterministic and every entry it makes is in the journal before its effect.

    Invariants:
        Attempts with a live launch after the decision are at most ``parallelism``, unless it
        was lowered; an attempt has at most one live launch; a finished attempt begins nothing.
    """
    controls, words = _halting(observed, controls)
    standing = standing if standing is not None else Standing()
    _look(standing, observed, controls, words)
    is_probing = _is_probing(observed, controls)
    deletions = (*_deletions(standing), *(() if is_probing else _probes(standing)))
    decision = RunDecision(
        network=_around(standing, observed, controls, is_probing=is_probing),
        lost=_in_order(standing.lost),
        begin=_admit(standing, observed, controls),
        repeat=tuple(_creatable(_in_order(standing.repeats), observed.network)),
        captures=_in_order(standing.captures),
        finishes=_in_order(standing.finishes),
        deletions=deletions,
        halt=controls.halt,
        obstacle=_obstacle(standing, observed, controls),
    )
    is_over = observed.history.open == 0 and not deletions and observed.writes.is_idle
    return replace(
        decision,
        wake_at=_wake_at(standing, observed, controls, decision),
        is_parked=_is_parked(standing, observed, decision),
        end=_end(observed, controls) if is_over else None,
    )


def _in_order(steps: Mapping[AttemptKey, T]) -> tuple[T, ...]:
    return tuple(step for _, step in sorted(steps.items(), key=itemgetter(0)))


def _halting(observed: ObservedState, controls: Controls) -> tuple[Controls, str]:
    """Return what is allowed after what was refused for good, and the words for the records."""
    network = observed.network
    failure = network.gateway_known.failure
    refusal = observed.unreadable or network.not_proven or observed.writes.refusal or failure
    if refusal and controls.halt is not Halt.STOPPED:
        return replace(controls, halt=Halt.STOPPED), refusal
    return controls, controls.stop.message if controls.stop is not None else ""


def _obstacle(standing: Standing, observed: ObservedState, controls: Controls) -> Obstacle | None:
    if controls.stop is not None:
        return Obstacle(Reason.CANCELLING, controls.stop.message)
    return run_obstacle(
        observed.network,
        observed.pods.values(),
        observed.history,
        observed.now,
        observed.writes,
        is_working=bool(standing.pods.working) and not standing.pods.stuck,
    )


def _wake_at(
    standing: Standing, observed: ObservedState, controls: Controls, decision: RunDecision
) -> float | None:
    times = [
        standing.waits.next(),
        decision.network.wake_at,
        decision.obstacle.changes_at if decision.obstacle is not None else None,
        observed.writes.retry_at,
        # One that has passed is acted on already.
        controls.deadline if (controls.deadline or 0.0) > observed.now else None,
    ]
    return min((at for at in times if at is not None), default=None)


def _is_parked(standing: Standing, observed: ObservedState, decision: RunDecision) -> bool:
    is_resting = decision.halt is Halt.SUSPENDED and not standing.active
    return is_resting and observed.writes.is_idle and not (decision.is_news or decision.deletions)


def _end(observed: ObservedState, controls: Controls) -> EndReason:
    end = RunOutcome(
        not_isolated=observed.network.not_proven,
        refusal=observed.writes.refusal,
        gateway_failure=observed.network.gateway_known.failure,
        stop=controls.stop,
        attempts=observed.history.values(),
    ).verdict()
    return end._replace(message="; ".join(filter(None, (end.message, observed.unreadable))))


def _look(standing: Standing, observed: ObservedState, controls: Controls, words: str) -> None:
    """Look at every attempt about which the last pass may have decided otherwise."""
    changed, basis = observed.changed, (controls.halt, words)
    is_whole = changed is None or standing.basis != basis
    if changed is None or is_whole:
        standing.reset(basis)
        keys = {key for key, history in observed.history.items() if history.finish is None}
        changed = Changed(keys, observed.pods)
    keys = {*changed.attempts, *standing.unseen, *standing.waits.due(observed.now)}
    for name in changed.pods:
        key = standing.pods.take(name, observed.pods.get(name))
        if key is not None and key in observed.history:
            keys.add(key)
    for key in keys:
        history = observed.history[key]
        if not is_whole:
            standing.drop(key)
        if history.finish is None:
            _consider(standing, observed, controls, words, history)
        _sort_pods(standing, observed, history)


def _consider(
    standing: Standing,
    observed: ObservedState,
    controls: Controls,
    words: str,
    history: AttemptHistory,
) -> None:
    key, live = history.key, history.live
    ended = _halted(controls, words, history)
    if ended is None and history.doubt is Doubt.CONDEMNED:
        ended = unreadable(key)
    if ended is not None:
        standing.put(key, ended)
        return
    if live is None:
        standing.put(key, attempt_step(observed.plan, history, None, observed.now))
        return
    standing.active.add(key)
    name = pod_name(observed.plan.identity.uid, live)
    view = observed.pods.get(name)
    if view is None:
        standing.unseen.add(key)
        standing.put(key, _unseen(observed, live, name))
    else:
        standing.put(key, attempt_step(observed.plan, history, view, observed.now))


def _halted(controls: Controls, words: str, history: AttemptHistory) -> Finish | None:
    is_queued = history.live is None and history.production is None
    if controls.halt is Halt.STOPPED or (controls.halt is Halt.DRAINING and is_queued):
        phase = (
            PHASE_OF_ROLE[history.live.role] if history.live is not None else FailurePhase.QUEUED
        )
        return Finish(history.key, Outcome.CANCELLED, "cancelled", phase, words)
    return None


def _unseen(observed: ObservedState, live: LaunchKey, name: str) -> Lost | Repeat | Wait:
    if name in observed.vanished:
        message = f"Pod {name} disappeared before it gave a result"
        return Lost(live, POD_LOST, message, observed.now)
    return Repeat(live) if name in observed.pending else Wait()


def _admit(
    standing: Standing, observed: ObservedState, controls: Controls
) -> tuple[LaunchKey, ...]:
    """Choose which launches begin: attempts that are under way come before new ones."""
    if controls.halt in {Halt.SUSPENDED, Halt.STOPPED}:
        return ()
    free = controls.parallelism - len(standing.active)
    if len(standing.pods.stuck) >= controls.max_unschedulable or free <= 0:
        return ()
    return tuple(standing.begins.first(free, _creatable_roles(observed.network)))


def _creatable_roles(network: NetworkState) -> Collection[Role]:
    """Return the roles whose Pods find the network that they need."""
    if not (network.has_policies and network.is_proven):
        return ()
    return (Role.VERIFIER, Role.HARNESS) if network.is_gateway_ready else (Role.VERIFIER,)


def _creatable(launches: Iterable[LaunchKey], network: NetworkState) -> Iterable[LaunchKey]:
    roles = _creatable_roles(network)
    return (launch for launch in launches if launch.role in roles)


def _is_probing(observed: ObservedState, controls: Controls) -> bool:
    """Whether the run needs a proof and goes on."""
    is_needed = observed.history.open > 0 and observed.network.found is None
    return is_needed and controls.halt is Halt.NONE


def _around(
    standing: Standing, observed: ObservedState, controls: Controls, *, is_probing: bool
) -> NetworkStep:
    """Look after policies, gateway and canary for as long as a launch may need them."""
    is_resting = controls.halt is Halt.SUSPENDED and not standing.active
    if observed.history.open == 0 or controls.halt is Halt.STOPPED or is_resting:
        return NetworkStep()
    network = observed.network
    seen = CanarySeen(
        run_uid=observed.plan.identity.uid,
        pods=observed.pods,
        vanished=observed.vanished,
        is_ready=network.has_policies and network.is_gateway_ready,
        held=network.held,
    )
    return network_step(network, seen, observed.now, is_probing=is_probing)


def _sort_pods(standing: Standing, observed: ObservedState, history: AttemptHistory) -> None:
    """Find out which Pods of an attempt work, and which are to go."""
    for name, view in standing.pods.of(history.key).items():
        standing.pods.working.pop(name, None)
        standing.pods.doomed.pop(name, None)
        if history.live == view.launch:
            if view.is_terminal or has_begun(view):
                standing.pods.working[name] = view
        elif view.deleting_since is None and not _is_kept(observed, history, view):
            standing.pods.doomed[name] = view


def _deletions(standing: Standing) -> Iterable[Deletion]:
    for _, view in sorted(standing.pods.doomed.items()):
        yield Deletion(view.name, view.uid, at_once=not view.is_terminal)


def _probes(standing: Standing) -> Iterable[Deletion]:
    """Return probing Pods that nobody needs: the proof is there, or the run does not go on."""
    for _, view in sorted(standing.pods.probing.items()):
        yield Deletion(view.name, view.uid, at_once=True)


def _is_kept(observed: ObservedState, history: AttemptHistory, view: PodView) -> bool:
    keep = observed.plan.policy.keep_pods
    if not view.is_terminal or keep is PodRetention.NONE:
        return False
    if keep is PodRetention.ALL:
        return True
    was_lost = history.last_lost is not None and history.last_lost.launch == view.launch
    return was_lost or (history.finish is not None and history.finish.outcome in BROKEN)
