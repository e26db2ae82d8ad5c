"""Deletes the Pods of one run in the background; a deletion is repeated, but not at once."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable

from securebench.cluster.port import ObjectKind
from securebench.controller.actuators.background_tasks import BackgroundTasks
from securebench.controller.actuators.create_retries import RETRY_LIMIT_SECONDS, RETRY_SECONDS
from securebench.controller.actuators.ended_pods import DeleteBatch, EndedPods
from securebench.controller.actuators.informers import PodInformer
from securebench.controller.context import Context
from securebench.controller.loop_tasks import RetryQueue
from securebench.errors import PermanentClusterError, TransientClusterError
from securebench.run.decide.canary import PROBING
from securebench.run.decide.reconcile import Deletion
from securebench.run.observe.pods import PodView

logger = logging.getLogger(__name__)

DELETE_AGAIN_SECONDS = 30.0
"""Pause before a Pod is deleted again that is still shown; its event may have been lost."""

COLLECTION = "ended Pods"
"""Names the request for many Pods among what is under way; no name of an object."""


class PodDeleter:
    """Deletes Pods.

    Args:
        context: Shared parts of the operator: the namespace and the clock.
        run_uid: Owner of the Pods.
        tasks: What is under way for the run.
        informer: Shows the run's Pods.
    """

    def __init__(
        self, context: Context, run_uid: str, tasks: BackgroundTasks, informer: PodInformer
    ) -> None:
        self._cluster = context.cluster
        self._tasks = tasks
        self._ended = EndedPods(context.cluster, run_uid, informer, context.clock)
        monotonic = context.clock.monotonic
        self._queue = RetryQueue[str](monotonic, RETRY_SECONDS, RETRY_LIMIT_SECONDS)
        self._refused: set[str] = set()

    def delete_all(
        self, deletions: Iterable[Deletion], live: Collection[str], *, is_urgent: bool
    ) -> None:
        """Begin to delete Pods: those that have ended together, and not before it is worth it.

        Args:
            deletions: All Pods to delete.
            live: Names of the Pods of launches that have not ended, as the journal has it.
            is_urgent: Whether ended Pods do not wait for others.
        """
        wanted = tuple(deletions)
        batch = DeleteBatch()
        if not self._tasks.has(COLLECTION):
            ended = [each for each in wanted if not each.at_once]
            batch = self._ended.due(ended, live, is_urgent=is_urgent or not live)
        for deletion in (*(each for each in wanted if each.at_once), *batch.single):
            self.delete(deletion)
        if batch.collection:
            self._tasks.start(COLLECTION, self._delete_collection(batch))

    def delete(self, deletion: Deletion) -> None:
        """Begin to delete a Pod, unless that is under way or was done shortly before."""
        if not self._tasks.has(deletion.name) and self._queue.is_due(deletion.uid):
            self._tasks.start(deletion.name, self._delete(deletion))

    async def sweep(self, views: Iterable[PodView]) -> None:
        """Delete every Pod of a launch that has not ended, and every probing Pod.

        Raises:
            ClusterError: The API server did not answer.
        """
        for view in list(views):
            is_running = view.launch is not None and not view.has_ended
            if is_running or view.role in PROBING:
                await self._cluster.delete(ObjectKind.POD, view.name, uid=view.uid, grace_seconds=1)

    def next_after(self, since: float) -> float | None:
        """Return the first time later than ``since`` at which Pods are deleted, or None.

        Args:
            since: Monotonic seconds.
        """
        times = (self._queue.next_after(since), self._ended.due_at)
        return min((at for at in times if at is not None and at > since), default=None)

    def acknowledge(self, views: Iterable[PodView]) -> None:
        """Forget deletions of Pods that are gone.

        Args:
            views: All Pods that are there.
        """
        if not self._queue.keys:
            return
        uids = {view.uid for view in views}
        self._queue.keep(uids)
        self._refused &= uids

    async def _delete_collection(self, batch: DeleteBatch) -> None:
        is_done = await self._ended.delete(batch)
        for deletion in batch.collection:
            if is_done:
                self._accept(deletion)
            else:
                self._queue.retry(deletion.uid)

    async def _delete(self, deletion: Deletion) -> None:
        try:
            await self._cluster.delete(
                ObjectKind.POD,
                deletion.name,
                uid=deletion.uid,
                grace_seconds=1 if deletion.at_once else None,
            )
        except TransientClusterError as error:
            self._queue.retry(deletion.uid, error.retry_after_seconds)
        except PermanentClusterError as error:
            self._queue.retry(deletion.uid)
            self._warn(deletion, error)
        else:
            self._accept(deletion)

    def _accept(self, deletion: Deletion) -> None:
        """Record that the server deletes a Pod; the watch will show it."""
        self._queue.forget(deletion.uid)
        self._queue.wait(deletion.uid, DELETE_AGAIN_SECONDS)

    def _warn(self, deletion: Deletion, error: PermanentClusterError) -> None:
        """Say once of a Pod that its deletion is refused, as by a webhook that denies it."""
        if deletion.uid not in self._refused:
            logger.warning("Pod %s is not deleted: %s", deletion.name, error)
        self._refused.add(deletion.uid)
