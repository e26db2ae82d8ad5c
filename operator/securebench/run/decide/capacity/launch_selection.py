"""Selects the launches that a run starts now. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from securebench.run.decide.attempt.batches import MIN_BATCH_SLOTS, form_batches
from securebench.run.decide.attempt.decision_cache import DecisionCache
from securebench.run.decide.capacity.launch_limits import (
    CapacityUse,
    FirstPullLimit,
    Headroom,
    PodCounts,
    launch_image,
)
from securebench.run.plan.keys import LaunchKey, Role
from securebench.run.plan.model import RunPlan

PodLaunches = tuple[LaunchKey, ...]


class LaunchSelection(NamedTuple):
    """The launches to start.

    Attributes:
        pods: The launches, by Pod.
        due_at: When a partial batch starts as it is, or None.
        usage: What the run uses of the operator's limits, these launches included.
    """

    pods: tuple[PodLaunches, ...]
    due_at: float | None
    usage: CapacityUse


def no_launches(cache: DecisionCache) -> LaunchSelection:
    """Select nothing, for a run that would not start a launch whatever the limits are."""
    parked = _parked_images(cache)
    pulls = FirstPullLimit(Headroom(), cache.live.starting.values())
    return LaunchSelection((), None, _usage(_pod_counts(cache, parked), parked, 0, 0, pulls, ""))


def select_launches(
    cache: DecisionCache,
    plan: RunPlan,
    roles: Collection[Role],
    now: float,
    parallelism: int,
    headroom: Headroom,
) -> LaunchSelection:
    """Select the launches to start: attempts under way come before new ones.

    Args:
        cache: The decisions about the attempts.
        plan: The run.
        roles: Roles whose Pods have the network that they need.
        now: Seconds since the epoch.
        parallelism: Maximum number of the run's Pods in flight.
        headroom: What the operator's limits leave to the run.
    """
    may_grow = bool(cache.batch_candidates) and parallelism >= MIN_BATCH_SLOTS
    waiting = (launch for _, launch in sorted(cache.batchable.items()))
    ready, due_at = form_batches(waiting, now, may_grow=may_grow)
    shared = [pod for pod in ready if pod[0].role in roles]
    free = max(parallelism - len(cache.live) - (due_at is not None), 0)
    parked = _parked_images(cache)
    have = _pod_counts(cache, parked)
    grant = headroom.grant(have, min(free, cache.startable.count(roles) + len(shared)))
    pulls = FirstPullLimit(headroom, cache.live.starting.values())
    pods = _select_pods(cache, plan, roles, shared, grant.count, pulls)
    is_short = len(pods) < grant.count
    message = grant.message or (pulls.message if is_short else "")
    wanted = 0 if is_short else grant.wanted
    return LaunchSelection(pods, due_at, _usage(have, parked, len(pods), wanted, pulls, message))


def _select_pods(
    cache: DecisionCache,
    plan: RunPlan,
    roles: Collection[Role],
    shared: Collection[PodLaunches],
    count: int,
    pulls: FirstPullLimit,
) -> tuple[PodLaunches, ...]:
    """Return at most ``count`` Pods whose images may be pulled: verifiers before harnesses."""

    def allows(launch: LaunchKey) -> bool:
        return pulls.allows(launch_image(plan, launch))

    def first(role: Role, most: int) -> list[PodLaunches]:
        found = cache.startable.first(role, most, allows) if role in roles else []
        return [(launch,) for launch in found]

    pods = first(Role.VERIFIER, count)
    for pod in shared:
        if len(pods) < count and allows(pod[0]):
            pods.append(pod)
    return (*pods, *first(Role.HARNESS, count - len(pods)))


def _parked_images(cache: DecisionCache) -> Collection[str]:
    """Return the images of the Pods that wait in a queue or for a node, one for each."""
    starting, pods = cache.live.starting, cache.pods
    return [starting[name] for name in {*pods.unschedulable, *pods.gated} if name in starting]


def _pod_counts(cache: DecisionCache, parked: Collection[str]) -> PodCounts:
    starting = len(cache.live.starting)
    return PodCounts(len(cache.live), starting, starting - len(parked))


def _usage(
    have: PodCounts,
    parked: Collection[str],
    begun: int,
    wanted: int,
    pulls: FirstPullLimit,
    message: str,
) -> CapacityUse:
    pulling = pulls.counts - Counter(parked)
    return CapacityUse(
        pods=have.pods + begun,
        starting=have.shared + begun,
        pulling=tuple(sorted(pulling.items())),
        wanted=wanted,
        begun=begun,
        message=message,
        is_pull_held=bool(pulls.message),
    )
