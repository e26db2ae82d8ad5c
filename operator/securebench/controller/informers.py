"""Local caches of a run's objects: a list, then a watch, and the replies to own writes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import random
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import ClassVar, Generic, Protocol, TypeVar

from securebench.clock import backoff
from securebench.cluster.port import Cluster, ObjectKind, Raw, WatchExpired
from securebench.errors import TransientClusterError
from securebench.run.layout import numbered
from securebench.run.observe.pods import ObjectView, PodView, object_view, pod_view
from securebench.run.plan.model import LaunchKey, Role

logger = logging.getLogger(__name__)


PAUSE_SECONDS = 1.0
"""Back-off after the first failed watch or list; doubled for each further one."""

PAUSE_LIMIT_SECONDS = 8.0
"""Limit of that back-off; a watch that lasted this long, or gave an event, was healthy."""

BOOKMARK = "BOOKMARK"
"""Type of an event whose object has only a resourceVersion."""


class BackgroundWatch(Protocol):
    """A watch that runs in the background of a run's loop."""

    def watching(self) -> contextlib.AbstractAsyncContextManager[None]:
        """List once, then watch until the block ends."""
        ...

    def check(self) -> None:
        """Raise what ended the watch, if it has ended."""
        ...


class NamedObject(Protocol):
    """An object that an informer caches."""

    @property
    def name(self) -> str:
        """The object's name."""
        ...

    @property
    def uid(self) -> str:
        """The object's uid."""
        ...


V = TypeVar("V", bound=NamedObject)


def _now() -> float:
    """Return seconds of the loop's clock, which no setting of the machine's time moves."""
    return asyncio.get_running_loop().time()


class _Backoff:
    """Back-off between watches and lists after failures."""

    def __init__(self) -> None:
        self._failures = 0
        self._is_healthy = False

    def begin(self) -> None:
        """Note that a watch starts; it counts as failed until it is healthy."""
        self._is_healthy = False

    def healthy(self) -> None:
        """Note that the watch is healthy: it gave an event, or lasted."""
        self._is_healthy, self._failures = True, 0

    async def closed(self) -> None:
        """Wait after the server ended a watch; not at all if it was healthy."""
        if not self._is_healthy:
            await self._pause(0.0)

    async def failed(self, error: TransientClusterError) -> None:
        """Wait after a watch or a list that failed, at least as long as the server asks for."""
        await self._pause(error.retry_after_seconds or 0.0)

    async def _pause(self, at_least: float) -> None:
        self._failures += 1
        pause = backoff(PAUSE_SECONDS, PAUSE_LIMIT_SECONDS, self._failures)
        spread = random.uniform(pause / 2, pause)  # noqa: S311 of the watches of many runs
        await asyncio.sleep(at_least + spread)


class Informer(Generic[V]):
    """Lists and watches the objects of one kind of one run.

    Args:
        selector: Label selector of the run's objects.
        relist_seconds: Seconds between two full lists.
        on_change: Called after every change.
    """

    kind: ClassVar[ObjectKind]

    def __init__(
        self,
        cluster: Cluster,
        selector: str,
        relist_seconds: float,
        on_change: Callable[[], None],
    ) -> None:
        self._cluster = cluster
        self._selector = selector
        self._relist_seconds = relist_seconds
        self.changed = on_change
        self._objects: dict[str, V] = {}
        self._created: dict[str, int] = {}
        self._lists = 0
        self._backoff = _Backoff()
        self._changed: set[str] = set()
        self._follower: asyncio.Task[None] | None = None
        self._relist_at = 0.0
        self._relist_timeout: asyncio.Timeout | None = None
        self.listed_at = -math.inf
        """When the latest list was started, in seconds of the loop's clock."""
        self.answered_at = -math.inf
        """When the list was started that was answered after others had failed."""
        self.resource_version = ""
        """Of the latest change in the cache."""

    @staticmethod
    def view(raw: Raw) -> V | None:
        """Convert an object; None for one that is not cached."""
        raise NotImplementedError

    @property
    def objects(self) -> Mapping[str, V]:
        """The objects by name."""
        return self._objects

    def pop_changed(self) -> Collection[str]:
        """Return the names of objects that were added, modified or deleted since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def note_created(self, raw: Raw) -> None:
        """Add the object of a create's reply, so that the next decision knows of it."""
        view = self.view(raw)
        # The watch may be faster than the reply: its object is newer, and a Pod that it has seen
        # deleted must not come back.
        if view is not None and not self._has_vanished(view.name):
            self._objects.setdefault(view.name, view)
            self._changed.add(view.name)
            self._created[view.name] = self._lists
            self.changed()

    def note_deleted(self, name: str, uid: str) -> None:
        """Remove a deleted object; a later one of its name stays."""
        known = self._objects.get(name)
        if known is not None and known.uid == uid:
            self._remove(known)
            self.changed()

    async def list(self) -> str:
        """Read the whole state once.

        Returns:
            The resource version to watch from.

        Raises:
            ClusterError: The API server did not answer.
        """
        self._lists += 1
        began, began_at = self._lists, _now()
        listing = await self._cluster.list(self.kind, self._selector)
        views = {view.name: view for raw in listing.items if (view := self.view(raw)) is not None}
        for name in set(self._objects) - set(views):
            # A list that was started before the object was created may lack it.
            if self._created.get(name, 0) < began:
                self._remove(self._objects[name])
            else:
                views[name] = self._objects[name]
        self._changed.update(name for name in views if views[name] != self._objects.get(name))
        self._objects = views
        self.resource_version = listing.resource_version
        self._relist_at, self.listed_at = _now() + self._relist_seconds, began_at
        self.changed()
        return listing.resource_version

    async def follow(self, resource_version: str) -> None:
        """Watch until cancelled; list again when the watch breaks and every ``relist_seconds``."""
        while True:
            try:
                resource_version = await self._watch_until_relist(resource_version)
                continue
            except TimeoutError:
                pass
            except WatchExpired:
                logger.debug("watch of %s expired", self._selector)
                await self._backoff.closed()
            except TransientClusterError as error:
                logger.warning("watch of %s broke: %s", self._selector, error)
                await self._backoff.failed(error)
            resource_version = await self._list_until_answered()

    @contextlib.asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """List, and watch in the background until the block ends.

        Raises:
            ClusterError: The API server did not answer the list.
        """
        follower = asyncio.create_task(self.follow(await self.list()))
        # A watch that fails wakes the loop, which raises the error by ``check``.
        follower.add_done_callback(lambda _: self.changed())
        self._follower = follower
        try:
            yield
        finally:
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)

    def check(self) -> None:
        """Raise what ended the watch, if it has ended."""
        if self._follower is not None and self._follower.done():
            self._follower.result()

    def relist(self) -> None:
        """List again now, unless a list is under way or due."""
        timeout, self._relist_timeout = self._relist_timeout, None
        # One that is over ends the watch anyway, as soon as its task has its turn.
        if timeout is not None and not timeout.expired():
            timeout.reschedule(_now())

    async def _watch_until_relist(self, resource_version: str) -> str:
        async with asyncio.timeout(max(0.0, self._relist_at - _now())) as timeout:
            self._relist_timeout = timeout
            try:
                resource_version = await self._watch(resource_version)
                await self._backoff.closed()
            finally:
                self._relist_timeout = None
        return resource_version

    async def _list_until_answered(self) -> str:
        has_failed = False
        while True:
            try:
                resource_version = await self.list()
            except TransientClusterError as error:
                has_failed = True
                logger.warning("list of %s failed: %s", self._selector, error)
                await self._backoff.failed(error)
            else:
                if has_failed:
                    self.answered_at = self.listed_at
                return resource_version

    async def _watch(self, resource_version: str) -> str:
        began = _now()
        self._backoff.begin()
        events = self._cluster.watch(self.kind, self._selector, resource_version)
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    metadata = event.object.get("metadata")
                    if isinstance(metadata, Mapping):
                        resource_version = str(metadata.get("resourceVersion", resource_version))
                    self._take(event.type, event.object)
                    self.resource_version = resource_version
        finally:
            if _now() >= began + PAUSE_LIMIT_SECONDS:
                self._backoff.healthy()
        return resource_version

    def _take(self, kind: str, raw: Raw) -> None:
        if kind == BOOKMARK:
            return
        self._backoff.healthy()
        view = self.view(raw)
        if view is None:
            return
        if kind == "DELETED":
            if self._objects.get(view.name, view).uid == view.uid:
                self._remove(view)
        else:
            self._objects[view.name] = view
            self._changed.add(view.name)
        self.changed()

    def _has_vanished(self, _name: str) -> bool:
        """Whether the object is gone and none comes again under its name."""
        return False

    def _remove(self, view: V) -> None:
        self._objects.pop(view.name, None)
        self._created.pop(view.name, None)
        self._changed.add(view.name)


class PodInformer(Informer[PodView]):
    """The Pods of a run; none comes again under the name of one that is gone.

    Attributes:
        vanished: Names of Pods that were observed and are gone, with their launches.
        last_vanished: Number of the latest gateway, canary or control Pod that is gone, by role.
    """

    kind = ObjectKind.POD
    view = staticmethod(pod_view)

    def __init__(
        self,
        cluster: Cluster,
        selector: str,
        relist_seconds: float,
        on_change: Callable[[], None],
    ) -> None:
        super().__init__(cluster, selector, relist_seconds, on_change)
        self.vanished: dict[str, tuple[LaunchKey, ...]] = {}
        self.last_vanished: dict[Role, int] = {}
        self._last_views: dict[str, PodView] = {}

    @property
    def pods(self) -> Mapping[str, PodView]:
        """The Pods by name."""
        return self.objects

    def last_seen(self, name: str) -> PodView | None:
        """Return a Pod as it is, or as it was last seen if it is gone; to tell, not to decide.

        Args:
            name: Name of a launch's Pod.

        Returns:
            None for a Pod that was never seen, or that ``forget_last_seen`` has dropped.
        """
        return self.pods.get(name) or self._last_views.get(name)

    def forget_last_seen(self, is_live: Callable[[LaunchKey], bool]) -> None:
        """Drop what was last seen of Pods that are gone, but for those of live launches.

        Args:
            is_live: Whether a launch has begun and its end is not journalled.
        """
        gone = self._last_views.items()
        self._last_views = {name: view for name, view in gone if any(map(is_live, view.launches))}

    def forget_vanished(self, is_over: Callable[[str, LaunchKey], bool]) -> None:
        """Drop the names of Pods that are gone and of which no decision asks any more.

        Args:
            is_over: Whether the attempt of a launch has ended and no create of its Pod, which is
                named first, is under way.
        """
        self.vanished = {
            name: launches
            for name, launches in self.vanished.items()
            if not launches or not all(is_over(name, each) for each in launches)
        }

    def _has_vanished(self, name: str) -> bool:
        return name in self.vanished

    def _remove(self, view: PodView) -> None:
        super()._remove(view)
        self.vanished[view.name] = view.launches
        if view.launches:
            self._last_views[view.name] = view
        if view.launch is None:
            number = max(self.last_vanished.get(view.role, 0), numbered(view.name))
            self.last_vanished[view.role] = number


class ServiceInformer(Informer[ObjectView]):
    """The Services of a run."""

    kind = ObjectKind.SERVICE
    view = staticmethod(object_view)


class PolicyInformer(Informer[ObjectView]):
    """The network policies of a run."""

    kind = ObjectKind.NETWORK_POLICY
    view = staticmethod(object_view)
