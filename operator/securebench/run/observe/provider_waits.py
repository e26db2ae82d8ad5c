"""What a run's gateway says of its model provider: waits, and use of the budget. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from securebench.clock import rfc3339
from securebench.protocol.gateway import ProviderWait, ProviderWaits
from securebench.run.api.conditions import Reason
from securebench.run.observe.waiting import PROVIDER, PROVIDER_SINCE, WaitReason, of_task
from securebench.run.plan.keys import LaunchKey, harness_launch
from securebench.run.state.attempt_index import AttemptIndex


class LaunchWait(NamedTuple):
    """One launch that waits, with what the gateway says of it."""

    launch: LaunchKey
    wait: ProviderWait


@dataclass(frozen=True, slots=True)
class ObservedProvider:
    """What the gateway says of the run's model provider.

    Attributes:
        host: Host of the provider.
        launches: How many launches it makes wait.
        longest: Some of them, the longest wait first.
        tokens_used: Tokens of the run's budget that are used; 0 for a run without one.
    """

    host: str = ""
    launches: int = 0
    longest: tuple[LaunchWait, ...] = ()
    tokens_used: int = 0


def observed_provider(
    waits: ProviderWaits, run_uid: str, host: str, tokens_used: int = 0
) -> ObservedProvider:
    """Return what a gateway's files say; Pods that are not of the run are left out."""
    found = ((harness_launch(run_uid, wait.pod), wait) for wait in waits.longest)
    longest = tuple(LaunchWait(launch, wait) for launch, wait in found if launch is not None)
    return ObservedProvider(host, waits.launches, longest, tokens_used)


def longest_wait(provider: ObservedProvider, attempts: AttemptIndex) -> LaunchWait | None:
    """Return the launch that has waited for longest and is under way, or None."""
    return next(waits_under_way(provider, attempts), None)


def waits_under_way(provider: ObservedProvider, attempts: AttemptIndex) -> Iterator[LaunchWait]:
    """Yield the listed launches that are under way, the longest wait first.

    A launch whose Pod was deleted cannot tell its gateway that it has ended.
    """
    for each in provider.longest:
        attempt = attempts.get(each.launch.attempt_key)
        if attempt is not None and attempt.finish is None and attempt.live == each.launch:
            yield each


def provider_waiting(provider: ObservedProvider, longest: LaunchWait, now: float) -> WaitReason:
    """Return the wait reason of launches that wait for the model provider.

    Args:
        provider: What the gateway says.
        longest: The launch to name.
        now: Seconds since the epoch.
    """
    launch, wait = longest
    message = answer_waiting(provider.host, wait)
    until = wait.until if wait.until is not None and wait.until > now else None
    if until is not None:
        message += f", not before {rfc3339(until)}"
    more = provider.launches - 1
    if more > 0:
        message += f"; {more} more {'launch waits' if more == 1 else 'launches wait'}"
    return of_task(launch.task, WaitReason(Reason.RUNNING, message, until))


def answer_waiting(host: str, wait: ProviderWait) -> str:
    """Return what a launch waits for that waits for the model provider, and since when."""
    answers = f"answers {wait.status}" if wait.status else "does not answer as it should"
    return f"{PROVIDER}{host}, which {answers}{PROVIDER_SINCE}{rfc3339(wait.since)}"
