"""Deletes Pods of a run that have ended: many with one request, which spares every other Pod.

The request names a moment of the past, the Pods' phase and the Pods that stay. So it reaches no Pod
that came later, none that still ran at that moment, and none whose launch is live in the journal,
also where an event about it was lost. Source: decision 0058.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from securebench.cluster.port import Cluster, ObjectKind, WatchExpired
from securebench.controller.actuators.informers import PodInformer
from securebench.core.clock import Clock
from securebench.core.errors import PermanentClusterError, TransientClusterError
from securebench.core.names import ROLE_LABEL, RUN_UID_LABEL
from securebench.run.decide.reconcile import Deletion
from securebench.run.plan.model import Role

logger = logging.getLogger(__name__)

HOLD_SECONDS = 10.0
"""An ended Pod waits so long for others; its containers, address and cgroup are gone already."""

FULL = 100
"""So many ended Pods wait no longer."""

MOST_SPARED = 200
"""Names in one request, whose address would grow too long; with more, Pods go one by one."""

GOING_PHASES = ("Pending", "Running", "Unknown")


class Doomed(NamedTuple):
    """Pods to delete now.

    Attributes:
        alone: Those that go one by one.
        together: Those of one request.
        fields: Its field selector.
        resource_version: The moment that it names.
    """

    alone: Sequence[Deletion] = ()
    together: Sequence[Deletion] = ()
    fields: str = ""
    resource_version: str = ""


class EndedPods:
    """The ended Pods of one run that are to be deleted.

    Args:
        cluster: The run's namespace.
        run_uid: The run.
        informer: Shows the run's Pods, and up to which moment.
        clock: For waits.
    """

    def __init__(self, cluster: Cluster, run_uid: str, informer: PodInformer, clock: Clock) -> None:
        self._cluster = cluster
        roles = f"{Role.HARNESS},{Role.VERIFIER}"
        self._selector = f"{RUN_UID_LABEL}={run_uid},{ROLE_LABEL} in ({roles})"
        self._informer = informer
        self._clock = clock
        self._since: dict[str, float] = {}
        self._tried: set[str] = set()
        self._may_together = True
        self.due_at: float | None = None
        """When Pods that wait for others are due, seconds since the epoch, or None."""

    def due(
        self, ended: Collection[Deletion], live: Collection[str], *, must_hurry: bool
    ) -> Doomed:
        """Return which Pods are deleted now, and how.

        Args:
            ended: All ended Pods that are to be deleted and are still shown.
            live: Names of the Pods of launches that have not ended.
            must_hurry: Whether no further Pod is waited for.
        """
        now = self._clock.now()
        self._tried &= {each.uid for each in ended}
        alone = [each for each in ended if self._is_alone(each)]
        many = [each for each in ended if not self._is_alone(each)]
        self._since = {each.uid: self._since.get(each.uid, now) for each in many}
        due_at = min(self._since.values(), default=now) + HOLD_SECONDS
        is_due = must_hurry or len(many) >= FULL or now >= due_at
        self.due_at = due_at if many and not is_due else None
        if not many or not is_due:
            return Doomed(alone)
        spared = self._spared(many, live)
        if len(many) == 1 or len(spared) > MOST_SPARED:
            return Doomed([*alone, *many])
        return Doomed(alone, many, _fields(spared), self._informer.resource_version)

    async def delete(self, due: Doomed) -> bool:
        """Delete Pods with one request; one that is still shown afterwards goes alone.

        Returns:
            Whether the request was answered well.
        """
        self._tried |= {each.uid for each in due.together}
        try:
            await self._cluster.delete_collection(
                ObjectKind.POD, self._selector, due.fields, due.resource_version
            )
        except (TransientClusterError, WatchExpired) as error:
            logger.warning("ended Pods were not deleted together: %s", error)
        except PermanentClusterError as error:
            logger.warning("ended Pods are deleted one by one: %s", error)
            self._may_together = False
        else:
            return True
        return False

    def _is_alone(self, deletion: Deletion) -> bool:
        return not self._may_together or deletion.uid in self._tried

    def _spared(self, many: Collection[Deletion], live: Collection[str]) -> set[str]:
        gone = {each.name for each in many}
        shown = (view for view in self._informer.pods.values() if view.launch is not None)
        stay = {view.name for view in shown if view.is_terminal and view.name not in gone}
        return stay | set(live)


def _fields(spared: Iterable[str]) -> str:
    phases = (f"status.phase!={phase}" for phase in GOING_PHASES)
    return ",".join((*phases, *(f"metadata.name!={name}" for name in sorted(spared))))
