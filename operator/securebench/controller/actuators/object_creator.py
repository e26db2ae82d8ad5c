"""Creates the objects of one run in the background, until the answer is definite."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

from securebench.cluster.port import AlreadyExists, Cluster, ObjectKind, Raw, metadata
from securebench.controller.actuators.background_tasks import BackgroundTasks
from securebench.controller.actuators.create_retries import CreateRetries
from securebench.controller.context import Context
from securebench.errors import PermanentClusterError, TransientClusterError
from securebench.run.decide.waits import Throttled
from securebench.run.plan.keys import LaunchKey, pod_name

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
