"""The operator's limits for one run: Pods in flight, Pods that start, first pulls. Pure.

Source: decision 0067.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from securebench.run.decide.capacity.shares import Bound
from securebench.run.observe.pods import PodView
from securebench.run.observe.waiting import has_begun
from securebench.run.plan.keys import LaunchKey, Role
from securebench.run.plan.model import RunPlan, VerifierKind

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
    is_text = launch.role is Role.VERIFIER and task.verifier is VerifierKind.TEXT
    return plan.pods.text_verifier_image if is_text else task.image


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
