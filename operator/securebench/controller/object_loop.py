"""The one loop of an object; runs and suites are its two instances.

kopf delivers each event of a kind to an ``ObjectSupervisor``, which holds one ``ObjectLoop`` for
each object that has work. ``LatestObject`` is the one place where a loop sees its object: events
and reads update it. A step of a loop that fails is repeated with back-off for as long as the object
exists, and the status says why. ``StatusWriter`` is the only writer of the object's status and
Events. While a call to the results volume is late, conditions report that instead; a task of its
own writes them, which makes no such call.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, NoReturn, TypeVar

from securebench.clock import backoff, rfc3339
from securebench.cluster.port import ObjectKind, Raw, metadata
from securebench.controller.context import Context, RunObject, SpecVersion, SuiteObject
from securebench.controller.events import OUTAGES, EventRecorder, outage_reason
from securebench.controller.loop_tasks import wait_until_set
from securebench.controller.volume_calls import OPERATOR_CALLS, VolumeCalls, call_volume_as
from securebench.errors import ClusterError, InvariantViolationError, ObjectGoneError
from securebench.json_values import object_at
from securebench.run.api.status import Condition, ConditionUpdate, Reason, set_conditions
from securebench.run.decide.notices import Notice
from securebench.run.observe.waiting import VOLUME_SILENT, WaitReason, volume_silent

logger = logging.getLogger(__name__)


RETRY_SECONDS = 2.0
RETRY_LIMIT_SECONDS = 60.0
"""Back-off of a step that ended with an error; doubled each time up to the limit."""


DEFECT_SECONDS = 60.0
"""Seconds for which a loop counts as failed after a defect, so that metrics show a single one."""


T = TypeVar("T", bound=RunObject | SuiteObject)


class LatestObject(Generic[T]):
    """The newest spec of one object that this process has seen, and who waits for a newer one."""

    def __init__(self, found: T) -> None:
        self._object = found
        self._listeners: list[Callable[[], None]] = []

    @property
    def object(self) -> T:
        """The object with that spec."""
        return self._object

    @property
    def version(self) -> SpecVersion:
        """The version of that spec."""
        return self._object.version

    def update(self, found: T) -> None:
        """Take a newer spec in; an older one, as of a late event, changes nothing."""
        if found.version.replaces(self._object.version):
            self._object = found
            for listener in self._listeners:
                listener()

    @contextlib.contextmanager
    def notifying(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call a function for every newer spec inside the block."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    async def wait_for_change(self, seen: SpecVersion, seconds: float | None) -> None:
        """Return when there is another version than one that was seen, or after some seconds."""
        changed = asyncio.Event()
        with self.notifying(changed.set):
            if self.version == seen:
                await wait_until_set(changed, seconds)


Changes = Callable[[Sequence[Condition], Sequence[Condition]], Iterable[Notice]]


class StatusWriter(ABC, Generic[T]):
    """The only writer of an object's status and Events.

    Nothing is written that the API server has already, as its last answer shows. After a write
    without an answer the next one is sent in any case.

    Args:
        latest: The object, with the status that an earlier process left.
        changes: Returns what Events say of conditions before and after a write.

    Attributes:
        calls: What the object has under way on the volume.
    """

    def __init__(self, context: Context, latest: LatestObject[T], changes: Changes) -> None:
        found = latest.object
        self._changes = changes
        self.calls = VolumeCalls(OPERATOR_CALLS)
        self._cluster = context.cluster
        self._clock = context.clock
        self._latest = latest
        self._events = EventRecorder(context.cluster, found, context.clock, context.process)
        self._stored: Mapping[str, object] | None = found.status
        self._shown = found.conditions
        # An earlier process may have left words about a silence that is over.
        self._said = tuple(
            each for each in self._shown if not each.message.startswith(VOLUME_SILENT)
        )
        self._silent_since: float | None = None
        self._silent_at = 0.0
        self._is_silence_reported = False
        self._is_over = False
        self._writing = asyncio.Lock()

    async def find(self) -> Raw:
        """Read the object.

        Raises:
            ObjectGoneError: It was deleted, or another one has its name.
            ClusterError: The API server did not answer.
        """
        async with self._writing:  # what is read must not be older than what is written
            return await self._find()

    async def write(self, updates: Iterable[ConditionUpdate], fields: Raw, generation: int) -> None:
        """Write conditions and other fields, and post Events for the conditions that changed.

        Args:
            fields: Other fields of the status; None removes one.
            generation: Generation of the spec that they are about.

        Raises:
            ObjectGoneError: The object is gone; its volume is reported no more.
            ClusterError: The API server did not take it.
        """
        async with self._writing:
            said = self._with(updates, generation)
            await self._write(said, {**fields, "observedGeneration": generation})

    async def report_silence(self) -> bool:
        """Publish since when a call to the volume is late, or again the conditions before that.

        Does nothing on the volume; may be called while another method is at work.

        Returns:
            Whether a call is late, so that this is to be called again in a moment.

        Raises:
            ClusterError: The API server did not take it.
        """
        async with self._writing:
            is_silent = self._finding() is not None
            if self._is_over or not (is_silent or self._is_silence_reported):
                return False
            with contextlib.suppress(ObjectGoneError):
                await self._write(*self._restated(), is_news=is_silent)
        return self._is_silence_reported

    @abstractmethod
    def _silent(self, silence: WaitReason) -> Sequence[ConditionUpdate]:
        """Return the conditions of an object that waits for the volume."""

    def _with(self, updates: Iterable[ConditionUpdate], generation: int) -> tuple[Condition, ...]:
        """Return what the object says with these conditions."""
        now = self._clock.now()
        return set_conditions(self._said, updates, observed_generation=generation, now=now)

    def _restated(self) -> tuple[tuple[Condition, ...], Raw]:
        """Return what the object says in the middle of a step, and further fields."""
        return self._said, {}

    def _finding(self) -> WaitReason | None:
        """Return since when the volume is silent, in words that stay the same meanwhile."""
        now = self._clock.monotonic()
        since = self.calls.silent_since(now)
        if since is not None and since != self._silent_since:
            self._silent_at = self._clock.now() - (now - since)
        self._silent_since = since
        if since is None or self._is_over:
            return None
        return volume_silent(self._silent_at, self._latest.object.noun)

    async def _write(
        self,
        said: tuple[Condition, ...],
        fields: Raw,
        version: object = "",
        *,
        is_news: bool = True,
    ) -> None:
        """Write what the object says, with words about a silent volume.

        Args:
            said: Its conditions without such words.
            version: Resource version that the object must have; empty for any.
            is_news: Whether Events are posted.
        """
        silence = self._finding()
        shown = self._shown_as(said, silence)
        status = {**fields, "conditions": [each.to_json() for each in shown]}
        # Before the write: the server may take it although its answer is lost.
        self._is_silence_reported = self._is_silence_reported or silence is not None
        await self._send(status, version)
        self._is_silence_reported = silence is not None
        before, self._shown, self._said = self._shown, shown, said
        if is_news:
            await self._events.post(self._changes(before, shown))

    def _shown_as(
        self, said: tuple[Condition, ...], silence: WaitReason | None
    ) -> tuple[Condition, ...]:
        """Return conditions with words about the volume, and times at which a status changed."""
        now, generation = self._clock.now(), self._latest.version.generation
        if silence is not None:
            updates = self._silent(silence)
            said = set_conditions(said, updates, observed_generation=generation, now=now)
        times = {(each.type, each.status): each.last_transition_time for each in self._shown}
        types = {each.type for each in self._shown}
        return tuple(
            each.model_copy(
                update={"last_transition_time": times.get((each.type, each.status), rfc3339(now))}
            )
            if each.type in types
            else each
            for each in said
        )

    async def _send(self, status: Raw, version: object = "") -> None:
        if self._stored is not None and is_stored(self._stored, status):
            return
        self._stored = None
        body: dict[str, object] = {"status": status}
        if version:
            body["metadata"] = {"resourceVersion": version}
        found = self._latest.object
        answer = await self._cluster.patch_status(ObjectKind(found.kind), found.name, body)
        self._stored = object_at(self._own(answer), "status")

    async def _find(self) -> Raw:
        found = self._latest.object
        raw = self._own(await self._cluster.get(ObjectKind(found.kind), found.name))
        self._stored = object_at(raw, "status")
        return raw

    def _own(self, raw: Raw | None) -> Raw:
        """Return the object, if it is this one and not the next one of its name."""
        found = self._latest.object
        if raw is None or metadata(raw).get("uid") != found.uid:
            self._is_over = True
            raise ObjectGoneError(f"its {found.kind} was deleted or replaced")
        return raw


def is_stored(stored: Mapping[str, object], status: Raw) -> bool:
    """Return whether a merge patch would change nothing of a status.

    Args:
        stored: As the API server has it; it may hold more.
        status: The patch; None removes a field.
    """
    return all(
        key not in stored if value is None else key in stored and _is_same(stored[key], value)
        for key, value in status.items()
    )


def _is_same(stored: object, patch: object) -> bool:
    if not isinstance(patch, Mapping):
        return stored == patch
    return isinstance(stored, Mapping) and is_stored(stored, patch)


SILENCE_LOOK_SECONDS = 1.0
"""Seconds between two looks whether a late call that the status reports still lasts."""


async def report_while_late(
    calls: VolumeCalls, report: Callable[[], Awaitable[bool]], who: str
) -> NoReturn:
    """Report calls that hang, also while all else of the object waits for them; until cancelled.

    Args:
        calls: Those of the object.
        report: Publishes since when one is late, or that none is any more; returns whether to
            call it again in a moment. It is also called again if it fails, whatever the reason.
        who: Kind and name of the object, for logs.
    """
    while True:
        if await _is_to_look_again(report, who):
            await asyncio.sleep(SILENCE_LOOK_SECONDS)
        else:
            await calls.wait_until_late()


async def _is_to_look_again(report: Callable[[], Awaitable[bool]], who: str) -> bool:
    try:
        return await report()
    except ClusterError as error:
        logger.warning("status of %s was not written: %s", who, error)
    except Exception:
        logger.exception("status of %s was not written", who)
    return True


class ObjectLoop(ABC, Generic[T]):
    """Works on one object, step by step, until nothing is left to do or the object is gone."""

    outage_ending: ClassVar[str] = ""
    """What follows the words for an outage."""

    def __init__(self, context: Context, latest: LatestObject[T], status: StatusWriter[T]) -> None:
        self.latest = latest
        self._failed_until = -math.inf
        self._clock = context.clock
        self._status = status
        self._failures = 0

    @property
    def name(self) -> str:
        """Name of the object."""
        return self.latest.object.name

    @property
    def title(self) -> str:
        """Kind and name of the object, for logs."""
        return f"{self.latest.object.noun} {self.name}"

    @property
    def is_failed(self) -> bool:
        """Whether a step failed lately by a defect of the operator."""
        return self._clock.monotonic() < self._failed_until

    @abstractmethod
    async def work(self) -> bool:
        """Do one step, with its waits; return whether nothing is left to do for this spec."""

    @abstractmethod
    async def announce(self, reason: Reason, message: str) -> None:
        """Publish what holds the object up."""

    async def forget(self) -> None:
        """Remove what is kept for the object, which is gone."""

    def leave(self) -> None:
        """Give back what the object holds in this process: its loop has ended."""

    def give_way(self) -> None:
        """Give up a slot, as the next try is a long time off."""

    def note_retry(self, reason: Reason) -> None:
        """Count a step that is repeated."""

    def defect_message(self, error: Exception) -> str:
        """Return what the status says of a defect of the operator."""
        if isinstance(error, InvariantViolationError):
            return error.reason
        return f"the {self.latest.object.noun} loop failed; see the operator's log"

    async def run(self) -> None:
        """Work until the object is gone, or nothing is left to do for its latest spec."""
        call_volume_as(self._status.calls)
        report = self._status.report_silence
        reporting = asyncio.create_task(report_while_late(self._status.calls, report, self.title))
        try:
            while not await self._is_over():
                pass
        except ObjectGoneError as error:
            logger.info("%s is left alone: %s", self.title, error.reason)
            await self.forget()
        finally:
            reporting.cancel()
            self.leave()

    async def report(self, reason: Reason, message: str) -> None:
        """Publish what holds the object up, unless the API server takes no status.

        Raises:
            ObjectGoneError: The object is gone.
        """
        try:
            await self.announce(reason, message)
        except ClusterError as error:
            logger.warning("status of %s was not written: %s", self.title, error)

    async def pause(self, seconds: float, seen: SpecVersion) -> None:
        """Wait; another version of the spec than one that was seen ends the wait."""
        if seconds >= RETRY_LIMIT_SECONDS:
            self.give_way()
        await self.latest.wait_for_change(seen, seconds)

    async def _is_over(self) -> bool:
        """Do one step, and wait after one that failed; return whether all is done."""
        version, began = self.latest.version, self._clock.monotonic()
        try:
            is_over = await self.work()
        except ObjectGoneError:
            raise
        except OUTAGES as error:
            reason, message, _ = outage_reason(error)
            logger.warning("%s is held up: %s", self.title, message)
            message += self.outage_ending
        except Exception as error:
            self._note_defect()
            reason, message = Reason.INTERNAL, self.defect_message(error)
            logger.exception("%s: loop failed", self.title)
        else:
            self._failures = 0
            return is_over and self.latest.version == version
        if self._clock.monotonic() > began + RETRY_LIMIT_SECONDS:
            self._failures = 0
        await self._back_off(reason, message)
        return False

    async def _back_off(self, reason: Reason, message: str) -> None:
        """Report what holds the object up, and wait until the next try in any case."""
        seen = self.latest.version
        self.note_retry(reason)
        self._failures += 1
        seconds = backoff(RETRY_SECONDS, RETRY_LIMIT_SECONDS, self._failures)
        try:
            await self.report(reason, message)
            await self.pause(seconds, seen)
        except ObjectGoneError:
            raise
        except Exception:
            self._note_defect()
            logger.exception("%s: what holds it up was not reported", self.title)
            await asyncio.sleep(seconds)

    def _note_defect(self) -> None:
        self._failed_until = self._clock.monotonic() + DEFECT_SECONDS


def is_gone(kind: str | None, body: Mapping[str, object]) -> bool:
    """Whether an event says that an object is deleted, or that it is about to be.

    Args:
        kind: ADDED, MODIFIED, DELETED, or None for the first listing.
    """
    return kind == "DELETED" or bool(object_at(body, "metadata").get("deletionTimestamp"))


@dataclass(slots=True)
class _Work(Generic[T]):
    """What the supervisor holds of an object; only the version once there is no more work."""

    version: SpecVersion
    task: asyncio.Task[None]
    loop: ObjectLoop[T] | None

    def drop_loop(self, ended: asyncio.Task[None]) -> None:
        """Keep only the loop of an object that is about to be deleted, which forgets it then."""
        if not ended.cancelled():
            self.loop = None


class ObjectSupervisor(Generic[T]):
    """Holds the loops of all objects of a kind: one for each that has work.

    Args:
        parts: Returns the parts of an object.
        loop: Returns the loop of an object, which has not begun.
    """

    def __init__(self, parts: Callable[[Raw], T], loop: Callable[[T], ObjectLoop[T]]) -> None:
        self._parts = parts
        self._loop = loop
        self._works: dict[str, _Work[T]] = {}

    @property
    def active(self) -> int:
        """How many objects have a loop that has not failed lately."""
        return sum(1 for loop in self._loops() if not loop.is_failed)

    @property
    def failed(self) -> int:
        """How many objects have a loop that failed lately by a defect; it is repeated."""
        return sum(1 for loop in self._loops() if loop.is_failed)

    def observe(self, kind: str | None, body: Mapping[str, object]) -> None:
        """Take an event of an object: start, wake or stop its loop.

        Args:
            kind: ADDED, MODIFIED, DELETED, or None for the first listing.
        """
        found = self._parts(body)
        work = self._works.get(found.uid)
        if is_gone(kind, body):
            if work is not None:
                work.task.cancel()
            if kind == "DELETED":
                self._works.pop(found.uid, None)
                self._deleted(found, work.loop if work is not None else None)
        elif work is None:
            self._begin(found)
        elif found.version.replaces(work.version):
            work.version = found.version
            if work.loop is None or work.task.done():
                self._begin(found)
            else:
                work.loop.latest.update(found)

    async def close(self) -> None:
        """Stop all loops and wait for their ends; what is in the cluster stays as it is."""
        tasks = [work.task for work in self._works.values()]
        self._works.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _deleted(self, found: T, loop: ObjectLoop[T] | None) -> None:
        """Note that an object is deleted, whose loop was cancelled if it had one."""

    def _loops(self) -> Iterator[ObjectLoop[T]]:
        for work in self._works.values():
            if work.loop is not None and not work.task.done():
                yield work.loop

    def _begin(self, found: T) -> None:
        loop = self._loop(found)
        task = asyncio.create_task(loop.run(), name=loop.title)
        work = self._works[found.uid] = _Work(found.version, task, loop)
        task.add_done_callback(work.drop_loop)
