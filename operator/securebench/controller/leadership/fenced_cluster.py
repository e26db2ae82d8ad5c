"""A Cluster that rejects writes once leadership is lost (fencing)."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping

from securebench.cluster.port import Cluster, Listing, ObjectKind, Raw, WatchEvent


class FencedCluster:
    """Implements ``securebench.cluster.port.Cluster``.

    What passes while the Lease holds and arrives later was decided by the leader and is in the
    journal that the next one reads (decision 0066).

    Args:
        cluster: The namespace.
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
