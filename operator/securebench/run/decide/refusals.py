"""How long a create that the API server rejects is retried. Pure.

RBAC, Pod Security and webhooks are fixed without notice and are unavailable for a minute during
cluster upgrades, so only a persistent rejection ends a run.

Source: decision 0055.
"""

from __future__ import annotations

from dataclasses import dataclass

from securebench.clock import BACKOFF_SECONDS, backoff

RETRY_LIMIT_SECONDS = 60.0
"""Longest pause between two tries: a run continues within a minute of the repair."""

REMEDY = "mend the operator's rights, Pod Security or the admission webhook that refuses it"


@dataclass(frozen=True, slots=True)
class RefusedCreate:
    """An object that the API server refuses to create, each time since a moment.

    Attributes:
        message: What is refused, what happens and what to do, in one line.
        tries: Refusals so far.
        waited_seconds: Sum of all pauses, the next one included; time in which the object was not
            wanted, as of a run at rest, does not count.
        again_at: When it is tried again, monotonic seconds; None: not any more.
    """

    message: str
    tries: int
    waited_seconds: float
    again_at: float | None


def refused_again(
    known: RefusedCreate | None, refusal: str, now: float, limit_seconds: float
) -> RefusedCreate:
    """Return what is known after one more refusal.

    Args:
        known: After the refusal before, if nothing else was answered since.
        refusal: Kind and name of the object and the server's message, as ``Pod x: message``.
        now: Monotonic seconds.
        limit_seconds: For how long it is tried; the last try is at its end. 0: no other try.
    """
    tries = known.tries + 1 if known is not None else 1
    waited = known.waited_seconds if known is not None else 0.0
    if waited >= limit_seconds:
        return RefusedCreate(f"{refusal}; {REMEDY}", tries, waited, None)
    pause = min(backoff(BACKOFF_SECONDS, RETRY_LIMIT_SECONDS, tries), limit_seconds - waited)
    message = f"{refusal}; tried again for up to {limit_seconds:g} seconds; {REMEDY}"
    return RefusedCreate(message, tries, waited + pause, now + pause)
