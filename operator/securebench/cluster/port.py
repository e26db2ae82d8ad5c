"""The port to the API server: everything that SecureBench asks of a cluster.

Objects are raw JSON as the API server sends it: typed models cost several times as much and add
nothing that the pure code needs. One ``Cluster`` serves one namespace.

ClusterError
├── AlreadyExists              create: the name is taken
├── WatchExpired               watch: list again
├── TransientClusterError
│   └── QuotaExceeded          create: wait for quota; not a failure
└── PermanentClusterError
    └── Forbidden              RBAC or admission rejects the request until somebody fixes it

Source: design 2.5, 7.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol, cast

from securebench.errors import ClusterError, PermanentClusterError, TransientClusterError
from securebench.run.api.field_types import KIND
from securebench.suite.api import KIND as SUITE_KIND

Raw = Mapping[str, object]
"""One API object as decoded JSON; treated as immutable."""

WATCH_SERVER_SECONDS = 300
WATCH_CLIENT_SECONDS = 330
"""Timeouts of a watch; the client's is longer, so that only a dead connection reaches it."""


def metadata(item: Raw) -> dict[str, object]:
    """Return a copy of an object's metadata."""
    return dict(cast("Raw", item.get("metadata", {})))


class ObjectKind(StrEnum):
    """The kinds of objects that SecureBench reads or creates; all are namespaced."""

    POD = "Pod"
    SERVICE = "Service"
    NETWORK_POLICY = "NetworkPolicy"
    CONFIG_MAP = "ConfigMap"
    SECRET = "Secret"  # noqa: S105 - the name of a kind
    BENCHMARK_RUN = KIND
    BENCHMARK_SUITE = SUITE_KIND
    EVENT = "Event"
    LEASE = "Lease"


class Listing(NamedTuple):
    """A consistent list.

    Args:
        items: Objects of one snapshot, in the API server's order.
        resource_version: Resource version of the snapshot; a watch from here misses no change.
    """

    items: tuple[Raw, ...]
    resource_version: str


class WatchEvent(NamedTuple):
    """One change.

    Args:
        type: ADDED, MODIFIED, DELETED, or BOOKMARK, whose object has only a resourceVersion.
        object: The object after the change; for DELETED its last state.
    """

    type: str
    object: Raw


class AlreadyExists(ClusterError):  # noqa: N818 - named as in the API
    """An object of this kind and name already exists."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} already exists", name=name)
        self.name = name


class WatchExpired(ClusterError):  # noqa: N818 - named as in the API
    """The resource version is too old to continue from: list again."""


class QuotaExceeded(TransientClusterError):  # noqa: N818 - named as in the API
    """The namespace's quota is exhausted."""


class Forbidden(PermanentClusterError):  # noqa: N818 - named as in the API
    """RBAC or admission rejects the request; it succeeds once somebody has fixed them."""


class Cluster(Protocol):
    """One namespace of a cluster.

    Every method except ``watch`` sends requests with a timeout and may raise
    ``PermanentClusterError`` or ``QuotaExceeded`` (no effect), or another
    ``TransientClusterError`` (unknown effect: repeat until the result is conclusive).
    """

    @property
    def requests(self) -> Mapping[tuple[str, ObjectKind], int]:
        """Requests sent so far, by verb and kind, except those for signing keys."""
        ...

    async def list(self, kind: ObjectKind, selector: str) -> Listing:
        """Return all matching objects as one consistent list.

        Args:
            selector: Label selector; empty for all objects of the kind.
        """
        ...

    def watch(
        self, kind: ObjectKind, selector: str, resource_version: str
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield changes after a resource version; ends normally at the server's time limit.

        To stop early, use ``contextlib.aclosing``, so that the connection is released.

        Raises:
            WatchExpired: The resource version is too old.
            TransientClusterError: The connection broke.
        """
        ...

    async def create(self, kind: ObjectKind, manifest: Raw) -> Raw:
        """Create an object and return it as the server stored it.

        Raises:
            AlreadyExists: The name is taken.
            QuotaExceeded: The quota is exhausted, and no object of this name exists.
        """
        ...

    async def get(self, kind: ObjectKind, name: str) -> Raw | None:
        """Return the object, or None if it does not exist."""
        ...

    async def replace(self, kind: ObjectKind, manifest: Raw) -> Raw | None:
        """Replace an object as it was read, with the uid and resource version that it had then.

        Without the uid, the API server makes some kinds anew that are gone.

        Returns:
            The object as the server stored it; None if it was changed since, or is gone.
        """
        ...

    async def delete(
        self, kind: ObjectKind, name: str, *, uid: str | None, grace_seconds: int | None
    ) -> bool:
        """Start the deletion of an object; dependents are deleted in the background.

        Args:
            uid: Precondition on the uid; None deletes any object of that name.
            grace_seconds: None keeps the object's own grace period.

        Returns:
            Whether the object existed.
        """
        ...

    async def delete_collection(
        self, kind: ObjectKind, selector: str, fields: str, resource_version: str
    ) -> None:
        """Begin the deletion of all objects that matched at one moment; later ones stay.

        An object is deleted by its name: who holds that name by then goes.

        Args:
            resource_version: The moment.

        Raises:
            WatchExpired: The moment is too long ago.
        """
        ...

    async def patch_status(self, kind: ObjectKind, name: str, body: Raw) -> Raw | None:
        """Apply a merge patch to the status subresource.

        Whatever object has that name by then: of a custom resource's status the API server takes no
        uid as a precondition, but a ``metadata.resourceVersion``.

        Args:
            body: ``{"status": {...}}``; null removes a key.

        Returns:
            The object as the server stored it; None if there is none of that name.

        Raises:
            TransientClusterError: The object has another resource version than the body names.
        """
        ...

    async def patch(self, kind: ObjectKind, name: str, body: Raw) -> bool:
        """Apply a merge patch to an object, in which null removes a key.

        A ``metadata.uid`` in it is a precondition: the patch is for that object alone.

        Returns:
            False if the object is gone, or another one has its name.
        """
        ...

    async def signing_keys(self) -> bytes:
        """Return the keys with which the cluster signs service account tokens.

        Returns:
            A JSON Web Key Set (RFC 7517), as sent by the API server.
        """
        ...
