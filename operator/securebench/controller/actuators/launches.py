"""Carries out what a run decides: creates until the answer is definite, deletes Pods once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field

from securebench.cluster.port import (
    AlreadyExists,
    Cluster,
    Forbidden,
    ObjectKind,
    QuotaExceeded,
    Raw,
    metadata,
)
from securebench.controller.actuators.ended_pods import Doomed, EndedPods
from securebench.controller.runtime.context import Context
from securebench.core.errors import ClusterError, PermanentClusterError, TransientClusterError
from securebench.run.decide.canary import PROBING
from securebench.run.decide.reconcile import Deletion
from securebench.run.decide.refusals import RefusedCreate, refused_again
from securebench.run.observe.pods import PodView
from securebench.run.plan.model import LaunchKey, pod_name

RETRY_SECONDS = 2.0
"""Pause before a create without a definite answer is repeated."""

QUOTA_RETRY_SECONDS = 10.0
"""Pause before a create that the namespace's quota refused is repeated."""

DELETE_AGAIN_SECONDS = 30.0
"""Pause before a Pod is deleted again that is still shown; its event may have been lost."""

TOGETHER = "ended Pods"
"""Stands for their deletion among the names of what is under way; no name of an object."""


@dataclass(slots=True)
class LaunchState:
    """What is known of creates that are on their way.

    Attributes:
        pending: Names whose create has no definite answer, with the time to try again.
        troubles: By name of an object that is no Pod: why its last create had no answer.
        quotas: By name of an object: the server's words while a quota refuses it.
        refused: By name of an object: what is known while rights or admission refuse it.
        refusal: What is said after a create was refused for good, or empty.
    """

    pending: dict[str, float] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)
    quotas: dict[str, str] = field(default_factory=dict)
    refused: dict[str, RefusedCreate] = field(default_factory=dict)
    refusal: str = ""

    @property
    def trouble(self) -> str:
        """The oldest of ``troubles``, or empty."""
        return next(iter(self.troubles.values()), "")

    @property
    def quota(self) -> str:
        """The oldest of ``quotas`` whose create is still wanted, or empty."""
        return next((words for name, words in self.quotas.items() if name in self.pending), "")

    @property
    def forbidden(self) -> str:
        """What is said of the oldest of ``refused`` whose create is still wanted, or empty."""
        wanted = (each.message for name, each in self.refused.items() if name in self.pending)
        return next(wanted, "")

    @property
    def held(self) -> str:
        """Why a create that is still wanted has to wait, or empty."""
        return self.quota or self.forbidden


class Launcher:
    """Creates and deletes the objects of one run: Pods, network policies, a Service.

    Args:
        context: Shared parts of the operator: the namespace, rate of creates, clock, settings.
        run_uid: Owner of the Pods.
        on_change: Called when something ended.
        ended: Deletes Pods that have ended.
    """

    def __init__(
        self, context: Context, run_uid: str, on_change: Callable[[], None], ended: EndedPods
    ) -> None:
        self._cluster = context.cluster
        self._run_uid = run_uid
        self._bucket = context.bucket
        self._clock = context.clock
        self._refusal_seconds = context.settings.launch.refusal_seconds
        self._on_change = on_change
        self._ended = ended
        self._busy: dict[str, asyncio.Task[None]] = {}
        self._delete_again: dict[str, float] = {}
        self._settled_at = 0.0
        self.state = LaunchState()

    def mark_pending(self, launch: LaunchKey) -> None:
        """Name a launch whose create may or may not have happened before a restart."""
        self.state.pending.setdefault(pod_name(self._run_uid, launch), 0.0)

    def create(
        self,
        launch: LaunchKey,
        manifest: Callable[[], Awaitable[Raw]],
        saw: Callable[[Raw], None],
    ) -> None:
        """Begin to create a launch's Pod, unless that is under way or has to wait.

        Args:
            launch: Its launch is in the journal.
            manifest: Prepares the volume and returns the Pod; called in the background.
            saw: Gets the Pod as the server stored it.
        """
        self.create_named(pod_name(self._run_uid, launch), manifest, saw)

    def create_named(
        self, name: str, manifest: Callable[[], Awaitable[Raw]], saw: Callable[[Raw], None]
    ) -> None:
        """Do the same for a Pod of another role; the arguments are those of ``create``."""
        if not self.may_create(name):
            return
        self.state.pending[name] = 0.0
        self._start(name, self._create(name, manifest, saw))

    def restore(
        self, key: str, work: Callable[[], Awaitable[None]], *, pause_seconds: float = 0.0
    ) -> None:
        """Begin to make an object that is no Pod, unless that is under way or has to wait.

        Args:
            key: Kind and name.
            work: Makes it or finds it; repeated until the answer is definite.
            pause_seconds: Before which it is not made again, whatever becomes of it.
        """
        if self.may_create(key):
            self.state.pending[key] = 0.0
            self._start(key, self._restore(key, work, pause_seconds))

    def refuse(self, key: str, what: str, error: Forbidden) -> RefusedCreate:
        """Take in that rights or admission refuse an object.

        Args:
            key: Of the object, by which later refusals of it are found.
            what: Its kind and name.
            error: The server's answer.

        Returns:
            When it is tried again, if at all.
        """
        known, now = self.state.refused.get(key), self._clock.now()
        found = refused_again(known, f"{what}: {error.reason}", now, self._refusal_seconds)
        self.state.refused[key] = found
        self.state.pending[key] = found.again_at or 0.0
        return found

    def accept(self, key: str) -> None:
        """Take in that nothing refuses an object any more."""
        for known in (self.state.quotas, self.state.refused, self.state.pending):
            known.pop(key, None)

    def may_create(self, name: str) -> bool:
        """Whether a create of this Pod is neither under way nor has to wait."""
        return name not in self._busy and self._clock.now() >= self.state.pending.get(name, 0.0)

    def delete_all(self, deletions: Iterable[Deletion], live: Collection[str]) -> None:
        """Begin to delete Pods: those that have ended together, and not before it is worth it.

        Args:
            deletions: All Pods to delete.
            live: Names of the Pods of launches that have not ended, as the journal has it.
        """
        wanted = tuple(deletions)
        due = Doomed()
        if TOGETHER not in self._busy:
            ended = [each for each in wanted if not each.at_once]
            must_hurry = not live or bool(self.state.quota)
            due = self._ended.due(ended, live, must_hurry=must_hurry)
        for deletion in (*(each for each in wanted if each.at_once), *due.alone):
            self.delete(deletion)
        if due.together:
            self._start(TOGETHER, self._delete_together(due))

    def delete(self, deletion: Deletion) -> None:
        """Begin to delete a Pod, unless that is under way or was done a moment ago."""
        again_at = self._delete_again.get(deletion.uid, 0.0)
        if deletion.name not in self._busy and self._clock.now() >= again_at:
            self._start(deletion.name, self._delete(deletion))

    async def sweep(self, views: Iterable[PodView]) -> None:
        """Delete every Pod of a launch that has not ended, and every probing Pod.

        Raises:
            ClusterError: The API server did not answer.
        """
        for view in list(views):
            is_running = view.launch is not None and not view.is_terminal
            if is_running or view.role in PROBING:
                await self._cluster.delete(ObjectKind.POD, view.name, uid=view.uid, grace_seconds=1)

    def acknowledge(self, seen: Collection[str], vanished: Collection[str]) -> None:
        """Forget creates whose outcome the cluster shows by now.

        Args:
            seen: Names of Pods that are there.
            vanished: Names of Pods that were there.
        """
        self._settled_at = self._clock.now()
        for name in list(self.state.pending):
            if name in seen or name in vanished:
                del self.state.pending[name]

    def retry_at(self) -> float | None:
        """Return when the next create has to be repeated or ended Pods are deleted, or None.

        A retry that was already due at the last ``acknowledge`` and was not taken is left out until
        the next decision.
        """
        held = [self._ended.due_at] if self._ended.due_at is not None else []
        times = (*self.state.pending.values(), *held)
        return min((at for at in times if at > self._settled_at), default=None)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not self._busy

    def failure(self) -> BaseException | None:
        """Return the first error of a background task that is not one of the cluster's."""
        for name, task in list(self._busy.items()):
            if task.done():
                del self._busy[name]
                if not task.cancelled() and (error := task.exception()) is not None:
                    return error
        return None

    async def close(self) -> None:
        """Stop what is under way; a create without an answer is repeated after a restart."""
        tasks = list(self._busy.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start(self, name: str, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work, name=name)
        self._busy[name] = task
        task.add_done_callback(lambda _: self._on_change())

    async def _create(
        self, name: str, manifest: Callable[[], Awaitable[Raw]], saw: Callable[[Raw], None]
    ) -> None:
        body = await manifest()
        await self._take_token()

        async def make() -> None:
            saw(await create_or_find(self._cluster, ObjectKind.POD, body, self._run_uid))

        await self._make(name, f"Pod {name}", make)

    async def _restore(
        self, key: str, work: Callable[[], Awaitable[None]], pause_seconds: float
    ) -> None:
        error = await self._make(key, key, work)
        self.state.troubles.pop(key, None)
        if error is not None:
            self.state.troubles[key] = f"{key}: {error.reason}"
        elif pause_seconds:
            self.state.pending[key] = self._clock.now() + pause_seconds

    async def _make(
        self, key: str, what: str, work: Callable[[], Awaitable[None]]
    ) -> ClusterError | None:
        """Create an object or find it; return the refusal, if there is one."""
        try:
            await work()
        except Forbidden as error:
            found = self.refuse(key, what, error)
            self.state.refusal = self.state.refusal if found.again_at else found.message
            return error
        except QuotaExceeded as error:
            self.state.refused.pop(key, None)
            self.state.quotas[key] = error.reason
            self.state.pending[key] = self._clock.now() + QUOTA_RETRY_SECONDS
            return error
        except TransientClusterError as error:
            self.state.refused.pop(key, None)
            pause = error.retry_after_seconds or RETRY_SECONDS
            self.state.pending[key] = self._clock.now() + pause
            return error
        except PermanentClusterError as error:
            self.state.refusal = error.reason
            return error
        self.accept(key)
        return None

    async def _take_token(self) -> None:
        wait = self._bucket.take()
        while wait > 0:
            await asyncio.sleep(wait)
            wait = self._bucket.take()

    async def _delete_together(self, due: Doomed) -> None:
        is_done = await self._ended.delete(due)
        again_at = self._clock.now() + (DELETE_AGAIN_SECONDS if is_done else RETRY_SECONDS)
        self._delete_again |= {each.uid: again_at for each in due.together}

    async def _delete(self, deletion: Deletion) -> None:
        grace = 1 if deletion.at_once else None
        pause = DELETE_AGAIN_SECONDS
        try:
            await self._cluster.delete(
                ObjectKind.POD, deletion.name, uid=deletion.uid, grace_seconds=grace
            )
        except TransientClusterError:
            pause = RETRY_SECONDS
        self._delete_again[deletion.uid] = self._clock.now() + pause


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
            f"a {kind.value} named {name} exists that is not this run's; delete it", status=409
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
