"""Deletes Pods of a run that have ended: many with one request, which reaches no other Pod.

The request names a resource version of the past, the Pods' phase and the Pods that stay. So it
reaches no Pod that came later, none that still ran at that version, and none whose launch is live
in the journal, also where an event about it was lost. Source: decision 0058.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

from securebench.clock import Clock
from securebench.cluster.port import Cluster, ObjectKind, WatchExpired
from securebench.controller.actuators.informers import PodInformer
from securebench.errors import PermanentClusterError, TransientClusterError
from securebench.names import ROLE_LABEL, RUN_UID_LABEL
from securebench.run.decide.reconcile import Deletion
from securebench.run.plan.keys import Role

logger = logging.getLogger(__name__)

BATCH_SECONDS = 10.0
"""An ended Pod waits so long for others; its containers, address and cgroup are gone already."""

PHASE_SECONDS = 10.0
"""A Pod whose containers have ended waits so long for its phase, which the kubelet reports one to
three seconds later."""

BATCH_PODS = 100
"""So many ended Pods wait no longer."""

MAX_EXCLUDED = 200
"""Names in one request, whose address would grow too long; with more, Pods go one by one."""

UNFINISHED_PHASES = ("Pending", "Running", "Unknown")


class DeleteBatch(NamedTuple):
    """Pods to delete now.

    Attributes:
        single: Those that go one by one.
        collection: Those of one request.
        fields: Its field selector.
        resource_version: Only Pods that were there at that version are meant.
    """

    single: Sequence[Deletion] = ()
    collection: Sequence[Deletion] = ()
    fields: str = ""
    resource_version: str = ""


class _Groups(NamedTuple):
    """Pods that go one by one, those that go together, and those whose phase is to be seen."""

    single: list[Deletion]
    many: list[Deletion]
    going: list[Deletion]


class EndedPods:
    """The ended Pods of one run that are to be deleted.

    Args:
        cluster: The run's namespace.
        run_uid: The run.
        informer: Shows the run's Pods, and up to which resource version.
        clock: For waits, its monotonic time.
    """

    def __init__(self, cluster: Cluster, run_uid: str, informer: PodInformer, clock: Clock) -> None:
        self._cluster = cluster
        roles = f"{Role.HARNESS},{Role.VERIFIER}"
        self._selector = f"{RUN_UID_LABEL}={run_uid},{ROLE_LABEL} in ({roles})"
        self._informer = informer
        self._clock = clock
        self._since: dict[str, float] = {}
        self._tried: set[str] = set()
        self._may_delete_collection = True
        self.due_at: float | None = None
        """When Pods that wait for others are due, monotonic seconds, or None."""

    def due(
        self, ended: Collection[Deletion], live: Collection[str], *, is_urgent: bool
    ) -> DeleteBatch:
        """Return which Pods are deleted now, and how.

        Args:
            ended: All ended Pods that are to be deleted and are still shown.
            live: Names of the Pods of launches that have not ended.
            is_urgent: Whether nothing is waited for, no further Pod and no phase.
        """
        now = self._clock.monotonic()
        self._tried &= {each.uid for each in ended}
        self._since = {each.uid: self._since.get(each.uid, now) for each in ended}
        single, many, going = self._grouped(ended, now, is_urgent=is_urgent)
        batch_at, phase_at = self._due_at(many, BATCH_SECONDS), self._due_at(going, PHASE_SECONDS)
        is_due = is_urgent or len(many) >= BATCH_PODS or now >= batch_at
        next_at = phase_at if is_due else min(batch_at, phase_at)
        self.due_at = next_at if next_at < inf else None
        if not many or not is_due:
            return DeleteBatch(single)
        excluded = self._excluded(many, live)
        if len(many) == 1 or len(excluded) > MAX_EXCLUDED:
            return DeleteBatch([*single, *many])
        return DeleteBatch(single, many, _fields(excluded), self._informer.resource_version)

    async def delete(self, batch: DeleteBatch) -> bool:
        """Delete Pods with one request; one that is still shown afterwards goes alone.

        Returns:
            Whether the request was answered well.
        """
        self._tried |= {each.uid for each in batch.collection}
        try:
            await self._cluster.delete_collection(
                ObjectKind.POD, self._selector, batch.fields, batch.resource_version
            )
        except (TransientClusterError, WatchExpired) as error:
            logger.warning("ended Pods were not deleted together: %s", error)
        except PermanentClusterError as error:
            logger.warning("ended Pods are deleted one by one: %s", error)
            self._may_delete_collection = False
        else:
            return True
        return False

    def _grouped(self, ended: Iterable[Deletion], now: float, *, is_urgent: bool) -> _Groups:
        groups = _Groups([], [], [])
        for each in ended:
            view = self._informer.pods.get(each.name)
            if view is None or view.is_terminal:
                is_alone = self._is_deleted_singly(each)
                (groups.single if is_alone else groups.many).append(each)
            elif not is_urgent and now < self._since[each.uid] + PHASE_SECONDS:
                groups.going.append(each)
            else:
                groups.single.append(replace(each, at_once=True))
        return groups

    def _due_at(self, pods: Iterable[Deletion], wait_seconds: float) -> float:
        """Return when the first of some Pods has waited, monotonic seconds; without one, never."""
        return min((self._since[each.uid] for each in pods), default=inf) + wait_seconds

    def _is_deleted_singly(self, deletion: Deletion) -> bool:
        return not self._may_delete_collection or deletion.uid in self._tried

    def _excluded(self, many: Collection[Deletion], live: Collection[str]) -> set[str]:
        deleted = {each.name for each in many}
        shown = (view for view in self._informer.pods.values() if view.launch is not None)
        stay = {view.name for view in shown if view.is_terminal and view.name not in deleted}
        return stay | set(live)


def _fields(excluded: Iterable[str]) -> str:
    phases = (f"status.phase!={phase}" for phase in UNFINISHED_PHASES)
    return ",".join((*phases, *(f"metadata.name!={name}" for name in sorted(excluded))))
