"""Which of its waits a run reports, and from when."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
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
    gated_message,
    next_try,
    of_task,
    pod_waiting,
    run_waiting,
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


def run_wait_reason(
    network: NetworkState,
    pods: Collection[PodView],
    attempts: AttemptIndex,
    now: float,
    writes: ObservedWrites,
    launches: LaunchesUnderWay,
) -> WaitReason | None:
    """Return why a run or one of its tasks waits; None while it makes progress.

    Args:
        network: State of the network: observed, and remembered.
        pods: All Pods of the run.
        attempts: All attempts of the run.
        now: Seconds since the epoch.
        writes: What is known of requests that change the cluster.
        launches: What is under way.
    """
    if writes.quota:
        return WaitReason(Reason.QUOTA_EXCEEDED, writes.quota)
    if writes.forbidden:
        return WaitReason(Reason.FORBIDDEN, writes.forbidden)
    network_reason = _network_wait_reason(network, pods, writes.trouble, now)
    if writes.trouble and not network.repairs:
        early = Reason.RUNNING if attempts.has_results else Reason.STARTING
        reason = network_reason.reason if network_reason is not None else early
        return WaitReason(reason, f"{writes.trouble}; tried again")
    if network_reason is not None:
        return network_reason
    if launches.is_working:
        return _task_wait_reason(launches, attempts, network.provider, now)
    return _pods_wait_reason(pods, attempts, launches, now)


def parked_wait_reason(*, is_yielding: bool) -> WaitReason:
    """Return what a run waits for of which nothing is under way: its user, or its turn.

    Args:
        is_yielding: Whether it rests only because its turn is over.
    """
    if is_yielding:
        return WaitReason(Reason.QUEUED, PARKED_MESSAGE)
    return WaitReason(Reason.SUSPENDED, SUSPENDED_MESSAGE)


def _task_wait_reason(
    launches: LaunchesUnderWay, attempts: AttemptIndex, provider: ObservedProvider, now: float
) -> WaitReason | None:
    """Return what one task waits for while others work, or None.

    A Pod that is refused comes first, then a lost launch, a wait for the model provider, a Pod that
    starts slowly.
    """
    if launches.refused is not None:
        return _pod_wait_reason(launches.refused, now, report_at=now)
    if launches.again:
        lost = attempts[min(launches.again)]
        found = next_try([lost])
        return of_task(lost.key.task, found) if found else None
    longest, view = longest_wait(provider, attempts), launches.waiting
    if longest is not None and now >= longest.wait.since + REPORT_DELAY_SECONDS:
        return provider_waiting(provider, longest, now)
    report_at = view.created_at + REPORT_DELAY_SECONDS if view is not None else now
    starting = _pod_wait_reason(view, now, report_at) if view is not None else None
    if longest is None:
        return starting
    return _changing_at(starting, longest.wait.since + REPORT_DELAY_SECONDS)


def _pod_wait_reason(view: PodView, now: float, report_at: float) -> WaitReason | None:
    """Return what the Pod of a launch waits for, reported from a moment on; or None."""
    found = pod_waiting(view, now)
    if view.launch is None or found is None:
        return None
    return _reported_from(report_at, of_task(view.launch.task, found), now)


def _changing_at(reason: WaitReason | None, moment: float) -> WaitReason:
    """Return a reason that is decided again at a moment, or earlier if it says so."""
    if reason is None:
        return WaitReason(Reason.RUNNING, "", moment)
    return reason._replace(changes_at=min(reason.changes_at or moment, moment))


def gated_wait_reason(gated: Collection[PodView], now: float) -> WaitReason | None:
    """Return why gated Pods wait while others work, or None where there are none.

    Args:
        gated: Those Pods.
        now: Seconds since the epoch.
    """
    message = gated_message(gated)
    if not message:
        return None
    report_at = min(view.created_at for view in gated) + REPORT_DELAY_SECONDS
    return _reported_from(report_at, WaitReason(Reason.RUNNING, message), now)


def throttled_wait_reason(
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


def _pods_wait_reason(
    pods: Collection[PodView], attempts: AttemptIndex, launches: LaunchesUnderWay, now: float
) -> WaitReason | None:
    """Return what the run's Pods wait for, or None while one of them works."""
    for view in pods:
        if view.unschedulable:
            return WaitReason(Reason.UNSCHEDULABLE, view.unschedulable)
    gated = gated_message(pods)
    if gated:
        return WaitReason(Reason.SCHEDULING_GATED, gated)
    found = run_waiting(pods, attempts.under_way, now)
    if found is None:
        return None
    if not attempts.has_results:
        return found._replace(reason=Reason.STARTING)
    oldest = launches.waiting
    report_at = oldest.created_at + REPORT_DELAY_SECONDS if oldest is not None else now
    return _reported_from(report_at, found, now)


def _network_wait_reason(
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
