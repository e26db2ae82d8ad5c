"""Notices for the Kubernetes Events of a run: changed conditions and lost launches. Pure.

Source: decision 0050.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from securebench.run.api.status import (
    Condition,
    ConditionStatus,
    ConditionType,
    Reason,
    get_condition,
)
from securebench.run.decide.waits import GENERIC_REASONS, shortened, told_waits
from securebench.run.observe.waiting import WAIT_KINDS, deduplication_key
from securebench.run.plan.model import RunPlan
from securebench.run.state.attempts import Lost

STARTED = "Started"
WAITING = "Waiting"
"""Reason of waits of which the condition's reason is generic."""

LAUNCH_LOST = "LaunchLost"
ISOLATION_VERIFIED = "IsolationVerified"
ISOLATION_DECLARED = "IsolationDeclared"

_NEEDS_ACTION = frozenset(
    reason.value
    for reason in (
        Reason.INPUT_MISSING,
        Reason.UNSCHEDULABLE,
        Reason.QUOTA_EXCEEDED,
        Reason.FORBIDDEN,
        Reason.REGISTRY_UNAVAILABLE,
        Reason.STORAGE_UNAVAILABLE,
        Reason.INTERNAL,
    )
)
"""Wait reasons that may need an action by a person; posted as warnings."""


class Notice(NamedTuple):
    """Content of one Event.

    Attributes:
        action: What was done or tried, one word for programs.
        reason: One word; that of the condition where it is one of a run's conditions.
        note: One sentence for people.
        is_warning: Whether somebody may have to do something.
        key: Notices of one reason and key are one Event that counts.
        kind: What it is about, one of few; the first of each reason and kind is always posted.
    """

    action: str
    reason: str
    note: str
    is_warning: bool
    key: str
    kind: str = ""


def changes(before: Sequence[Condition], after: Sequence[Condition]) -> Iterator[Notice]:
    """Yield notices for the conditions that changed.

    Args:
        before: As posted last, also by an earlier process, so that nothing is posted twice.
        after: As they are now.
    """
    old, new = _notices(before), _notices(after)
    for notice in dict.fromkeys(new):
        if notice not in old:
            yield notice


def _notices(conditions: Sequence[Condition]) -> list[Notice]:
    isolation = get_condition(conditions, ConditionType.ISOLATION_VERIFIED)
    succeeded = get_condition(conditions, ConditionType.SUCCEEDED)
    return [
        *([_isolation(isolation)] if isolation is not None else []),
        *(_progress(succeeded) if succeeded is not None else []),
    ]


def started(plan: RunPlan) -> Notice:
    """Return the notice of a run's start."""
    attempts = len(plan.tasks) * plan.policy.attempts
    note = f"pack {plan.pack_id} ({plan.pack_digest}), {attempts} attempts"
    return Notice("Start", STARTED, note, is_warning=False, key="")


def losses(lost: Iterable[Lost]) -> Iterator[Notice]:
    """Yield notices of lost launches; those with one cause share an Event with the first note."""
    for item in lost:
        launch = item.launch
        place = f"task {launch.task} attempt {launch.attempt} {launch.role.value} launch"
        note = f"{item.reason}: {item.message} ({place} {launch.launch})"
        yield Notice(
            "Launch", LAUNCH_LOST, note, is_warning=True, key=item.reason, kind=item.reason
        )


def _progress(succeeded: Condition) -> Iterator[Notice]:
    """Yield what ``Succeeded`` says: the end, or all that the run waits for."""
    if succeeded.status is not ConditionStatus.UNKNOWN:
        is_warning = succeeded.status is ConditionStatus.FALSE
        yield Notice("End", succeeded.reason, succeeded.message, is_warning, key="")
        return
    for reason, message in told_waits(succeeded.reason, succeeded.message):
        note = deduplication_key(message)
        if note:
            shown = WAITING if reason in GENERIC_REASONS else reason
            yield Notice("Wait", shown, note, reason in _NEEDS_ACTION, shortened(note), _kind(note))


def _kind(note: str) -> str:
    return next((words for words in WAIT_KINDS if note.startswith(words)), "")


def _isolation(found: Condition) -> Notice:
    reason_shown = {
        ConditionStatus.TRUE: ISOLATION_VERIFIED,
        ConditionStatus.UNKNOWN: ISOLATION_DECLARED,
        ConditionStatus.FALSE: Reason.ISOLATION_NOT_VERIFIED.value,
    }[found.status]
    is_warning = found.status is ConditionStatus.FALSE
    return Notice("Isolate", reason_shown, found.message, is_warning, key="")
