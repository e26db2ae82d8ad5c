"""How an API server reads selectors and changes objects, for the fake cluster."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from typing import cast

from securebench.cluster.port import Raw, metadata

Labels = Mapping[str, str]

_REQUIREMENT = re.compile(
    r"""\s*(?:
        (?P<set_key>[^\s,=!()]+)\s+(?P<set_op>in|notin)\s*\((?P<values>[^)]*)\)
      | (?P<key>[^\s,=!()]+)\s*(?P<op>==|!=|=)\s*(?P<value>[^\s,=!()]*)
      | (?P<absent>!)?\s*(?P<present>[^\s,=!()]+)
    )\s*(?:,|$)""",
    re.VERBOSE,
)

_DEFAULT_POD_GRACE_SECONDS = 30
_TERMINAL_PHASES = ("Succeeded", "Failed")


def labels(item: Raw) -> Mapping[str, str]:
    """Return an object's labels."""
    return cast("Mapping[str, str]", metadata(item).get("labels", {}))


def field_values(item: Raw) -> Mapping[str, str]:
    """Return what field selectors of this kind see."""
    status = cast("Raw", item.get("status", {}))
    return {
        "metadata.name": str(metadata(item)["name"]),
        "status.phase": str(status.get("phase", "")),
    }


def listed(item: Raw) -> Raw:
    """Return an object of a built-in kind as lists hold it: without apiVersion and kind."""
    return {key: value for key, value in item.items() if key not in ("apiVersion", "kind")}


def merge_patch(target: object, patch: object) -> object:
    """Return the target after a JSON merge patch (RFC 7396), without changing it."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    merged: dict[str, object] = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


def grace_seconds(pod: Raw, wanted: int | None) -> int:
    """Return the grace period that the API server grants to a Pod's deletion.

    Args:
        pod: The Pod.
        wanted: What the caller asked for, or None for the Pod's own.

    Returns:
        Seconds; 0 for a Pod that is on no node or has ended.
    """
    spec = cast("Raw", pod.get("spec", {}))
    phase = cast("Raw", pod.get("status", {})).get("phase")
    if "nodeName" not in spec or phase in _TERMINAL_PHASES:
        return 0
    own = spec.get("terminationGracePeriodSeconds", _DEFAULT_POD_GRACE_SECONDS)
    return cast("int", own) if wanted is None else wanted


def matcher(selector: str) -> Callable[[Labels], bool]:
    """Return the predicate of a label selector.

    Args:
        selector: ``a=b``, ``a==b``, ``a!=b``, ``a in (b,c)``, ``a notin (b,c)``, ``a``, ``!a``,
            joined by commas; empty matches everything.

    Returns:
        Whether labels match. As in Kubernetes, ``!=`` and ``notin`` match labels without the key.

    Raises:
        ValueError: The selector cannot be read.
    """
    requirements: list[Callable[[Labels], bool]] = []
    position = 0
    while position < len(selector):
        match = _REQUIREMENT.match(selector, position)
        if match is None:
            raise ValueError(f"cannot read the label selector {selector!r} at {position}")
        requirements.append(_requirement(match))
        position = match.end()
    return lambda labels: all(holds(labels) for holds in requirements)


def _requirement(match: re.Match[str]) -> Callable[[Labels], bool]:
    if (key := match["set_key"]) is not None:
        values = frozenset(value.strip() for value in match["values"].split(","))
        wanted = match["set_op"] == "in"
        return lambda labels: (labels.get(key) in values) is wanted
    if (key := match["key"]) is not None:
        value, wanted = match["value"], match["op"] != "!="
        return lambda labels: (labels.get(key) == value) is wanted
    key, wanted = match["present"], match["absent"] is None
    return lambda labels: (key in labels) is wanted
