"""What keeps a run from going on for now, as its status says it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from typing import NamedTuple, TypeVar

from securebench.run.api.conditions import Reason
from securebench.run.observe.pods import PodView
from securebench.run.observe.waiting import Waiting, pod_waiting, run_waiting
from securebench.run.plan.model import Role
from securebench.run.state.attempts import AttemptHistory

T = TypeVar("T")

LATER_SECONDS = 5.0
"""A wait between two tasks is told when it lasts so long; every wait before the first is told."""

TELL_SECONDS = 1.0
"""Between two looks at what a canary waits for."""

CANARY_WORDS = "waiting for the isolation canary"


class Obstacle(NamedTuple):
    """What keeps a run from going on for now.

    Attributes:
        reason: Reason of ``Succeeded``.
        message: The words of the cluster.
        changes_at: When the words grow old without any event, seconds since the epoch, or None.
    """

    reason: Reason
    message: str
    changes_at: float | None = None


def pods_obstacle(
    pods: Collection[PodView], attempts: Collection[AttemptHistory], now: float
) -> Obstacle | None:
    """Return what the run's Pods wait for, or None while one of them works.

    Args:
        pods: All Pods of the run.
        attempts: All attempts of the run.
        now: Seconds since the epoch.
    """
    for view in pods:
        if view.unschedulable:
            return Obstacle(Reason.UNSCHEDULABLE, view.unschedulable)
    found = run_waiting(pods, attempts, now)
    if found is None:
        return None
    if all(each.finish is None and each.production is None for each in attempts):
        return Obstacle(Reason.STARTING, *found)
    told_at = max((view.created_at for view in pods), default=0.0) + LATER_SECONDS
    return Obstacle(Reason.RUNNING, *(found if now >= told_at else Waiting("", told_at)))


def canary_words(pods: Iterable[PodView], now: float) -> str:
    """Return what the canary, or the control Pod beside it, waits for; empty once both run."""
    probing = (view for view in pods if view.role in {Role.CANARY, Role.CONTROL})
    waits = (pod_waiting(view, now) for view in sorted(probing, key=lambda view: view.name))
    return next((found.words for found in waits if found is not None), "")


async def while_telling(work: Coroutine[None, None, T], tell: Callable[[], Awaitable[None]]) -> T:
    """Do some work and tell once a second how it stands; return what the work returned."""
    task = asyncio.ensure_future(work)
    try:
        while not task.done():
            await tell()
            await asyncio.wait({task}, timeout=TELL_SECONDS)
        return task.result()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
