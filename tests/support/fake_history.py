"""What the fake cluster remembers of changes: for watches, and for looks at the past."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from securebench.cluster.port import ObjectKind, Raw, WatchEvent, metadata
from support.fake_objects import labels


@dataclass(frozen=True, slots=True)
class Change:
    version: int
    kind: ObjectKind
    type: str
    before: Raw | None
    after: Raw
    lost: bool


def shown(change: Change, matches: Callable[[Mapping[str, str]], bool]) -> WatchEvent | None:
    """Return what a watch with a selector sees of a change, or None."""
    if change.lost:
        return None
    if change.type == "BOOKMARK":
        return WatchEvent(change.type, change.after)
    seen = change.before is not None and matches(labels(change.before))
    sees = change.type != "DELETED" and matches(labels(change.after))
    if sees:
        return WatchEvent("MODIFIED" if seen else "ADDED", change.after)
    if change.before is None or not seen:
        return None
    version = {"resourceVersion": str(change.version)}
    return WatchEvent("DELETED", {**change.before, "metadata": metadata(change.before) | version})


def as_of(
    moment: int, history: Iterable[Change], kind: ObjectKind, now: Mapping[str, Raw]
) -> dict[str, Raw]:
    """Return the objects of a kind as they were at a resource version, by name.

    Args:
        moment: The resource version.
        history: All changes since then, and perhaps earlier ones.
        kind: Kind of the objects.
        now: The objects as they are, by name.
    """
    before: dict[str, Raw | None] = {}
    for change in history:
        if change.kind is kind and change.type != "BOOKMARK" and change.version > moment:
            before.setdefault(str(metadata(change.after)["name"]), change.before)
    return {name: item for name, item in {**now, **before}.items() if item is not None}
