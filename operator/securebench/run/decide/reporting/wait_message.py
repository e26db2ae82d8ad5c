"""The message of a run that waits for several things, and what it says of each. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from securebench.run.api.conditions import Reason
from securebench.run.observe.waiting import WaitReason, lasting_words, without_task

ALSO = "; also "
"""Precedes each further wait in a message."""

MAX_WORDS = 240
"""Characters that a message has at most of each further wait."""

GENERIC_REASONS = frozenset(
    reason.value for reason in (Reason.STARTING, Reason.RUNNING, Reason.PROBING)
)
"""Reasons that do not imply a wait; a message does not name them."""

_NAMED = frozenset(reason.value for reason in Reason) - GENERIC_REASONS


def joined(waits: Iterable[WaitReason]) -> WaitReason | None:
    """Return waits as one, with the reason of the first; None without any.

    The first message is kept as it is. The further ones have no times and counts: each change of a
    message is a write of the status.

    Args:
        waits: By priority, at most one of each kind. Those without a message are not told yet.
    """
    found = list(waits)
    if not found:
        return None
    told = [each for each in found if each.message]
    changing = [each for each in found if not each.message] + told[:1]
    further = dict.fromkeys(map(_further, told[1:]))
    first = _as_one(told[0].message) if told else ""
    return WaitReason(
        found[0].reason,
        ALSO.join((first, *further)),
        min((each.changes_at for each in changing if each.changes_at is not None), default=None),
    )


def told_waits(reason: str, message: str) -> Iterator[tuple[str, str]]:
    """Yield reason and message of each wait that a run's condition tells of, the first one first.

    Args:
        reason: The reason of the condition.
        message: Its message, as ``joined`` makes it.
    """
    first, *further = message.split(ALSO)
    yield reason, first
    for each in further:
        name, _, words = each.partition(": ")
        yield (name, words) if name in _NAMED else (Reason.RUNNING.value, each)


def shortened(words: str) -> str:
    """Return words with at most ``MAX_WORDS`` characters."""
    return words if len(words) <= MAX_WORDS else words[: MAX_WORDS - 1] + "…"


def _further(wait: WaitReason) -> str:
    task, words = without_task(_as_one(wait.message))
    name = "" if wait.reason in GENERIC_REASONS else f"{wait.reason.value}: "
    return f"{name}{task}{shortened(lasting_words(words))}"


def _as_one(message: str) -> str:
    """Return a message that cannot be taken for several: it may quote the cluster."""
    return message.replace(ALSO, "; ")
