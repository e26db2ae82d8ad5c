"""Which launches a run starts within the operator's limits. Pure.

The limits bound Pods in flight, Pods that start and first pulls of an image. Runs share them by
max-min fairness over whole Pods: a run gets what it wants as long as that is no more than what
every other run gets that wants more. A run that already has more keeps it.

Source: decision 0067.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from securebench.run.decide.attempt import MIN_BATCH_SLOTS, form_batches
from securebench.run.decide.decision_cache import DecisionCache
from securebench.run.observe.pods import PodView
from securebench.run.observe.waiting import has_begun
from securebench.run.plan.model import LaunchKey, Role, RunPlan


class Holding(NamedTuple):
    """What one run has of something that is bounded.

    Attributes:
        held: How many it has, at least 0.
        wanted: How many more it would use now, at least 0.
        served: The turn in which it was served last, 0 for never; decides between equals.
    """

    held: int
    wanted: int = 0
    served: int = 0


@dataclass(frozen=True, slots=True)
class Bound:
    """A limit that all runs share, as seen by one run.

    Attributes:
        limit: How many all runs together may have.
        uid: The run that looks.
        others: What the other runs have, by uid.
        served: The turn in which the run that looks was served last.
    """

    limit: int
    uid: str
    others: Mapping[str, Holding]
    served: int = 0

    def grant(self, held: int, wanted: int) -> int:
        """Return how many more of them the run may take now.

        Args:
            held: How many it has.
            wanted: How many more it would use.
        """
        mine = Holding(held, wanted, self.served)
        return grants(self.limit, {**self.others, self.uid: mine}).get(self.uid, 0)


def grants(limit: int, holdings: Mapping[str, Holding]) -> Mapping[str, int]:
    """Divide what is free.

    Args:
        limit: How many all runs together may have.
        holdings: What each run has and wants, by uid.

    Returns:
        How many more each run may take; one that may take none is left out.

    Invariants:
        The grants are no more than what is free, nor than what is wanted, and as many as both
        allow. Of two runs that want more than they get, neither ends with more than one more than
        the other, unless it had that before.
    """
    free = limit - sum(each.held for each in holdings.values())
    wanting = {uid: each for uid, each in holdings.items() if each.wanted > 0}
    if free <= 0 or not wanting:
        return {}
    if sum(each.wanted for each in wanting.values()) <= free:
        return {uid: each.wanted for uid, each in wanting.items()}
    level = _level(free, wanting)
    given = {uid: _up_to(each, level) for uid, each in wanting.items()}
    next_ones = [uid for uid, each in wanting.items() if _up_to(each, level + 1) > given[uid]]
    next_ones.sort(key=lambda uid: (wanting[uid].served, uid))
    for uid in next_ones[: free - sum(given.values())]:
        given[uid] += 1
    return {uid: count for uid, count in given.items() if count}


def _level(free: int, wanting: Mapping[str, Holding]) -> int:
    """Return the highest number that every run which wants so many can have."""
    low, high = 0, max(each.held + each.wanted for each in wanting.values())
    while low < high:
        middle = (low + high + 1) // 2
        if sum(_up_to(each, middle) for each in wanting.values()) <= free:
            low = middle
        else:
            high = middle - 1
    return low


def _up_to(holding: Holding, level: int) -> int:
    return min(max(level - holding.held, 0), holding.wanted)


POD_MESSAGE = (
    "waiting for a turn: the runs of this operator have {limit} Pods in flight, and "
    "settings.creation.maxPods allows no more"
)
STARTING_MESSAGE = (
    "waiting for a turn: {limit} Pods of this operator's runs are starting, and "
    "settings.creation.maxStarting allows no more"
)
OWN_MESSAGE = (
    "waiting until Pods have started: {limit} of this run are starting, and "
    "settings.creation.maxStartingPerRun allows no more"
)
PULL_MESSAGE = (
    "waiting until the first Pod with image {image} has started: {limit} or more are starting, and "
    "settings.creation.firstPulls allows no more before"
)


@dataclass(frozen=True, slots=True)
class Grant:
    """How many of the Pods that a run wants it may start.

    Attributes:
        count: Pods that may start.
        wanted: Further Pods that would start if the other runs used less.
        message: Which limit keeps the others from starting, or empty.
    """

    count: int
    wanted: int = 0
    message: str = ""


@dataclass(frozen=True, slots=True)
class PodCounts:
    """Pods of a run that are in flight.

    Attributes:
        pods: All of them.
        starting: Those whose main container has not started.
        shared: Those of them that are schedulable; the others wait in a queue or for a node.
    """

    pods: int
    starting: int
    shared: int


@dataclass(frozen=True, slots=True)
class Headroom:
    """What the operator's limits leave to one run at one moment; by default no limit.

    Attributes:
        pods: Pods in flight of all runs, or None.
        starting: Schedulable Pods of all runs that have not started, or None.
        own_starting: Maximum number of this run's Pods that have not started; None: no limit.
        first_pulls: Number of Pods of an image that has not started from which a run may have only
            one; None: no limit.
        started: Images that have started on the nodes of this run.
        pulling: Schedulable Pods of the other runs by image that has not started.
        held_since: Since when the run is throttled, seconds since the epoch, or None.
    """

    pods: Bound | None = None
    starting: Bound | None = None
    own_starting: int | None = None
    first_pulls: int | None = None
    started: Collection[str] = frozenset()
    pulling: Mapping[str, int] = field(default_factory=dict)
    held_since: float | None = None

    def grant(self, have: PodCounts, wanted: int) -> Grant:
        """Return how many more Pods may start.

        Args:
            have: The Pods of the run.
            wanted: How many it would start, at least 0.
        """
        demand, message = wanted, ""
        if not wanted:
            return Grant(0)
        if self.own_starting is not None and have.starting + wanted > self.own_starting:
            demand = max(self.own_starting - have.starting, 0)
            message = OWN_MESSAGE.format(limit=self.own_starting)
        count = demand
        for bound, held, text in (
            (self.pods, have.pods, POD_MESSAGE),
            (self.starting, have.shared, STARTING_MESSAGE),
        ):
            given = bound.grant(held, demand) if bound is not None else demand
            if bound is not None and given < count:
                count, message = given, text.format(limit=bound.limit)
        return Grant(count, demand - count, message)


class FirstPullLimit:
    """Limits the Pods of images that no node is known to have pulled.

    One Pod of each such image is always allowed to a run: another one, whose Pods never start, may
    hold all places of the image. So there are at most as many more Pods of it as there are runs.

    Args:
        headroom: What the operator allows.
        images: Images of the Pods that are starting, one for each.

    Attributes:
        message: Why a Pod was refused, or empty.
        counts: Pods of this run by image that has not started.
    """

    def __init__(self, headroom: Headroom, images: Iterable[str]) -> None:
        self._headroom = headroom
        self.message = ""
        self.counts = Counter(image for image in images if image not in headroom.started)

    def allows(self, image: str) -> bool:
        """Whether one more Pod of an image may start; if so it counts."""
        limit = self._headroom.first_pulls
        if image in self._headroom.started:
            return True
        own = self.counts[image]
        if limit is not None and own and own + self._headroom.pulling.get(image, 0) >= limit:
            self.message = self.message or PULL_MESSAGE.format(image=image, limit=limit)
            return False
        self.counts[image] += 1
        return True


class CapacityUse(NamedTuple):
    """The use of the operator's limits by a run after a decision, and which limit binds.

    Attributes:
        pods: Pods of launches in flight.
        starting: Those that are schedulable and have not started.
        pulling: Schedulable Pods of images that have not started, by image.
        wanted: Further Pods that would start if the other runs used less.
        begun: Pods that the decision starts.
        message: Which limit keeps further Pods from starting, or empty.
        is_pull_held: Whether that limit is the one on first pulls.
    """

    pods: int = 0
    starting: int = 0
    pulling: tuple[tuple[str, int], ...] = ()
    wanted: int = 0
    begun: int = 0
    message: str = ""
    is_pull_held: bool = False


def launch_image(plan: RunPlan, launch: LaunchKey) -> str:
    """Return the image of the main container of a launch's Pod."""
    task = plan.tasks[launch.task]
    if launch.role is Role.HARNESS or task.verification is None:
        return task.environment.image
    return task.verification.environment(plan, task).image


def node_group(plan: RunPlan) -> str:
    """Return a key of the nodes that the Pods of a run may run on."""
    pods = plan.pods
    tolerations = sorted(sorted(map(str, each.items())) for each in pods.tolerations)
    return repr(
        (pods.runtime_class, sorted(pods.node_selector.items()), pods.node_name, tolerations)
    )


def started_images(plan: RunPlan, views: Iterable[PodView | None]) -> Iterator[str]:
    """Yield the images of launches whose main container has started."""
    for view in views:
        launch = view.launch if view is not None and has_begun(view) else None
        if launch is not None and launch.task in plan.tasks:
            yield launch_image(plan, launch)


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
