"""Finds network policies of a run that are missing or have drifted. Pure.

The API server fills in defaults, and an admission policy of the administrator may change what is
created. So a policy is right when its content is what the run needs, or what the server made of it
in answer to this process's own create. Nothing that lies in the object itself is believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from securebench.core.json_values import object_at, object_in
from securebench.run.observe.pods import ObjectView, Raw

PEERS = ("from", "to")


class Repair(NamedTuple):
    """A policy to make.

    Attributes:
        name: Its name.
        edited_uid: UID of the one that has to go first, or empty where there is none.
    """

    name: str
    edited_uid: str = ""


@dataclass(frozen=True, slots=True)
class ObservedPolicies:
    """The policies of a run.

    Attributes:
        wanted: What the run needs: manifests by name.
        found: What is there, by name.
        stored: What the server made of those that this process created: content by name.
    """

    wanted: Mapping[str, Raw]
    found: Mapping[str, ObjectView]
    stored: Mapping[str, Raw]

    def repairs(self) -> Iterator[Repair]:
        """Yield what is missing, and what somebody edited."""
        for name, manifest in self.wanted.items():
            view = self.found.get(name)
            if view is None:
                yield Repair(name)
            elif not self._is_right(manifest, view):
                yield Repair(name, view.uid)

    def _is_right(self, manifest: Raw, view: ObjectView) -> bool:
        right = [object_at(manifest, "spec")]
        if view.name in self.stored:
            right.append(self.stored[view.name])
        return normalized(view.spec) in map(normalized, right)


def normalized(spec: Raw) -> Raw:
    """Return the content of a NetworkPolicy in one of the ways to write it.

    Args:
        spec: With or without the defaults of the API server: a port's protocol is TCP, an empty
            list of rules, peers or ports is left out. An empty selector selects everything and
            stays.
    """
    lists = {key: [_rule(rule) for rule in _items(spec, key)] for key in ("ingress", "egress")}
    rest = {key: value for key, value in spec.items() if key not in lists}
    if "podSelector" in rest:
        rest["podSelector"] = _selector(rest["podSelector"])
    return {**rest, **lists}


def _rule(rule: object) -> Raw:
    raw = object_in(rule)
    rest = {key: value for key, value in raw.items() if value != []}
    for key in PEERS:
        if key in rest:
            rest[key] = [_peer(peer) for peer in _items(raw, key)]
    if "ports" in rest:
        rest["ports"] = [{"protocol": "TCP", **object_in(port)} for port in _items(raw, "ports")]
    return rest


def _peer(peer: object) -> Raw:
    return {
        key: _selector(value) if key.endswith("Selector") else value
        for key, value in object_in(peer).items()
    }


def _selector(selector: object) -> Raw:
    return {key: value for key, value in object_in(selector).items() if value not in ({}, [])}


def _items(raw: Raw, key: str) -> list[object]:
    value = raw.get(key)
    return list(value) if isinstance(value, list | tuple) else []
