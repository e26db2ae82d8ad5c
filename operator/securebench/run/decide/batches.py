"""Which sealed candidates of text families share one verifier Pod, and when it begins. Pure.

Source: decision 0061.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from securebench.run.plan.model import LaunchKey, Role, RunPlan, VerifierKind
from securebench.run.state.attempts import AttemptHistory

MOST_MEMBERS = 32
"""Launches of one batch: each is two mounts and about 300 bytes of the Pod."""

WAIT_SECONDS = 5.0
"""The longest wait for company. Nobody waits whom no other can join."""

FEWEST_SLOTS = 4
"""Places of a run below which nobody waits: those that wait hold one among them."""


class Sealed(NamedTuple):
    """A verifier launch that may share its Pod.

    Attributes:
        launch: Its launch.
        since: When its candidate was captured, seconds since the epoch; 0 if unknown.
    """

    launch: LaunchKey
    since: float


class Batches(NamedTuple):
    """What becomes of the launches that wait.

    Attributes:
        ready: Those that begin, by Pod.
        due_at: When those left begin without further company, or None. Until then they hold one
            place, so that they find it free; agents may run for hours.
    """

    ready: tuple[tuple[LaunchKey, ...], ...] = ()
    due_at: float | None = None


def may_share(plan: RunPlan, history: AttemptHistory, launch: LaunchKey) -> bool:
    """Whether a launch that may begin shares its Pod; one that was lost as a verifier does not."""
    lost = history.last_lost
    is_first = lost is None or lost.launch.role is Role.HARNESS
    return is_first and launch.role is Role.VERIFIER and _is_text(plan, history)


def will_share(plan: RunPlan, history: AttemptHistory) -> bool:
    """Whether the candidate of an unfinished attempt is still to come and may join a batch."""
    return history.production is None and _is_text(plan, history)


def batches(waiting: Iterable[Sealed], now: float, *, has_company: bool) -> Batches:
    """Divide the launches that wait into Pods.

    Args:
        waiting: Those whose candidates are sealed.
        now: Seconds since the epoch.
        has_company: Whether another launch of the run may still join them.

    Returns:
        Full batches, and the rest once its oldest has waited long enough or nobody else comes.
    """
    ordered = sorted(waiting, key=lambda sealed: sealed.since)
    groups = [ordered[at : at + MOST_MEMBERS] for at in range(0, len(ordered), MOST_MEMBERS)]
    due_at = None
    if has_company and groups and len(groups[-1]) < MOST_MEMBERS:
        since = groups[-1][0].since
        if since <= now < since + WAIT_SECONDS:
            due_at = since + WAIT_SECONDS
            groups.pop()
    ready = (tuple(sorted(sealed.launch for sealed in group)) for group in groups)
    return Batches(tuple(ready), due_at)


def _is_text(plan: RunPlan, history: AttemptHistory) -> bool:
    return plan.tasks[history.key.task].verifier is VerifierKind.TEXT
