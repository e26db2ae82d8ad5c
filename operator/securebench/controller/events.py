"""Posts the Kubernetes Events of one run or suite; repeated notices become a series with a count.

An Event's name is derived from its notice, so that a restarted operator continues the count.
Transient errors that runs and suites retry have their reasons at the end.

Source: decision 0050.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from securebench.clock import Clock, micro_time
from securebench.cluster.port import (
    AlreadyExists,
    Cluster,
    Forbidden,
    ObjectKind,
    QuotaExceeded,
    Raw,
)
from securebench.errors import ClusterError, RegistryUnavailableError, StorageError
from securebench.names import MANAGED_BY
from securebench.run.api.field_types import API_VERSION
from securebench.run.api.status import Reason
from securebench.run.decide.notices import Notice
from securebench.run.decide.refusals import REMEDY
from securebench.run.observe.waiting import WaitReason

logger = logging.getLogger(__name__)


MAX_EVENTS = 50
"""Number of different Events per object and process beyond which only the first one of each reason
and kind is posted; the status has what follows."""

SERIES_SECONDS = 60.0
"""Interval between two updates of a repeated Event; ``flush`` writes the rest."""

POST_SECONDS = 5.0
"""Timeout for the API server: an Event must not delay a run."""

MAX_NOTE = 1024
"""Bytes of a note that the API server accepts."""

NAME_CHARACTERS = 230
"""Of a run's name in the names of its Events, which have at most 253."""


class EventSubject(Protocol):
    """The object that Events are about."""

    @property
    def kind(self) -> str:
        """Its kind."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def uid(self) -> str:
        """Its uid."""

    @property
    def namespace(self) -> str:
        """Its namespace."""


@dataclass(slots=True)
class _Series:
    count: int
    written: int
    written_at: float


class EventRecorder:
    """Posts notices as Events; logs errors of the cluster instead of raising them.

    Args:
        subject: The object that they are about.
        instance: Names the operator's process.
    """

    def __init__(
        self, cluster: Cluster, subject: EventSubject, clock: Clock, instance: str
    ) -> None:
        self._cluster = cluster
        self._subject = subject
        self._clock = clock
        self._instance = instance
        self._series: dict[str, _Series] = {}
        self._kinds: set[tuple[str, str, str]] = set()

    async def post(self, notices: Iterable[Notice]) -> None:
        """Post notices; repeated ones are counted."""
        for notice in notices:
            name = event_name(self._subject, notice)
            known = self._series.get(name)
            if known is not None:
                known.count += 1
                if self._clock.monotonic() >= known.written_at + SERIES_SECONDS:
                    await self._update(name, known)
            elif self._may_add(notice):
                await self._create(name, notice)

    async def flush(self) -> None:
        """Write the counts that are not written yet."""
        for name, known in self._series.items():
            if known.count > known.written:
                await self._update(name, known)

    def _may_add(self, notice: Notice) -> bool:
        """Whether another Event may be posted; its kind then is known."""
        kind = (notice.action, notice.reason, notice.kind)
        if len(self._series) >= MAX_EVENTS and kind in self._kinds:
            return False
        self._kinds.add(kind)
        return True

    async def _create(self, name: str, notice: Notice) -> None:
        now = self._clock.now()
        known = self._series[name] = _Series(count=1, written=1, written_at=self._clock.monotonic())
        body = event(self._subject, notice, self._instance, now)
        try:
            async with asyncio.timeout(POST_SECONDS):
                try:
                    await self._cluster.create(ObjectKind.EVENT, body)
                except AlreadyExists:
                    earlier = await self._cluster.get(ObjectKind.EVENT, name)
                    known.count = 1 + (_count(earlier) if earlier is not None else 0)
                    await self._cluster.patch(ObjectKind.EVENT, name, series(known.count, now))
        except (ClusterError, TimeoutError) as error:
            logger.warning("event %s was not posted: %s", name, error)
        known.written = known.count

    async def _update(self, name: str, known: _Series) -> None:
        now = self._clock.now()
        known.written, known.written_at = known.count, self._clock.monotonic()
        try:
            async with asyncio.timeout(POST_SECONDS):
                await self._cluster.patch(ObjectKind.EVENT, name, series(known.count, now))
        except (ClusterError, TimeoutError) as error:
            logger.warning("event %s was not counted: %s", name, error)


def event_name(subject: EventSubject, notice: Notice) -> str:
    """Return the name of an Event, the same one for every occurrence of a notice."""
    words = f"{subject.uid}\0{notice.action}\0{notice.reason}\0{notice.key}"
    digest = hashlib.sha256(words.encode()).hexdigest()[:16]
    return f"{subject.name[:NAME_CHARACTERS].rstrip('-.')}.{digest}"


def event(subject: EventSubject, notice: Notice, instance: str, at: float) -> Raw:
    """Return the Event of a first occurrence (``events.k8s.io/v1``).

    Args:
        subject: The object that they are about.
        instance: Names the operator's process.
        at: Seconds since the epoch.
    """
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": event_name(subject, notice), "namespace": subject.namespace},
        "eventTime": micro_time(at),
        "type": "Warning" if notice.is_warning else "Normal",
        "action": notice.action,
        "reason": notice.reason,
        "note": _cut(notice.note),
        "reportingController": MANAGED_BY,
        "reportingInstance": instance,
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": subject.kind,
            "namespace": subject.namespace,
            "name": subject.name,
            "uid": subject.uid,
        },
    }


def series(count: int, at: float) -> Raw:
    """Return the change of an Event that occurred again.

    Args:
        count: Occurrences so far, the first one included.
        at: Time of the last one, seconds since the epoch.
    """
    return {"series": {"count": count, "lastObservedTime": micro_time(at)}}


def _cut(note: str) -> str:
    data = note.encode()
    if len(data) <= MAX_NOTE:
        return note
    return data[: MAX_NOTE - len("…".encode())].decode(errors="ignore") + "…"


def _count(found: Raw) -> int:
    known = found.get("series")
    count = known.get("count") if isinstance(known, Mapping) else None
    return count if isinstance(count, int) else 1


Outage = ClusterError | RegistryUnavailableError | StorageError | OSError

OUTAGES: Final = (ClusterError, RegistryUnavailableError, StorageError, OSError)
"""For ``except``: errors of the surroundings, retried with back-off for as long as the object
exists. Anything else is invalid input or a defect."""


def outage_reason(error: Outage) -> WaitReason:
    """Return why a run or suite that met an outage makes no progress.

    Source: contract 21.20.
    """
    match error:
        case QuotaExceeded():
            return WaitReason(Reason.QUOTA_EXCEEDED, error.reason)
        case Forbidden():
            return WaitReason(Reason.FORBIDDEN, f"{error.reason}; {REMEDY}")
        case RegistryUnavailableError():
            return WaitReason(Reason.REGISTRY_UNAVAILABLE, error.reason)
        case ClusterError():
            return WaitReason(Reason.INTERNAL, f"the API server: {error}")
        case StorageError():
            problem = error.reason
        case OSError():
            problem = error.strerror or str(error)
    return WaitReason(Reason.STORAGE_UNAVAILABLE, f"the results volume: {problem}")
