"""One pass of the loop over a whole run, as a pure function."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from securebench.core.rates import MAX_UNSCHEDULABLE
from securebench.core.reasons import POD_LOST, FailurePhase
from securebench.run.api.conditions import Reason
from securebench.run.api.field_types import PodRetention
from securebench.run.decide.batches import (
    FEWEST_SLOTS,
    Sealed,
    batches,
    may_share,
    will_share,
)
from securebench.run.decide.canary import PROBING, CanarySeen
from securebench.run.decide.machine import PHASE_OF_ROLE, Begin, Capture, attempt_step, unreadable
from securebench.run.decide.network import NetworkState, NetworkStep, network_step
from securebench.run.decide.verdict import EndReason, RunOutcome
from securebench.run.decide.wait_reason import WaitReason, WritesSeen, run_wait_reason
from securebench.run.observe.pods import PodView
from securebench.run.plan.model import AttemptKey, LaunchKey, Role, RunPlan, pod_name
from securebench.run.state.attempts import AttemptHistory, Doubt, Finish, Lost, Outcome

BROKEN = frozenset({Outcome.INFRASTRUCTURE, Outcome.PROVIDER, Outcome.VERIFIER})
"""Outcomes whose Pods stay with ``retention.pods: Failed``."""


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

    @property
    def is_news(self) -> bool:
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
    """

    plan: RunPlan
    history: Mapping[AttemptKey, AttemptHistory]
    network: NetworkState
    pods: Mapping[str, PodView]
    pending: Collection[str]
    vanished: Collection[str]
    now: float
    writes: WritesSeen = field(default_factory=WritesSeen)
    unreadable: str = ""


@dataclass(slots=True)
class _Draft:
    words: str
    """Of the records of what is ended early."""
    lost: list[Lost] = field(default_factory=list)
    candidates: list[LaunchKey] = field(default_factory=list)
    sealed: list[Sealed] = field(default_factory=list)
    has_company: bool = False
    """Whether a further candidate may join those that are sealed."""
    repeat: dict[LaunchKey, None] = field(default_factory=dict)
    captures: list[Capture] = field(default_factory=list)
    finishes: list[Finish] = field(default_factory=list)
    wakes: list[float] = field(default_factory=list)
    live: set[LaunchKey] = field(default_factory=set)
    """The launches after which live Pods are named."""
    open: int = 0

    @property
    def active(self) -> int:
        return len(self.live)


def reconcile(observed: ObservedState, controls: Controls) -> RunDecision:
    """Decide one pass.

    Args:
        observed: What is known and seen.
        controls: What is allowed.

    Returns:
        The decision. Carrying it out twice does nothing twice: names are deterministic and
        every entry it makes is in the journal before its effect.

    Invariants:
        Launch Pods that live after the decision are at most ``parallelism``, unless it was
        lowered; an attempt has at most one live launch; a finished attempt begins nothing.
    """
    controls, words = _halting(observed, controls)
    draft = _Draft(words)
    for history in observed.history.values():
        if history.finish is None:
            draft.open += 1
            _consider(draft, observed, controls, history)
    admitted = _admit(draft, observed, controls)
    is_probing = _is_probing(draft, observed, controls)
    deletions = (*_deletions(observed), *(() if is_probing else _probes(observed)))
    decision = RunDecision(
        network=_network_step(draft, observed, controls, is_probing=is_probing),
        lost=tuple(draft.lost),
        begin=tuple(pod[0] for pod in admitted if len(pod) == 1),
        batches=tuple(pod for pod in admitted if len(pod) > 1),
        repeat=tuple(_creatable(draft.repeat, observed.network)),
        captures=tuple(draft.captures),
        finishes=tuple(draft.finishes),
        deletions=deletions,
        halt=controls.halt,
        wait_reason=_wait_reason(observed, controls),
    )
    is_over = draft.open == 0 and not deletions and observed.writes.is_idle
    return replace(
        decision,
        wake_at=_wake_at(draft, observed, controls, decision),
        is_parked=_is_parked(draft, observed, decision),
        end=_end(observed, controls) if is_over else None,
    )


def _halting(observed: ObservedState, controls: Controls) -> tuple[Controls, str]:
    """Return what is allowed after what was refused for good, and the words for the records."""
    network = observed.network
    failure = network.gateway_known.failure
    refusal = observed.unreadable or network.not_proven or observed.writes.refusal or failure
    if refusal and controls.halt is not Halt.STOPPED:
        return replace(controls, halt=Halt.STOPPED), refusal
    return controls, controls.stop.message if controls.stop is not None else ""


def _wait_reason(observed: ObservedState, controls: Controls) -> WaitReason | None:
    if controls.stop is not None:
        return WaitReason(Reason.CANCELLING, controls.stop.message)
    pods, attempts = observed.pods.values(), observed.history.values()
    return run_wait_reason(observed.network, pods, attempts, observed.now, observed.writes)


def _wake_at(
    draft: _Draft, observed: ObservedState, controls: Controls, decision: RunDecision
) -> float | None:
    times = [
        *draft.wakes,
        decision.network.wake_at,
        decision.wait_reason.changes_at if decision.wait_reason is not None else None,
        # One that has passed is acted on already.
        controls.deadline if (controls.deadline or 0.0) > observed.now else None,
    ]
    return min((at for at in times if at is not None), default=None)


def _is_parked(draft: _Draft, observed: ObservedState, decision: RunDecision) -> bool:
    is_resting = decision.halt is Halt.SUSPENDED and draft.active == 0
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


def _consider(
    draft: _Draft, observed: ObservedState, controls: Controls, history: AttemptHistory
) -> None:
    ended = _halted(draft, controls, history)
    if ended is not None:
        draft.finishes.append(ended)
        return
    if history.doubt is Doubt.CONDEMNED:
        draft.finishes.append(unreadable(history.key))
        return
    pod = history.pod
    draft.live |= {pod} if pod is not None else set()
    draft.has_company |= will_share(observed.plan, history)
    name = pod_name(observed.plan.identity.uid, pod) if pod is not None else ""
    view = observed.pods.get(name)
    if history.live is not None and view is None:
        _unseen(draft, observed, history, name)
        return
    match attempt_step(observed.plan, history, view, observed.now):
        case Begin(launch) if may_share(observed.plan, history, launch):
            draft.sealed.append(Sealed(launch, history.produced_at))
        case Begin(launch):
            draft.candidates.append(launch)
        case Capture() as capture:
            draft.captures.append(capture)
        case Lost() as lost:
            draft.lost.append(lost)
        case Finish() as finish:
            draft.finishes.append(finish)
        case wait:
            draft.wakes.extend([wait.until] if wait.until is not None else [])


def _halted(draft: _Draft, controls: Controls, history: AttemptHistory) -> Finish | None:
    is_queued = history.live is None and history.production is None
    if controls.halt is Halt.STOPPED or (controls.halt is Halt.DRAINING and is_queued):
        phase = (
            PHASE_OF_ROLE[history.live.role] if history.live is not None else FailurePhase.QUEUED
        )
        return Finish(history.key, Outcome.CANCELLED, "cancelled", phase, draft.words)
    return None


def _unseen(draft: _Draft, observed: ObservedState, history: AttemptHistory, name: str) -> None:
    live, pod = history.live, history.pod
    if live is None or pod is None:
        return
    if name in observed.vanished:
        message = f"Pod {name} disappeared before it gave a result"
        is_shared = history.batch is not None
        draft.lost.append(Lost(live, POD_LOST, message, observed.now, is_shared=is_shared))
    elif name in observed.pending:
        draft.repeat[pod] = None


def _admit(
    draft: _Draft, observed: ObservedState, controls: Controls
) -> tuple[tuple[LaunchKey, ...], ...]:
    """Choose which launches begin, by Pod: attempts that are under way come before new ones."""
    if controls.halt in {Halt.SUSPENDED, Halt.STOPPED}:
        return ()
    stuck = sum(1 for view in observed.pods.values() if view.unschedulable)
    if stuck >= controls.max_unschedulable:
        return ()
    has_company = draft.has_company and controls.parallelism >= FEWEST_SLOTS
    ready, due_at = batches(draft.sealed, observed.now, has_company=has_company)
    held = [due_at] if due_at is not None else []
    draft.wakes.extend(held)
    free = max(controls.parallelism - draft.active - len(held), 0)
    network = observed.network
    pods: list[tuple[LaunchKey, ...]] = [
        (launch,) for launch in _creatable(draft.candidates, network)
    ]
    pods += [pod for pod in ready if any(_creatable(pod, network))]
    return tuple(sorted(pods, key=lambda pod: pod[0].role is not Role.VERIFIER)[:free])


def _creatable(launches: Iterable[LaunchKey], network: NetworkState) -> Iterable[LaunchKey]:
    """Return the launches whose Pods find the network that they need."""
    if not (network.has_policies and network.is_proven):
        return ()
    return (x for x in launches if network.is_gateway_ready or x.role is not Role.HARNESS)


def _is_probing(draft: _Draft, observed: ObservedState, controls: Controls) -> bool:
    """Whether the run needs a proof and goes on."""
    is_needed = draft.open > 0 and observed.network.found is None
    return is_needed and controls.halt is Halt.NONE


def _network_step(
    draft: _Draft, observed: ObservedState, controls: Controls, *, is_probing: bool
) -> NetworkStep:
    """Look after policies, gateway and canary for as long as a launch may need them."""
    is_resting = controls.halt is Halt.SUSPENDED and draft.active == 0
    if draft.open == 0 or controls.halt is Halt.STOPPED or is_resting:
        return NetworkStep()
    network = observed.network
    seen = CanarySeen(
        run_uid=observed.plan.identity.uid,
        pods=observed.pods,
        vanished=observed.vanished,
        is_guarded=network.has_policies and network.has_address,
        is_ready=network.has_policies and network.is_gateway_ready,
        create_blocked=network.create_blocked,
    )
    return network_step(network, seen, observed.now, is_probing=is_probing)


def _deletions(observed: ObservedState) -> Iterable[Deletion]:
    for view in observed.pods.values():
        if view.launch is None or view.deleting_since is not None:
            continue
        known = [(observed.history.get(each.attempt_key), each) for each in view.launches]
        if all(
            history is not None
            and history.live != launch
            and not _is_kept(observed, history, view, launch)
            for history, launch in known
        ):
            yield Deletion(view.name, view.uid, at_once=not view.is_terminal)


def _probes(observed: ObservedState) -> Iterable[Deletion]:
    """Return probing Pods that nobody needs: the proof is there, or the run does not go on."""
    for view in observed.pods.values():
        if view.role in PROBING and view.deleting_since is None:
            yield Deletion(view.name, view.uid, at_once=True)


def _is_kept(
    observed: ObservedState, history: AttemptHistory, view: PodView, launch: LaunchKey
) -> bool:
    keep = observed.plan.policy.keep_pods
    if not view.is_terminal or keep is PodRetention.NONE:
        return False
    if keep is PodRetention.ALL:
        return True
    was_lost = history.last_lost is not None and history.last_lost.launch == launch
    return was_lost or (history.finish is not None and history.finish.outcome in BROKEN)
