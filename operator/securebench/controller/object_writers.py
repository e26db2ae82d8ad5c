"""Creates and deletes the objects of one run, with shared tracking of requests in flight.

Creates run in the background until the answer is definite: one that had no answer, was over quota
or was refused is repeated, and the run's status says why. Deletions are repeated too, but not at
once. Pods that have ended are deleted many with one request, which names a resource version of the
past, the Pods' phase and the Pods that stay. So it reaches no Pod that came later, none that still
ran at that version, and none whose launch is live in the journal, also where an event about it was
lost (decision 0058).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from math import inf
from typing import NamedTuple

from securebench.clock import Clock
from securebench.cluster.port import (
    AlreadyExists,
    Cluster,
    Forbidden,
    ObjectKind,
    QuotaExceeded,
    Raw,
    WatchExpired,
    metadata,
)
from securebench.controller.context import Context
from securebench.controller.informers import PodInformer
from securebench.controller.loop_tasks import RetryQueue
from securebench.errors import ClusterError, PermanentClusterError, TransientClusterError
from securebench.names import ROLE_LABEL, RUN_UID_LABEL
from securebench.run.decide.canary import PROBING
from securebench.run.decide.reconcile import Deletion
from securebench.run.decide.refusals import RefusedCreate, refused_again
from securebench.run.decide.waits import ObservedWrites, Throttled
from securebench.run.observe.pods import PodView
from securebench.run.plan.model import LaunchKey, Role, pod_name

logger = logging.getLogger(__name__)


class BackgroundTasks:
    """Runs at most one task per name.

    Args:
        on_change: Called when a task has ended.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def has(self, name: str) -> bool:
        """Whether the task of that name runs or is not reaped yet."""
        return name in self._tasks

    def start(self, name: str, work: Coroutine[object, object, None]) -> None:
        """Start a task; there must be none of that name."""
        task = asyncio.create_task(work, name=name)
        self._tasks[name] = task
        task.add_done_callback(lambda _: self._on_change())

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._tasks

    def reap(self) -> BaseException | None:
        """Remove ended tasks; return the first error that a task did not handle itself."""
        for name, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[name]
                if not task.cancelled() and (error := task.exception()) is not None:
                    return error
        return None

    async def close(self) -> None:
        """Cancel all tasks; a create without an answer is repeated after a restart."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


RETRY_SECONDS = 2.0
RETRY_LIMIT_SECONDS = 30.0
"""Pause before a request without a definite answer is repeated; doubled each time up to the limit.
"""

QUOTA_RETRY_SECONDS = 10.0
"""Pause before a create that the namespace's quota refused is repeated."""


class CreateRetries:
    """The back-off of every create of one run, by the name of its object.

    Args:
        clock: For pauses, its monotonic time.
        refusal_seconds: For how long a create is repeated that rights or admission refuse.
    """

    def __init__(self, clock: Clock, refusal_seconds: float) -> None:
        self._clock = clock
        self._refusal_seconds = refusal_seconds
        self._queue = RetryQueue[str](clock.monotonic, RETRY_SECONDS, RETRY_LIMIT_SECONDS)
        self._errors: dict[str, str] = {}
        self._quotas: dict[str, str] = {}
        self._refused: dict[str, RefusedCreate] = {}
        self._refusal = ""

    @property
    def pending(self) -> Collection[str]:
        """Names of objects whose create has no definite answer."""
        return self._queue.keys

    @property
    def refusal(self) -> str:
        """The message after a create was refused permanently, or empty."""
        return self._refusal

    @property
    def error(self) -> str:
        """Why the last create of an object that is still wanted had no answer, or empty."""
        return next((message for name, message in self._errors.items() if name in self.pending), "")

    @property
    def quota(self) -> str:
        """The server's message while a quota refuses a create that is still wanted, or empty."""
        return next((message for name, message in self._quotas.items() if name in self.pending), "")

    @property
    def forbidden(self) -> str:
        """Message of the oldest refused create that is still wanted, or empty."""
        wanted = (each.message for name, each in self._refused.items() if name in self.pending)
        return next(wanted, "")

    @property
    def blocked(self) -> str:
        """Why a create that is still wanted has to wait for room or rights, or empty."""
        return self.quota or self.forbidden

    def is_due(self, name: str) -> bool:
        """Whether a create does not have to wait."""
        return self._queue.is_due(name)

    def next_after(self, since: float) -> float | None:
        """Return the first time later than ``since`` at which a create is due, or None.

        Args:
            since: Monotonic seconds.
        """
        return self._queue.next_after(since)

    def mark_pending(self, name: str) -> None:
        """Add a create that an earlier process may have sent."""
        self._queue.add(name)

    def begin(self, name: str) -> None:
        """Note that a create is sent."""
        self._queue.begin(name)

    def wait(self, name: str, seconds: float) -> None:
        """Delay the next try of a create, whatever the outcome of the last."""
        self._queue.wait(name, seconds)

    def acknowledge(self, shown: Collection[str], vanished: Collection[str]) -> None:
        """Forget creates whose outcome the cluster shows by now.

        Args:
            shown: Names of Pods that are there.
            vanished: Names of Pods that were there.
        """
        for name in list(self.pending):
            if name in shown or name in vanished:
                self.resolve(name)

    def resolve(self, name: str) -> None:
        """Forget the retries of an object: its create has a definite answer."""
        self._queue.forget(name)
        for messages in (self._quotas, self._refused, self._errors):
            messages.pop(name, None)

    def record_refusal(self, name: str, what: str, error: Forbidden) -> RefusedCreate:
        """Note that authorization or admission refused an object.

        Args:
            name: Name of the object, by which later refusals of it are found.
            what: Its kind and name.

        Returns:
            When it is tried again, if at all.
        """
        known, now = self._refused.get(name), self._clock.monotonic()
        found = refused_again(known, f"{what}: {error.reason}", now, self._refusal_seconds)
        self._refused[name] = found
        if found.again_at is None:
            self._queue.begin(name)
        else:
            self._queue.wait(name, found.again_at - now)
        return found

    async def try_create(
        self, name: str, what: str, create: Callable[[], Awaitable[None]]
    ) -> ClusterError | None:
        """Create an object, and record the outcome.

        Args:
            what: Its kind and name.
            create: Creates it or finds it.

        Returns:
            The server's error, or None.
        """
        try:
            await create()
        except Forbidden as error:
            found = self.record_refusal(name, what, error)
            self._refusal = self._refusal if found.again_at else found.message
            return error
        except QuotaExceeded as error:
            self.resolve(name)
            self._quotas[name] = error.reason
            self.wait(name, QUOTA_RETRY_SECONDS)
            return error
        except TransientClusterError as error:
            self._refused.pop(name, None)
            self._errors[name] = f"{what}: {error.reason}"
            self._queue.retry(name, error.retry_after_seconds)
            return error
        except PermanentClusterError as error:
            self._refusal = error.reason
            return error
        self.resolve(name)
        return None


RATE_MESSAGE = (
    "waiting for a turn: the operator creates {per_second:g} Pods a second, one run after the "
    "other, and settings.creation.perSecond allows no more"
)


class ObjectCreator:
    """Creates Pods, network policies and a Service.

    Args:
        context: Shared parts of the operator: the namespace, the rate of creates, the clock.
        run_uid: Owner of the objects.
        tasks: What is under way for the run.
        retries: When a create is repeated.
    """

    def __init__(
        self, context: Context, run_uid: str, tasks: BackgroundTasks, retries: CreateRetries
    ) -> None:
        self._cluster = context.cluster
        self._rate = context.rate
        self._clock = context.clock
        self._per_second = context.settings.creation.per_second
        self._queued: dict[str, float] = {}
        self._run_uid = run_uid
        self._tasks = tasks
        self._retries = retries

    def mark_pending(self, launch: LaunchKey) -> None:
        """Name a launch whose create may or may not have happened before a restart."""
        self._retries.mark_pending(pod_name(self._run_uid, launch))

    def create_launch(
        self,
        launch: LaunchKey,
        manifest: Callable[[], Awaitable[Raw]],
        created: Callable[[Raw], None],
    ) -> None:
        """Begin to create a launch's Pod, unless that is under way or has to wait.

        Args:
            launch: It is in the journal.
            manifest: Prepares the volume and returns the Pod; called in the background.
            created: Gets the Pod as the server stored it.
        """
        self.create_pod(pod_name(self._run_uid, launch), manifest, created)

    def create_pod(
        self, name: str, manifest: Callable[[], Awaitable[Raw]], created: Callable[[Raw], None]
    ) -> None:
        """Do the same for a Pod of another role; the arguments are those of ``create_launch``."""
        if self.may_create(name):
            self._retries.begin(name)
            self._tasks.start(name, self._create_pod(name, manifest, created))

    def create_object(
        self, name: str, create: Callable[[], Awaitable[None]], *, pause_seconds: float = 0.0
    ) -> None:
        """Begin to create an object that is no Pod, unless that is under way or has to wait.

        Args:
            name: Kind and name.
            create: Creates it or finds it; repeated until the answer is definite.
            pause_seconds: Before which it is not created again, whatever becomes of it.
        """
        if self.may_create(name):
            self._retries.begin(name)
            self._tasks.start(name, self._create_object(name, create, pause_seconds))

    @property
    def throttled(self) -> Throttled:
        """What Pods of the run wait for that have no turn yet."""
        since = next(iter(self._queued.values()), None)
        if since is None:
            return Throttled()
        return Throttled(RATE_MESSAGE.format(per_second=self._per_second), since)

    def may_create(self, name: str) -> bool:
        """Whether a create of this object is neither under way nor has to wait."""
        return not self._tasks.has(name) and self._retries.is_due(name)

    async def _create_pod(
        self, name: str, manifest: Callable[[], Awaitable[Raw]], created: Callable[[Raw], None]
    ) -> None:
        body = await manifest()
        await self._take_turn(name)

        async def create() -> None:
            created(await create_or_find(self._cluster, ObjectKind.POD, body, self._run_uid))

        await self._retries.try_create(name, f"Pod {name}", create)

    async def _create_object(
        self, name: str, create: Callable[[], Awaitable[None]], pause_seconds: float
    ) -> None:
        error = await self._retries.try_create(name, name, create)
        if error is None and pause_seconds:
            self._retries.wait(name, pause_seconds)

    async def _take_turn(self, name: str) -> None:
        self._queued[name] = self._clock.now()
        try:
            await self._rate.acquire(self._run_uid)
        finally:
            del self._queued[name]


async def create_or_find(cluster: Cluster, kind: ObjectKind, manifest: Raw, run_uid: str) -> Raw:
    """Return a run's object, which is created where it is not there.

    Raises:
        PermanentClusterError: The server refuses it, or the name is taken by somebody else's.
        TransientClusterError: There is no definite answer.
    """
    try:
        return await cluster.create(kind, manifest)
    except AlreadyExists:
        return await find_own(cluster, kind, object_name(manifest), run_uid)


async def find_own(cluster: Cluster, kind: ObjectKind, name: str, run_uid: str) -> Raw:
    """Return a run's object that was there a moment ago.

    Raises:
        PermanentClusterError: It is somebody else's.
        TransientClusterError: It is gone, or there is no answer.
    """
    found = await cluster.get(kind, name)
    if found is None:
        raise TransientClusterError(f"{kind.value} {name} was there and is gone")
    if not is_owned_by(found, run_uid):
        raise PermanentClusterError(
            f"a {kind.value} named {name} exists that is not this run's; delete it",
            status=HTTPStatus.CONFLICT,
        )
    return found


def object_name(manifest: Raw) -> str:
    """Return the name of an object."""
    return str(metadata(manifest)["name"])


def is_owned_by(raw: Raw, uid: str) -> bool:
    """Return whether an object belongs to a run."""
    owners = metadata(raw).get("ownerReferences")
    return isinstance(owners, list) and any(
        isinstance(owner, Mapping) and owner.get("uid") == uid for owner in owners
    )


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


class EndedPods:
    """The ended Pods of one run that are to be deleted.

    Args:
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

    def _grouped(
        self, ended: Iterable[Deletion], now: float, *, is_urgent: bool
    ) -> tuple[list[Deletion], list[Deletion], list[Deletion]]:
        """Return Pods that are deleted singly, together, and once their phase is known."""
        single: list[Deletion] = []
        many: list[Deletion] = []
        going: list[Deletion] = []
        for each in ended:
            view = self._informer.pods.get(each.name)
            if view is None or view.is_terminal:
                is_alone = self._is_deleted_singly(each)
                (single if is_alone else many).append(each)
            elif not is_urgent and now < self._since[each.uid] + PHASE_SECONDS:
                going.append(each)
            else:
                single.append(replace(each, at_once=True))
        return single, many, going

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


class ObjectWriters:
    """Creator and deleter of one run, and when they are to be asked again.

    Args:
        context: Shared parts of the operator: the namespace, rate of creates, clock, settings.
        on_change: Called when something ended.

    Attributes:
        tasks: What is under way.
        retries: When creates are repeated, and why.
    """

    def __init__(
        self, context: Context, run_uid: str, informer: PodInformer, on_change: Callable[[], None]
    ) -> None:
        self._clock = context.clock
        self._informer = informer
        self._observed_at = 0.0
        self.tasks = BackgroundTasks(on_change)
        self.retries = CreateRetries(context.clock, context.settings.launch.refusal_seconds)
        self.creator = ObjectCreator(context, run_uid, self.tasks, self.retries)
        self.deleter = PodDeleter(context, run_uid, self.tasks, informer)

    def observe(self) -> ObservedWrites:
        """Record which requests have ended and what the cluster shows of their objects.

        Raises:
            Exception: What a task met that is not the cluster's fault.
        """
        failure = self.tasks.reap()
        if failure is not None:
            raise failure
        self._observed_at = self._clock.monotonic()
        self.retries.acknowledge(self._informer.pods, self._informer.vanished)
        self.deleter.acknowledge(self._informer.pods.values())
        return ObservedWrites(
            refusal=self.retries.refusal,
            trouble=self.retries.error,
            quota=self.retries.quota,
            forbidden=self.retries.forbidden,
            is_idle=self.tasks.is_idle,
            rate=self.creator.throttled,
        )

    def next_try(self) -> float | None:
        """Return when the next create or deletion is due, monotonic seconds, or None.

        One that was due at the last look and was not begun is left out: nobody wants it.
        """
        since = self._observed_at
        times = (self.retries.next_after(since), self.deleter.next_after(since))
        return min((at for at in times if at is not None), default=None)
