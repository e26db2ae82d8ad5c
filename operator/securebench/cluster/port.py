"""What the control plane may ask of a cluster, and nothing else.

Objects are raw JSON as the API server sends it: typed models cost several times as much and say
nothing that the pure code could use. One ``Cluster`` speaks for one namespace.

ClusterError
├── AlreadyExists              create: the name is taken
├── WatchExpired               watch: list again
└── TransientClusterError
    └── QuotaExceeded          create: waits for room, is not a failure

Source: design 2.5, 7.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol, cast

from securebench.core.errors import ClusterError, TransientClusterError
from securebench.run.api.base import KIND

Raw = Mapping[str, object]
"""One API object as decoded JSON. Nobody changes it in place."""


def metadata(item: Raw) -> dict[str, object]:
    """Return a copy of an object's metadata."""
    return dict(cast("Raw", item.get("metadata", {})))


class ObjectKind(StrEnum):
    """The kinds of objects that SecureBench reads or makes; all are namespaced."""

    POD = "Pod"
    SERVICE = "Service"
    NETWORK_POLICY = "NetworkPolicy"
    CONFIG_MAP = "ConfigMap"
    SECRET = "Secret"  # noqa: S105 - the name of a kind
    BENCHMARK_RUN = KIND
    EVENT = "Event"


class Listing(NamedTuple):
    """A consistent list.

    Args:
        items: Objects of one moment, in the order of the API server.
        resource_version: That moment; a watch from here misses nothing.
    """

    items: tuple[Raw, ...]
    resource_version: str


class WatchEvent(NamedTuple):
    """One change.

    Args:
        type: ADDED, MODIFIED, DELETED, or BOOKMARK, whose object holds a resourceVersion only.
        object: The object after the change; for DELETED its last state.
    """

    type: str
    object: Raw


class AlreadyExists(ClusterError):  # noqa: N818 - the API's own word for it
    """An object of this kind and name exists.

    Args:
        name: Its name.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} already exists", name=name)
        self.name = name


class WatchExpired(ClusterError):  # noqa: N818 - the API's own word for it
    """The resource version is too old to continue from: list again."""


class QuotaExceeded(TransientClusterError):  # noqa: N818 - the API's own word for it
    """The namespace's quota leaves no room now."""


class Cluster(Protocol):
    """One namespace of a cluster.

    Every method but ``watch`` sends bounded requests and may raise ``PermanentClusterError`` or
    ``QuotaExceeded`` (there was no effect) or another ``TransientClusterError`` (the effect is
    unknown: repeat until the answer is definite).
    """

    @property
    def requests(self) -> Mapping[tuple[str, ObjectKind], int]:
        """Requests sent so far, by verb and kind; those for signing keys are not among them."""
        ...

    async def list(self, kind: ObjectKind, selector: str) -> Listing:
        """Return all objects that match, as one consistent list.

        Args:
            kind: What to list.
            selector: Label selector; empty for all objects of the kind.
        """
        ...

    def watch(
        self, kind: ObjectKind, selector: str, resource_version: str
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield changes after a resource version; ends normally at the server's time limit.

        Leave it early through ``contextlib.aclosing``, so that the connection is given back.

        Raises:
            WatchExpired: The resource version is too old.
            TransientClusterError: The connection broke.
        """
        ...

    async def create(self, kind: ObjectKind, manifest: Raw) -> Raw:
        """Create an object and return it as the server stored it.

        Raises:
            AlreadyExists: The name is taken.
            QuotaExceeded: There is no room now, and no object of this name either.
        """
        ...

    async def get(self, kind: ObjectKind, name: str) -> Raw | None:
        """Return the object, or None when there is none."""
        ...

    async def delete(
        self, kind: ObjectKind, name: str, *, uid: str | None, grace_seconds: int | None
    ) -> bool:
        """Begin the deletion of an object; its dependents go in the background.

        Args:
            kind: Kind of the object.
            name: Its name.
            uid: Delete only this very object; None takes whatever has the name.
            grace_seconds: None leaves the object's own grace period.

        Returns:
            Whether there was such an object.
        """
        ...

    async def delete_collection(
        self, kind: ObjectKind, selector: str, fields: str, resource_version: str
    ) -> None:
        """Begin the deletion of all objects that matched at one moment; later ones stay.

        An object is deleted by its name: who holds that name by then goes.

        Args:
            kind: Kind of the objects.
            selector: Label selector.
            fields: Field selector.
            resource_version: The moment.

        Raises:
            WatchExpired: The moment is too long ago.
        """
        ...

    async def patch_status(self, kind: ObjectKind, name: str, body: Raw) -> bool:
        """Apply a merge patch to the status subresource.

        Args:
            kind: Kind of the object.
            name: Its name.
            body: ``{"status": {...}}``; null removes a key.

        Returns:
            False when the object is gone.
        """
        ...

    async def patch(self, kind: ObjectKind, name: str, body: Raw) -> bool:
        """Apply a merge patch to an object.

        Args:
            kind: Kind of the object.
            name: Its name.
            body: What changes; null removes a key.

        Returns:
            False when the object is gone.
        """
        ...

    async def signing_keys(self) -> bytes:
        """Return the keys with which the cluster signs tokens of service accounts.

        Returns:
            A JSON Web Key Set (RFC 7517), as the API server gives it.
        """
        ...
