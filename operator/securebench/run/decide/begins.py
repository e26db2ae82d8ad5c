"""Which launches of a run begin now. Pure."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from securebench.run.decide.batches import FEWEST_SLOTS, batches
from securebench.run.decide.room import FirstPulls, Headroom, PodUse, Starting, launch_image
from securebench.run.decide.standing import Standing
from securebench.run.plan.model import LaunchKey, Role, RunPlan

PodLaunches = tuple[LaunchKey, ...]


class Begun(NamedTuple):
    """What begins.

    Attributes:
        pods: The launches, by Pod.
        due_at: When those that wait for company begin without it, or None.
        usage: What the run has then.
    """

    pods: tuple[PodLaunches, ...]
    due_at: float | None
    usage: PodUse


def nothing_begins(standing: Standing) -> Begun:
    """Return that a run begins nothing, and would not if it had room."""
    have, pulls = _starting(standing), FirstPulls(Headroom(), standing.live.starting.values())
    return Begun((), None, _usage(have, 0, 0, pulls, ""))


def beginning(
    standing: Standing,
    plan: RunPlan,
    roles: Collection[Role],
    now: float,
    parallelism: int,
    room: Headroom,
) -> Begun:
    """Choose which launches begin: attempts that are under way come before new ones.

    Args:
        standing: What was decided about the attempts.
        plan: The run.
        roles: Those whose Pods find the network that they need.
        now: Seconds since the epoch.
        parallelism: Pods in flight that the user allows.
        room: What the operator allows.
    """
    has_company = bool(standing.company) and parallelism >= FEWEST_SLOTS
    waiting = (sealed for _, sealed in sorted(standing.sealed.items()))
    ready, due_at = batches(waiting, now, has_company=has_company)
    shared = [pod for pod in ready if pod[0].role in roles]
    free = max(parallelism - len(standing.live) - (due_at is not None), 0)
    have = _starting(standing)
    grant = room.grant(have, min(free, standing.begins.count(roles) + len(shared)))
    pulls = FirstPulls(room, standing.live.starting.values())
    pods = _chosen(standing, plan, roles, shared, grant.count, pulls)
    is_short = len(pods) < grant.count
    words = grant.words or (pulls.words if is_short else "")
    wanted = 0 if is_short else grant.wanted
    return Begun(pods, due_at, _usage(have, len(pods), wanted, pulls, words))


def _chosen(
    standing: Standing,
    plan: RunPlan,
    roles: Collection[Role],
    shared: Collection[PodLaunches],
    count: int,
    pulls: FirstPulls,
) -> tuple[PodLaunches, ...]:
    """Return the first so many Pods whose images may be pulled: verifiers before harnesses."""

    def allows(launch: LaunchKey) -> bool:
        return pulls.allows(launch_image(plan, launch))

    def first(role: Role, most: int) -> list[PodLaunches]:
        found = standing.begins.first(role, most, allows) if role in roles else []
        return [(launch,) for launch in found]

    pods = first(Role.VERIFIER, count)
    for pod in shared:
        if len(pods) < count and allows(pod[0]):
            pods.append(pod)
    return (*pods, *first(Role.HARNESS, count - len(pods)))


def _starting(standing: Standing) -> Starting:
    live, shown = standing.live, standing.pods
    apart = sum(1 for name in {*shown.stuck, *shown.queued} if name in live.starting)
    return Starting(len(live), len(live.starting), len(live.starting) - apart)


def _usage(have: Starting, begun: int, wanted: int, pulls: FirstPulls, words: str) -> PodUse:
    return PodUse(
        pods=have.pods + begun,
        starting=have.shared + begun,
        pulling=tuple(sorted(pulls.counts.items())),
        wanted=wanted,
        begun=begun,
        words=words,
        is_pull_held=bool(pulls.words),
    )
