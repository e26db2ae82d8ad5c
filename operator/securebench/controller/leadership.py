"""Which operator of a namespace works: a Lease, and what it lets its holder do.

The rules are those of client-go's ``leaderelection``. One more: every acquisition makes
``leaseTransitions`` grow, also by the holder of before in a new process. It is the epoch, by which
files of a leader are distinguished from those of the next (decision 0066). ``Elector`` acquires,
renews and returns the Lease; ``FencedCluster`` rejects writes while it is not held.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, NoReturn

from securebench.clock import Clock, micro_time
from securebench.cluster.port import (
    AlreadyExists,
    Cluster,
    Listing,
    ObjectKind,
    Raw,
    WatchEvent,
    metadata,
)
from securebench.controller.settings import LeaseTimes
from securebench.errors import ClusterError, LeadershipLostError, LeaseOverdueError
from securebench.json_values import object_at, text_at
from securebench.names import OPERATOR_LEASE

logger = logging.getLogger(__name__)


RELEASED_SECONDS: Final = 1
"""``leaseDurationSeconds`` of a Lease without holder; 0 is not valid."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What a Lease says.

    Attributes:
        holder: ``<Pod name>_<Pod uid>``; empty: nobody.
        epoch: How often the Lease was acquired.
        duration_seconds: For how long it holds after a renewal.
        acquired_at: Time of the acquisition, as the API server has it.
        renewed_at: Time of the last renewal by its holder's clock; only whether it changes counts.
    """

    holder: str
    epoch: int
    duration_seconds: int
    acquired_at: str = ""
    renewed_at: str = ""


def lease_record(raw: Raw) -> LeaseRecord:
    """Return what a Lease says; parts that are missing or odd count as empty."""
    spec = object_at(raw, "spec")
    return LeaseRecord(
        holder=text_at(spec, "holderIdentity"),
        epoch=_number(spec, "leaseTransitions"),
        duration_seconds=_number(spec, "leaseDurationSeconds"),
        acquired_at=text_at(spec, "acquireTime"),
        renewed_at=text_at(spec, "renewTime"),
    )


def lease_manifest(record: LeaseRecord, stored: Raw | None = None) -> Raw:
    """Return the Lease that says this.

    Args:
        record: With times in the form of ``micro_time``.
        stored: The Lease that it replaces, as it was read; None for a new one. Its uid is sent as
            well: the API server would otherwise create anew a Lease that was deleted since.
    """
    known: Raw = {} if stored is None else metadata(stored)
    identity = {key: known[key] for key in ("resourceVersion", "uid") if key in known}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": OPERATOR_LEASE, **identity},
        "spec": {
            "holderIdentity": record.holder,
            "leaseTransitions": record.epoch,
            "leaseDurationSeconds": record.duration_seconds,
            "acquireTime": record.acquired_at,
            "renewTime": record.renewed_at,
        },
    }


def may_take(record: LeaseRecord, own: str, unchanged_seconds: float) -> bool:
    """Return whether an operator may take a Lease.

    Args:
        record: What it says.
        own: Who asks. What the same Pod held was held by an earlier process of its container.
        unchanged_seconds: For how long the asker has seen it say that, by its own clock; clocks of
            other machines do not count.
    """
    is_over = unchanged_seconds > record.duration_seconds
    return not record.holder or record.holder == own or is_over


def _number(spec: Mapping[str, object], name: str) -> int:
    value = spec.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


Highest = Callable[[], Awaitable[int]]
"""Returns the highest epoch that left traces on the volume, which may take as long as it wants."""


class Elector:
    """One operator's side of the election.

    Args:
        holder: ``<Pod name>_<Pod uid>`` of this operator.
        times: How long the Lease holds, and how often it is renewed.
        clock: The wall clock, for what others read.
        elapsed: Seconds of a monotonic clock that includes suspension of the machine.
        on_lost: Ends the process; called with the reason.
    """

    def __init__(
        self,
        cluster: Cluster,
        holder: str,
        times: LeaseTimes,
        clock: Clock,
        elapsed: Callable[[], float],
        on_lost: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._lease_seconds = times.lease_seconds
        self._renew_seconds = times.renew_seconds
        self._retry_seconds = times.retry_seconds
        self._clock = clock
        self._elapsed = elapsed
        self._on_lost = on_lost
        self.holder = holder
        self._own = LeaseRecord("", 0, 0)
        self._stored: Raw | None = None
        self._renewed_at = 0.0
        self._seen: LeaseRecord | None = None
        self._seen_at = 0.0

    @property
    def is_leader(self) -> bool:
        """Whether this operator may write now."""
        return bool(self._own.holder) and self._elapsed() < self._ends_at

    @property
    def _ends_at(self) -> float:
        return self._renewed_at + self._renew_seconds

    async def acquire(self, highest: Highest) -> int:
        """Wait until the Lease is this operator's.

        Args:
            highest: A Lease that was deleted begins to count behind what it returns.

        Returns:
            The epoch: higher than that of every earlier leader.
        """
        said = ""
        while not await self._is_acquired(highest):
            waits_for = self._seen.holder if self._seen is not None else ""
            if waits_for and waits_for != said:
                logger.info("standby: %s leads", waits_for)
                said = waits_for
            await asyncio.sleep(self._retry_seconds)
        logger.info("%s leads, epoch %s", self.holder, self._own.epoch)
        return self._own.epoch

    async def hold(self) -> NoReturn:
        """Renew the Lease again and again, however long the API server does not answer.

        Raises:
            LeadershipLostError: Another operator has it.
        """
        while True:
            await asyncio.sleep(self._retry_seconds)
            await self._renew()

    async def release(self) -> None:
        """Give the Lease back, so that the next operator need not wait for its end."""
        if not self.is_leader:
            return
        record = replace(self._renewal(), holder="", duration_seconds=RELEASED_SECONDS)
        self._own = LeaseRecord("", 0, 0)
        try:
            async with asyncio.timeout(self._retry_seconds):
                await self._cluster.replace(ObjectKind.LEASE, lease_manifest(record, self._stored))
        except (ClusterError, TimeoutError) as error:
            logger.warning("the Lease is not given back, it ends by itself: %s", error)

    def require(self) -> None:
        """Return if this operator may write now.

        Raises:
            LeaseOverdueError: Another operator may have the Lease, or will soon.
        """
        if not self.is_leader:
            raise LeaseOverdueError(
                "the operator's Lease was not renewed in time; nothing is written until it is"
            )

    def _lose(self, reason: str) -> NoReturn:
        self._own = LeaseRecord("", 0, 0)
        self._on_lost(reason)
        raise LeadershipLostError(reason)

    # Acquire

    async def _is_acquired(self, highest: Highest) -> bool:
        try:
            return await self._try(highest)
        except (ClusterError, OSError) as error:
            logger.warning("the Lease cannot be acquired: %s; tried again", error)
            return False

    async def _try(self, highest: Highest) -> bool:
        raw = await self._cluster.get(ObjectKind.LEASE, OPERATOR_LEASE)
        record = LeaseRecord("", 0, 0)
        if raw is not None:
            record = lease_record(raw)
            if not may_take(record, self.holder, self._unchanged_seconds(record)):
                return False
        epoch = max(record.epoch, await highest()) + 1
        # The volume may have taken longer than a Lease holds. If somebody has renewed or taken it
        # meanwhile, what was read is outdated and the write fails.
        began, now = self._elapsed(), micro_time(self._clock.now())
        own = LeaseRecord(self.holder, epoch, self._lease_seconds, now, now)
        return self._take(await self._write(own, raw), own, began)

    def _unchanged_seconds(self, record: LeaseRecord) -> float:
        now = self._elapsed()
        if record != self._seen:
            self._seen, self._seen_at = record, now
        return now - self._seen_at

    async def _write(self, record: LeaseRecord, raw: Raw | None) -> Raw | None:
        """Write a Lease in place of what was read; None if somebody was faster."""
        if raw is not None:
            return await self._cluster.replace(ObjectKind.LEASE, lease_manifest(record, raw))
        try:
            return await self._cluster.create(ObjectKind.LEASE, lease_manifest(record))
        except AlreadyExists:
            return None

    def _take(self, stored: Raw | None, record: LeaseRecord, began: float) -> bool:
        if stored is None:
            return False
        self._own, self._renewed_at = record, began
        self._stored = stored
        return True

    # Hold

    async def _renew(self) -> None:
        was_leader = self.is_leader
        try:
            async with asyncio.timeout(self._renew_seconds / 2):
                await self._write_renewal()
        except (ClusterError, TimeoutError) as error:
            logger.warning("the Lease is not renewed: %s; tried again", str(error) or "no answer")
        if was_leader and not self.is_leader:
            logger.error("nothing is written until the Lease is renewed: its time is over")
        elif self.is_leader and not was_leader:
            logger.info("the Lease is renewed, nobody else had it; the work goes on")

    async def _write_renewal(self) -> None:
        began, record = self._elapsed(), self._renewal()
        manifest = lease_manifest(record, self._stored)
        stored = await self._cluster.replace(ObjectKind.LEASE, manifest)
        if self._take(stored, record, began):
            return
        # Somebody changed or deleted it, or the answer to an earlier renewal was lost.
        raw = await self._cluster.get(ObjectKind.LEASE, OPERATOR_LEASE)
        if raw is None and not self.is_leader:
            self._lose("the Lease was deleted while it was not renewed; others may have had it")
        if raw is not None:
            found = lease_record(raw)
            if (found.holder, found.epoch) != (self._own.holder, self._own.epoch):
                self._lose(f"{found.holder or 'somebody'} has the Lease, epoch {found.epoch}")
        self._take(await self._write(record, raw), record, began)

    def _renewal(self) -> LeaseRecord:
        return replace(self._own, renewed_at=micro_time(self._clock.now()))


class FencedCluster:
    """Implements ``securebench.cluster.port.Cluster``.

    What passes while the Lease holds and arrives later was decided by the leader and is in the
    journal that the next one reads (decision 0066).

    Args:
        require: Raises unless this process leads.
    """

    def __init__(self, cluster: Cluster, require: Callable[[], None]) -> None:
        self._cluster = cluster
        self._require = require

    @property
    def requests(self) -> Mapping[tuple[str, ObjectKind], int]:
        """Requests sent so far, by verb and kind."""
        return self._cluster.requests

    async def list(self, kind: ObjectKind, selector: str) -> Listing:
        """Return all matching objects."""
        return await self._cluster.list(kind, selector)

    def watch(
        self, kind: ObjectKind, selector: str, resource_version: str
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield changes after a resource version."""
        return self._cluster.watch(kind, selector, resource_version)

    async def get(self, kind: ObjectKind, name: str) -> Raw | None:
        """Return the object, or None if it does not exist."""
        return await self._cluster.get(kind, name)

    async def signing_keys(self) -> bytes:
        """Return the keys with which the cluster signs service account tokens."""
        return await self._cluster.signing_keys()

    async def create(self, kind: ObjectKind, manifest: Raw) -> Raw:
        """Create an object, as the leader."""
        self._require()
        return await self._cluster.create(kind, manifest)

    async def replace(self, kind: ObjectKind, manifest: Raw) -> Raw | None:
        """Replace an object, as the leader."""
        self._require()
        return await self._cluster.replace(kind, manifest)

    async def delete(
        self, kind: ObjectKind, name: str, *, uid: str | None, grace_seconds: int | None
    ) -> bool:
        """Start the deletion of an object, as the leader."""
        self._require()
        return await self._cluster.delete(kind, name, uid=uid, grace_seconds=grace_seconds)

    async def delete_collection(
        self, kind: ObjectKind, selector: str, fields: str, resource_version: str
    ) -> None:
        """Begin the deletion of all objects that matched at one moment, as the leader."""
        self._require()
        await self._cluster.delete_collection(kind, selector, fields, resource_version)

    async def patch_status(self, kind: ObjectKind, name: str, body: Raw) -> Raw | None:
        """Apply a merge patch to the status subresource, as the leader."""
        self._require()
        return await self._cluster.patch_status(kind, name, body)

    async def patch(self, kind: ObjectKind, name: str, body: Raw) -> bool:
        """Apply a merge patch to an object, as the leader."""
        self._require()
        return await self._cluster.patch(kind, name, body)
