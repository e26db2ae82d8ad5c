"""The file in which the operator tells the command line what launches of a run wait for.

Source: docs/reference/protocol.md, exec; decision 0100.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Final

from securebench.json_values import objects_at, text_at, text_in
from securebench.protocol.messages import decode_object
from securebench.sizes import MIB

MAX_WAIT_CHARACTERS: Final = 400
"""Of one message; a longer one is cut."""

MAX_WAIT_MESSAGES: Final = 100
"""Different messages in the file; Pods with another one wait for ``OTHER_WAIT``."""

OTHER_WAIT: Final = "its Pod has not begun"

MAX_WAITS_BYTES: Final = MIB
"""Longest file that is read; that of 1,000 Pods, as many as a run may have, is shorter."""

_WAITS: Final = "waits"


@dataclass(frozen=True, slots=True)
class SharedWait:
    """What one or more Pods of a run wait for.

    Attributes:
        message: One clause without a full stop and without an age; quotes the cluster.
        pods: Names of the Pods, sorted.
        has_begun: Whether their main container runs, and what runs in it waits.
    """

    message: str
    pods: tuple[str, ...]
    has_begun: bool = False


def shared_waits(messages: Mapping[tuple[str, bool], Iterable[str]]) -> tuple[SharedWait, ...]:
    """Return waits within the bounds of the file, those of the most Pods first.

    Args:
        messages: Names of Pods by what they wait for, and by whether they have begun.
    """
    found: dict[tuple[str, bool], list[str]] = {}
    for (message, has_begun), pods in messages.items():
        found.setdefault((_cut(message), has_begun), []).extend(pods)
    order = sorted(found, key=lambda key: (-len(found[key]), key))
    kept = {key: found[key] for key in order[:MAX_WAIT_MESSAGES]}
    others = [pod for key in order[MAX_WAIT_MESSAGES:] if not key[1] for pod in found[key]]
    if others:
        kept.setdefault((OTHER_WAIT, False), []).extend(others)
    return tuple(
        SharedWait(message, tuple(sorted(pods)), has_begun)
        for (message, has_begun), pods in kept.items()
    )


def encode_waits(waits: Iterable[SharedWait]) -> dict[str, object]:
    """Return the content of the file."""
    return {_WAITS: [asdict(each) for each in waits]}


def decode_waits(text: bytes) -> tuple[SharedWait, ...]:
    """Return the waits of a file; fields that are not known are left out.

    Raises:
        ValueError: It is no JSON object.
    """
    return tuple(
        SharedWait(text_at(each, "message"), _names(each), each.get("has_begun") is True)
        for each in objects_at(decode_object(text), _WAITS)
    )


def _names(values: Mapping[str, object]) -> tuple[str, ...]:
    names = values.get("pods")
    return tuple(map(text_in, names)) if isinstance(names, list) else ()


def _cut(message: str) -> str:
    return (
        message if len(message) <= MAX_WAIT_CHARACTERS else f"{message[: MAX_WAIT_CHARACTERS - 1]}…"
    )
