"""A cluster in memory for tests: deterministic, without tasks, time or network of its own.

It behaves as the API server does towards one namespace; what it claims is checked against a real
one by tests/contract. What a cluster does by itself (scheduling, the kubelet, garbage collection,
admission) happens only when a test says so.
"""

from __future__ import annotations

import asyncio
import copy
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, cast

from securebench.clock import Clock, rfc3339
from securebench.cluster.port import (
    AlreadyExists,
    Listing,
    ObjectKind,
    Raw,
    WatchEvent,
    WatchExpired,
    metadata,
)
from securebench.errors import ClusterError, InvariantViolationError, TransientClusterError
from support.fake_history import Change, as_of, shown
from support.fake_objects import field_values, labels, listed, matcher, merge_patch
from support.fake_objects import grace_seconds as granted_grace

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping


class Call(NamedTuple):
    """One request that the fake received."""

    verb: str
    kind: ObjectKind
    name: str


@dataclass(frozen=True, slots=True)
class _Failure:
    verb: str
    kind: ObjectKind | None
    error: ClusterError
    before: bool


class _StoppedClock:
    def now(self) -> float:
        return 1_767_225_600.0

    def monotonic(self) -> float:
        return 0.0


class FakeCluster:
    """Implements ``securebench.cluster.port.Cluster`` and the controls of a test.

    Args:
        namespace: Written into the objects.
        clock: Source of timestamps; by default time stands still.
        watch_waits: Whether a watch without news waits for a change or for ``end_watches``; when
            False it ends, as at the server's time limit, as soon as it has told everything.
    """

    def __init__(
        self,
        *,
        namespace: str = "default",
        clock: Clock | None = None,
        watch_waits: bool = True,
    ) -> None:
        self.namespace = namespace
        self.watch_waits = watch_waits
        self.calls: list[Call] = []
        self.requests: Counter[tuple[str, ObjectKind]] = Counter()
        self.keys = b'{"keys":[{"kty":"RSA","kid":"fake","alg":"RS256","n":"AQAB","e":"AQAB"}]}'
        self._clock: Clock = clock or _StoppedClock()
        self._objects: dict[ObjectKind, dict[str, Raw]] = {kind: {} for kind in ObjectKind}
        self.resource_version = 100
        self._oldest = self.resource_version
        self._created = 0
        self._history: list[Change] = []
        self._failures: list[_Failure] = []
        self._to_lose = 0
        self._watch_epoch = 0
        self._watch_error: ClusterError | None = None
        self._waiters: list[asyncio.Future[None]] = []

    # The port

    async def list(self, kind: ObjectKind, selector: str) -> Listing:
        """Return all objects that match, by name."""
        with self._call("list", kind, ""):
            found = self._select(kind, selector)
            return Listing(
                tuple(
                    listed(item) if kind is not ObjectKind.BENCHMARK_RUN else item for item in found
                ),
                str(self.resource_version),
            )

    async def watch(
        self, kind: ObjectKind, selector: str, resource_version: str
    ) -> AsyncGenerator[WatchEvent, None]:
        """Yield changes after a resource version; an empty one or "0" starts with what is there."""
        epoch = self._watch_epoch
        matches = matcher(selector)
        with self._call("watch", kind, ""):
            cursor = int(resource_version or "0")
            present = () if cursor else self._select(kind, selector)
            cursor = cursor or self.resource_version
        for item in present:
            yield WatchEvent("ADDED", item)
        while True:
            if cursor < self._oldest:
                raise WatchExpired(f"too old resource version: {cursor} ({self._oldest})")
            news = [change for change in self._history if change.version > cursor]
            for change in news:
                cursor = change.version
                if change.kind is kind and (event := shown(change, matches)) is not None:
                    yield event
            if self._watch_epoch != epoch and self._watch_error is not None:
                raise self._watch_error
            if self._watch_epoch != epoch or not (news or self.watch_waits):
                return
            if not news:
                await self._news()

    async def create(self, kind: ObjectKind, manifest: Raw) -> Raw:
        """Store an object as the API server would."""
        name = str(metadata(manifest)["name"])
        with self._call("create", kind, name):
            if name in self._objects[kind]:
                raise AlreadyExists(name)
            return self._write(kind, "ADDED", self._stamped(kind, manifest))

    async def get(self, kind: ObjectKind, name: str) -> Raw | None:
        """Return the object, or None."""
        with self._call("get", kind, name):
            return self._objects[kind].get(name)

    async def replace(self, kind: ObjectKind, manifest: Raw) -> Raw | None:
        """Store another content of an object that nobody has changed since it was read."""
        given = metadata(manifest)
        with self._call("replace", kind, str(given["name"])):
            item = self._objects[kind].get(str(given["name"]))
            kept = {} if item is None else metadata(item)
            if item is None and "uid" not in given:
                return self._write(kind, "ADDED", self._stamped(kind, manifest))
            if item is None or given["resourceVersion"] != kept["resourceVersion"]:
                return None
            owned = {key: kept[key] for key in ("uid", "creationTimestamp") if key in kept}
            changed = {**item, **copy.deepcopy(dict(manifest)), "metadata": {**given, **owned}}
            return self._replace(kind, item, changed)

    async def delete(
        self, kind: ObjectKind, name: str, *, uid: str | None, grace_seconds: int | None
    ) -> bool:
        """Begin a deletion; only running Pods and objects with finalizers stay for a while."""
        with self._call("delete", kind, name):
            item = self._objects[kind].get(name)
            if item is None or (uid is not None and metadata(item)["uid"] != uid):
                return False
            self._begin_deletion(kind, item, grace_seconds)
            return True

    async def delete_collection(
        self, kind: ObjectKind, selector: str, fields: str, resource_version: str
    ) -> None:
        """Begin the deletion of what matched at a moment, by name as the API server does."""
        with self._call("delete_collection", kind, ""):
            moment = int(resource_version)
            if moment < self._oldest:
                raise WatchExpired(f"The provided resource version {moment} is too old")
            matches, matches_fields = matcher(selector), matcher(fields)
            for name, item in as_of(moment, self._history, kind, self._objects[kind]).items():
                now = self._objects[kind].get(name)
                if now and matches(labels(item)) and matches_fields(field_values(item)):
                    self._begin_deletion(kind, now, None)

    async def patch_status(self, kind: ObjectKind, name: str, body: Raw) -> Raw | None:
        """Merge into the status; a patch that changes nothing makes no event."""
        with self._call("patch_status", kind, name):
            item = self._objects[kind].get(name)
            if item is None:
                return None
            stored = metadata(item)["resourceVersion"]
            if metadata(body).get("resourceVersion", stored) != stored:
                raise TransientClusterError("the object has been modified", status=409)
            status = merge_patch(item.get("status", {}), body.get("status", {}))
            return self._replace(kind, item, {**item, "status": status})

    async def patch(self, kind: ObjectKind, name: str, body: Raw) -> bool:
        """Merge into an object; a changed spec is a new generation."""
        with self._call("patch", kind, name):
            item = self._objects[kind].get(name)
            if item is None or metadata(body).get("uid") not in {None, metadata(item)["uid"]}:
                return False
            self.edit(kind, name, body)
            return True

    async def signing_keys(self) -> bytes:
        """Return a key set; ``keys`` holds what a test wants instead."""
        return self.keys

    async def user_name(self) -> str:
        """Return the caller's name."""
        return "ada"

    # What a test may look at and do

    def objects(self, kind: ObjectKind) -> Mapping[str, Raw]:
        """Return what is stored, by name, without counting as a request."""
        return dict(self._objects[kind])

    def fail_next(
        self, verb: str, error: ClusterError, *, before: bool = True, kind: ObjectKind | None = None
    ) -> None:
        """Make the next call fail, before or after it takes effect; calls queue up.

        Args:
            verb: Name of the port's method.
            error: What it raises.
            before: False lets it take effect first, as when the answer is lost.
            kind: Only calls for this kind.
        """
        self._failures.append(_Failure(verb, kind, error, before))

    def recover(self) -> None:
        """Fail no further call, and hide no further change."""
        self._failures.clear()
        self._to_lose = 0

    def lose_events(self, count: int) -> None:
        """Hide the next changes from every watch."""
        self._to_lose += count

    def expire_history(self) -> None:
        """Forget all changes: watches from before now raise WatchExpired."""
        self._history.clear()
        self.resource_version += 1
        self._oldest = self.resource_version
        self._wake()

    def end_watches(self, error: ClusterError | None = None) -> None:
        """End the open watches, normally as at the server's time limit, or with an error."""
        self._watch_epoch += 1
        self._watch_error = error
        self._wake()

    def bookmark(self, kind: ObjectKind) -> None:
        """Tell the open watches of a kind how far they are."""
        self.resource_version += 1
        marked: Raw = {
            "kind": kind.value,
            "metadata": {"resourceVersion": str(self.resource_version)},
        }
        self._record(Change(self.resource_version, kind, "BOOKMARK", None, marked, lost=False))

    def set_pod_status(self, name: str, status: Raw, *, node: str = "node-1") -> Raw:
        """Replace a Pod's status as the kubelet would; a Pod that left Pending is on a node."""
        item = self._objects[ObjectKind.POD][name]
        spec = cast("Raw", item.get("spec", {}))
        if status.get("phase") != "Pending" or "containerStatuses" in status:
            spec = {"nodeName": node, **spec}
        return self._replace(
            ObjectKind.POD, item, {**item, "spec": spec, "status": copy.deepcopy(dict(status))}
        )

    def edit(self, kind: ObjectKind, name: str, patch: Raw) -> Raw:
        """Merge into an object as a user would; a changed spec is a new generation."""
        item = self._objects[kind][name]
        edited = cast("dict[str, object]", merge_patch(item, patch))
        if edited.get("spec") != item.get("spec"):
            generation = cast("int", metadata(item).get("generation", 1))
            edited["metadata"] = {**metadata(edited), "generation": generation + 1}
        return self._replace(kind, item, edited)

    def finish_deletion(self, name: str, *, kind: ObjectKind = ObjectKind.POD) -> None:
        """Remove an object whose deletion has begun, as the kubelet does at the end."""
        if "deletionTimestamp" not in metadata(self._objects[kind][name]):
            raise InvariantViolationError(f"nobody deletes {name}", kind=kind)
        self.remove(kind, name)

    def remove(self, kind: ObjectKind, name: str) -> None:
        """Remove an object at once, whatever state it is in."""
        self._write(kind, "DELETED", self._objects[kind][name])

    def collect_garbage(self) -> tuple[str, ...]:
        """Delete everything whose owners are all gone; return the names, sorted."""
        collected: list[str] = []
        while orphans := [
            (kind, item)
            for kind, items in self._objects.items()
            for item in items.values()
            if self._is_orphan(item)
        ]:
            for kind, item in orphans:
                collected.append(str(metadata(item)["name"]))
                self._begin_deletion(kind, item, None)
        return tuple(sorted(collected))

    # Inside

    @contextmanager
    def _call(self, verb: str, kind: ObjectKind, name: str) -> Iterator[None]:
        self.calls.append(Call(verb, kind, name))
        self.requests[verb, kind] += 1
        failure = self._take_failure(verb, kind)
        if failure is not None and failure.before:
            raise failure.error
        try:
            yield
        except ClusterError:
            if failure is None:
                raise
        if failure is not None:
            raise failure.error

    def _take_failure(self, verb: str, kind: ObjectKind) -> _Failure | None:
        for failure in self._failures:
            if failure.verb == verb and failure.kind in (None, kind):
                self._failures.remove(failure)
                return failure
        return None

    def _select(self, kind: ObjectKind, selector: str) -> tuple[Raw, ...]:
        matches = matcher(selector)
        items = self._objects[kind]
        return tuple(items[name] for name in sorted(items) if matches(labels(items[name])))

    def _stamped(self, kind: ObjectKind, manifest: Raw) -> Raw:
        self._created += 1
        item: dict[str, object] = copy.deepcopy(dict(manifest))
        item["metadata"] = {
            **metadata(item),
            "namespace": self.namespace,
            "uid": f"00000000-0000-4000-8000-{self._created:012d}",
            "creationTimestamp": rfc3339(self._clock.now()),
            "generation": 1,
        }
        item.pop("status", None)
        if kind is ObjectKind.POD:
            item["status"] = {"phase": "Pending", **_gated(cast("Raw", item.get("spec", {})))}
        if kind is ObjectKind.SERVICE:
            spec = cast("Raw", item.get("spec", {}))
            item["spec"] = {"clusterIP": f"10.96.1.{self._created % 256}", **spec}
        return item

    def _replace(self, kind: ObjectKind, item: Raw, changed: Raw) -> Raw:
        return item if changed == item else self._write(kind, "MODIFIED", changed)

    def _write(self, kind: ObjectKind, change: str, item: Raw) -> Raw:
        name = str(metadata(item)["name"])
        self.resource_version += 1
        stored = {
            **item,
            "metadata": {**metadata(item), "resourceVersion": str(self.resource_version)},
        }
        before = self._objects[kind].pop(name, None)
        if change != "DELETED":
            self._objects[kind][name] = stored
        lost = self._to_lose > 0
        self._to_lose -= lost
        self._record(Change(self.resource_version, kind, change, before, stored, lost=lost))
        return stored

    def _begin_deletion(self, kind: ObjectKind, item: Raw, grace_seconds: int | None) -> None:
        """Mark a Pod or an object with finalizers; remove what nothing holds any longer."""
        meta = metadata(item)
        name, held = str(meta["name"]), bool(meta.get("finalizers"))
        grace = granted_grace(item, grace_seconds) if kind is ObjectKind.POD else 0
        earlier = meta.get("deletionGracePeriodSeconds")
        later = isinstance(earlier, int) and earlier <= grace
        if (held or kind is ObjectKind.POD) and not later:
            marks = {
                "deletionTimestamp": rfc3339(self._clock.now() + grace),
                "deletionGracePeriodSeconds": grace,
                "generation": cast("int", meta["generation"]) + 1,
            }
            self._write(kind, "MODIFIED", {**item, "metadata": meta | marks})
        if grace == 0 and not held:
            self.remove(kind, name)

    def _is_orphan(self, item: Raw) -> bool:
        owners = cast("tuple[Raw, ...]", metadata(item).get("ownerReferences", ()))
        if not owners or "deletionTimestamp" in metadata(item):
            return False
        alive = {
            metadata(other)["uid"] for items in self._objects.values() for other in items.values()
        }
        return not any(owner["uid"] in alive for owner in owners)

    def _record(self, change: Change) -> None:
        self._history.append(change)
        self._wake()

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def _news(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)


def _gated(spec: Raw) -> dict[str, object]:
    """Return what the API server says in the status of a new Pod with scheduling gates."""
    if not spec.get("schedulingGates"):
        return {}
    condition = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    return {"conditions": [condition]}
