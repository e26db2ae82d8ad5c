"""What a run reports that it waits for, and from when."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from securebench.core.clock import Instant
from securebench.run.api.conditions import Reason
from securebench.run.decide.attempt.decision_cache import LaunchesUnderWay
from securebench.run.decide.network.canary import canary_waiting
from securebench.run.decide.network.network_step import NetworkState
from securebench.run.observe.pods import PodView
from securebench.run.observe.provider_waits import (
    ObservedProvider,
    longest_wait,
    provider_waiting,
)
from securebench.run.observe.waiting import (
    WaitReason,
    after_loss,
    gated_message,
    next_try,
    of_task,
    pod_waiting,
)
from securebench.run.state.attempt_index import AttemptIndex

REPORT_DELAY_SECONDS = 3.0
"""A wait between tasks, or while others run, is reported after this long; rejections, losses and
waits before the first task are reported at once."""

SUSPENDED_MESSAGE = "spec.suspend is true: nothing of the run is under way"

PARKED_MESSAGE = "waiting for a slot: other runs have their turn (settings.turnSeconds)"

YIELDING_MESSAGE = (
    "its turn is over and other runs are Queued: launches that are under way end, then it queues "
    "again (settings.turnSeconds)"
)

GATEWAY_MESSAGE = "the run's gateway is being made"


class Throttled(NamedTuple):
    """Pods that a limit of the operator keeps from starting.

    Attributes:
        message: What they wait for, or empty without any.
        since: Since when, seconds since the epoch; None: only now.
    """

    message: str = ""
    since: float | None = None


@dataclass(frozen=True, slots=True)
class ObservedWrites:
    """State of the requests that change the cluster.

    Attributes:
        refusal: The API server's message after one was refused permanently, or empty.
        trouble: Why the last create of an object that is still wanted had no answer, or empty.
        quota: The API server's message while a quota refuses a create, or empty.
        forbidden: Which create authorization or admission refuses at the moment, and why; or empty.
        is_idle: Whether none is under way.
        rate: Creates that wait for the operator's rate limit.
    """

    refusal: str = ""
    trouble: str = ""
    quota: str = ""
    forbidden: str = ""
    is_idle: bool = True
    rate: Throttled = field(default_factory=Throttled)


def run_waits(
    network: NetworkState,
    pods: Collection[PodView],
    attempts: AttemptIndex,
    now: float,
    writes: ObservedWrites,
    launches: LaunchesUnderWay,
) -> Iterator[WaitReason]:
    """Yield what a run and its tasks wait for by priority, at most one wait of each kind.

    Those that are not told yet have no message.

    Args:
        network: State of the network: observed, and remembered.
        pods: All Pods of the run.
        attempts: All attempts of the run.
        now: Seconds since the epoch.
        writes: What is known of requests that change the cluster.
        launches: What is under way.
    """
    if writes.quota:
        yield WaitReason(Reason.QUOTA_EXCEEDED, writes.quota)
    if writes.forbidden:
        yield WaitReason(Reason.FORBIDDEN, writes.forbidden)
    around = _around_wait(network, pods, attempts, now, writes.trouble)
    if around is not None:
        yield around
    # What is around the launches tells of its own Pods.
    stuck = [each for each in launches.unschedulable if around is None or each.launch is not None]
    if stuck:
        first = min(stuck, key=attrgetter("name"))
        yield WaitReason(Reason.UNSCHEDULABLE, first.unschedulable)
    if launches.is_working:
        yield from _task_waits(launches, attempts, network.provider, now)
    else:
        yield from _start_waits(launches, attempts, now)


def parked_wait(*, is_yielding: bool) -> WaitReason:
    """Return what a run waits for of which nothing is under way: its user, or its turn.

    Args:
        is_yielding: Whether it rests only because its turn is over.
    """
    if is_yielding:
        return WaitReason(Reason.QUEUED, PARKED_MESSAGE)
    return WaitReason(Reason.SUSPENDED, SUSPENDED_MESSAGE)


def _task_waits(
    launches: LaunchesUnderWay, attempts: AttemptIndex, provider: ObservedProvider, now: float
) -> Iterator[WaitReason]:
    """Yield what tasks wait for while others work.

    A Pod that is refused comes first, then a lost launch, a wait for the model provider, a Pod that
    starts slowly, Pods with scheduling gates.
    """
    if launches.refused is not None:
        yield from _task_pod_wait(launches.refused, now, report_at=now)
    yield from _next_try(launches, attempts)
    longest, oldest = longest_wait(provider, attempts), launches.waiting
    if longest is not None:
        report_at = longest.wait.since + REPORT_DELAY_SECONDS
        yield _reported_from(report_at, provider_waiting(provider, longest, now), now)
    if oldest is not None:
        yield from _task_pod_wait(oldest, now, oldest.created_at + REPORT_DELAY_SECONDS)
    gated = gated_message(launches.gated)
    if gated:
        report_at = min(view.created_at for view in launches.gated) + REPORT_DELAY_SECONDS
        yield _reported_from(report_at, WaitReason(Reason.RUNNING, gated), now)


def _task_pod_wait(view: PodView, now: float, report_at: float) -> Iterator[WaitReason]:
    """Yield what the Pod of a launch waits for, reported from a moment on."""
    found = pod_waiting(view, now)
    if view.launch is not None and found is not None:
        yield _reported_from(report_at, of_task(view.launch.task, found), now)


def _next_try(launches: LaunchesUnderWay, attempts: AttemptIndex) -> Iterator[WaitReason]:
    """Yield why a task is launched again later while others work."""
    if launches.again:
        lost = attempts[min(launches.again)]
        found = next_try([lost])
        if found is not None:
            yield of_task(lost.key.task, found)


def _start_waits(
    launches: LaunchesUnderWay, attempts: AttemptIndex, now: float
) -> Iterator[WaitReason]:
    """Yield what a run waits for of which no launch works: the oldest Pod comes first."""
    gated = gated_message(launches.gated)
    if gated:
        yield WaitReason(Reason.SCHEDULING_GATED, gated)
    views = [view for view in (launches.refused, launches.waiting) if view is not None]
    for view in sorted(views, key=attrgetter("created_at", "name")):
        found = pod_waiting(view, now)
        if view.launch is not None and found is not None:
            found = after_loss(found, attempts.get(view.launch.attempt_key))
            yield _early(found, attempts, view.created_at + REPORT_DELAY_SECONDS, now)
    has_pods = views or launches.gated or launches.unschedulable
    lost = [attempts[key] for key in launches.again]
    found = next_try(lost if lost or has_pods else attempts.under_way)
    if found is not None:
        yield _early(found, attempts, now, now)


def _early(found: WaitReason, attempts: AttemptIndex, report_at: float, now: float) -> WaitReason:
    """Return a wait that is told at once before the first result, else from a moment on."""
    if not attempts.has_results:
        return found._replace(reason=Reason.STARTING)
    return _reported_from(report_at, found, now)


def throttled_wait(
    held: Throttled, now: float, *, is_idle: bool, has_results: bool
) -> WaitReason | None:
    """Return which limit holds Pods back, or None where there are none.

    Args:
        held: What holds them back.
        now: Seconds since the epoch.
        is_idle: Whether the run has no Pod of a launch; that is reported at once.
        has_results: Whether an attempt has ended or handed something in.
    """
    if not held.message:
        return None
    report_at = (held.since if held.since is not None else now) + REPORT_DELAY_SECONDS
    if not is_idle and now < report_at:
        return WaitReason(Reason.RUNNING, "", report_at)
    return WaitReason(
        Reason.STARTING if is_idle and not has_results else Reason.RUNNING, held.message
    )


def _reported_from(report_at: float, found: WaitReason, now: float) -> WaitReason:
    """Return a reason, without its message before the moment from which it is reported."""
    return found if now >= report_at else WaitReason(found.reason, "", report_at)


def _around_wait(
    network: NetworkState,
    pods: Collection[PodView],
    attempts: AttemptIndex,
    now: float,
    trouble: str,
) -> WaitReason | None:
    """Return what policies, gateway, canary and creates wait for, or None."""
    found = _network_wait(network, pods, trouble, now)
    if not trouble or network.repairs:
        return found
    early = Reason.RUNNING if attempts.has_results else Reason.STARTING
    reason = found.reason if found is not None else early
    return WaitReason(reason, f"{trouble}; tried again")


def _network_wait(
    network: NetworkState, pods: Collection[PodView], trouble: str, now: float
) -> WaitReason | None:
    """Return what the launches of a run wait for before they may begin, or None."""
    if network.repairs:
        return WaitReason(Reason.STARTING, trouble) if trouble else None
    is_first, message = network.found is None, network.gateway_memory.trouble
    if not network.is_gateway_ready and (message or is_first):
        return WaitReason(Reason.GATEWAY_STARTING, message or GATEWAY_MESSAGE)
    if is_first and network.check is not None:
        moment = Instant(now, network.monotonic)
        return canary_waiting(pods, network.canary_memory, moment)
    return None
