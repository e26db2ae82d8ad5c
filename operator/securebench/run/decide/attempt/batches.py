"""Batches: which sealed candidates of text families share a verifier Pod, and when. Pure.

Source: decision 0061.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from securebench.run.plan.keys import LaunchKey, Role
from securebench.run.plan.model import RunPlan, VerifierKind
from securebench.run.state.attempts import AttemptHistory

MAX_BATCH_MEMBERS = 32
"""Launches of one batch: each is two mounts and about 300 bytes of the Pod."""

MAX_WAIT_SECONDS = 5.0
"""A partial batch waits this long for further members, and only while there may be some."""

MIN_BATCH_SLOTS = 4
"""Parallelism below which no batch waits, because a waiting batch reserves one slot."""


class BatchableLaunch(NamedTuple):
    """A verifier launch that is ready to start and may share its Pod.

    Attributes:
        launch: The launch.
        since: When its candidate was captured, seconds since the epoch; 0 if unknown.
    """

    launch: LaunchKey
    since: float


class BatchDecision(NamedTuple):
    """Which batches start now.

    Attributes:
        ready: Launches that start, by Pod.
        due_at: When the partial batch starts as it is, or None without one. Until then it reserves
            one slot, so that it does not wait behind agents, which may run for hours.
    """

    ready: tuple[tuple[LaunchKey, ...], ...] = ()
    due_at: float | None = None


def is_batchable(plan: RunPlan, history: AttemptHistory, launch: LaunchKey) -> bool:
    """Whether a launch may share its Pod; not after an earlier verifier launch was lost."""
    lost = history.last_lost
    is_first = lost is None or lost.launch.role is Role.HARNESS
    return is_first and launch.role is Role.VERIFIER and _is_text(plan, history)


def may_become_batchable(plan: RunPlan, history: AttemptHistory) -> bool:
    """Whether an unfinished attempt, whose candidate is not sealed yet, may join a batch later."""
    return history.production is None and _is_text(plan, history)


def form_batches(
    waiting: Iterable[BatchableLaunch], now: float, *, may_grow: bool
) -> BatchDecision:
    """Group launches into batches of at most ``MAX_BATCH_MEMBERS``.

    Args:
        waiting: Launches that are ready to start.
        now: Seconds since the epoch.
        may_grow: Whether further launches of the run may join them later.

    Returns:
        Full batches, and the partial one once its oldest member has waited ``MAX_WAIT_SECONDS`` or
        no further member can come.
    """
    ordered = sorted(waiting, key=lambda each: each.since)
    groups = [
        ordered[at : at + MAX_BATCH_MEMBERS] for at in range(0, len(ordered), MAX_BATCH_MEMBERS)
    ]
    due_at = None
    if may_grow and groups and len(groups[-1]) < MAX_BATCH_MEMBERS:
        since = groups[-1][0].since
        if since <= now < since + MAX_WAIT_SECONDS:
            due_at = since + MAX_WAIT_SECONDS
            groups.pop()
    ready = (tuple(sorted(each.launch for each in group)) for group in groups)
    return BatchDecision(tuple(ready), due_at)


def _is_text(plan: RunPlan, history: AttemptHistory) -> bool:
    return plan.tasks[history.key.task].verifier is VerifierKind.TEXT
