"""What a Pod, an attempt or a run's model provider waits for, as the cluster reports it. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from securebench.clock import rfc3339
from securebench.protocol.gateway import ProviderWait, ProviderWaits
from securebench.reasons import IMAGE_PULL_FAILED
from securebench.run.api.status import Reason
from securebench.run.layout import CONTROL_CHECK, MATERIALIZE
from securebench.run.observe.pods import MAIN_CONTAINERS, ContainerView, PodView
from securebench.run.observe.stage import CONTAINER_WAITS, IMAGE_WAITS
from securebench.run.plan.model import LaunchKey, harness_launch
from securebench.run.state.attempts import AttemptHistory
from securebench.run.state.history import AttemptIndex

REPORTED_AGES_SECONDS = (5, 10, 20, 40)
"""Ages that a message says in the first minute; afterwards whole minutes. Every one of them is a
write of the status, so they are few."""

MINUTE_SECONDS = 60

CANNOT_PULL = "cannot pull"
"""Begins the message about an image that cannot be pulled."""

PULLING = "pulling "
"""Begins the message about an image that is being pulled."""

PROVIDER = "waiting for the model provider "
PROVIDER_SINCE = ": since "
"""Begin the message about an unavailable model provider, and the part of it that changes."""

CANNOT_START = "cannot start"
"""Begins the message about a container that the kubelet refuses to start."""

VOLUME_SILENT = "the results volume has not answered"
"""Begins the message about a call to the volume that does not return."""

_NAMED = re.compile(r'image "([^"]+)"')
_AGE = re.compile(r" for \d+ (?:s|min)$")
_TASK = re.compile(r"^task #\d+: ")
_COUNT = re.compile(r"\b\d+ Pods?\b")
_GATED = "Waiting: "
_AGAIN = "is launched again after "
_BEFORE = "; the launch before ended with "

WAIT_KINDS = (CANNOT_PULL, CANNOT_START, PULLING, PROVIDER, _GATED)
"""Beginnings of the messages that name one of many images, containers or queues."""

RUN_TO_COMPLETION = frozenset({MATERIALIZE, CONTROL_CHECK})
"""Init containers that end before the next container starts; the others stay."""


class WaitReason(NamedTuple):
    """What a run, a task or a Pod waits for.

    Attributes:
        reason: Reason of ``Succeeded`` if the run waits for it.
        message: One short sentence without a full stop; quotes the cluster where possible.
        changes_at: When the message changes without an event, seconds since the epoch, or None.
    """

    reason: Reason
    message: str
    changes_at: float | None = None


def pod_waiting(view: PodView, now: float) -> WaitReason | None:
    """Return what a Pod waits for before its main container runs, or None once it has run.

    Args:
        now: Seconds since the epoch.
    """
    if not view.is_living or has_begun(view):
        return None
    if view.gates:
        return _running(gated_message([view]))
    if view.unschedulable:
        return _running(f"unschedulable: {view.unschedulable}")
    if not view.facts.node:
        return _running("waiting for a node")
    if view.without_sandbox_since is not None:
        return WaitReason(
            Reason.RUNNING,
            f"waiting for node {view.facts.node} to mount volumes and make a sandbox",
        )
    return _container_waiting(view, now)


def launch_waiting(view: PodView, now: float) -> str:
    """Return what one Pod waits for, without its age; empty once its main container has run.

    Args:
        now: Seconds since the epoch.
    """
    found = pod_waiting(view, now)
    if found is None:
        return ""
    return f"waiting {_gated(view)}" if view.gates else _AGE.sub("", found.message)


def gated_message(views: Iterable[PodView]) -> str:
    """Return how many Pods are gated, by their queue or scheduling gate; empty for none."""
    places = Counter(_gated(view) for view in views if view.gates and view.is_living)
    told = (f"{count} Pod{'s' * (count > 1)} {place}" for place, count in sorted(places.items()))
    message = ", ".join(told)
    return f"{_GATED}{message}" if message else ""


def _gated(view: PodView) -> str:
    """Return what holds a gated Pod back, with its preposition."""
    return f"in queue {view.queue}" if view.queue else f"with scheduling gate {view.gates[0]}"


def _container_waiting(view: PodView, now: float) -> WaitReason:
    containers = view.containers.values()
    refused = next((each for each in containers if _is_refused(each)), None)
    if refused is not None:
        return _running(_refused(refused))
    since = view.sandbox_since or view.created_at
    has_begun_any = any(each.running or each.terminated for each in containers)
    volume_images = () if has_begun_any else view.volume_images
    for container in containers:
        began = container.terminated.finished_at if container.terminated else container.started_at
        since = max(since, began or since)
        if container.running and container.name in RUN_TO_COMPLETION:
            return _running(f"init container {container.name} runs")
        if container.running or container.terminated is not None:
            continue
        own = container.image or f"the image of container {container.name}"
        return _pulling(" or ".join((*volume_images, own)), since, now)
    return _running(f"starting on node {view.facts.node}")


def _is_refused(container: ContainerView) -> bool:
    return container.waiting_reason in IMAGE_WAITS | CONTAINER_WAITS


def _refused(container: ContainerView) -> str:
    message = f"{container.waiting_reason}: {container.waiting_message}".removesuffix(": ")
    if container.waiting_reason in IMAGE_WAITS:
        return f"{CANNOT_PULL} {_image(container) or 'the image'}: {message}"
    return f"{CANNOT_START} container {container.name}: {message}"


def _image(container: ContainerView) -> str:
    """Return the image that cannot be pulled: a container waits for those of its volumes, too."""
    message = container.waiting_message
    named = None if container.image and container.image in message else _NAMED.search(message)
    return named[1] if named is not None else container.image


def _pulling(images: str, since: float, now: float) -> WaitReason:
    """Return what a container that is being created waits for: its image, nearly always."""
    what = f"{PULLING}{images}"
    age = now - since
    if age >= MINUTE_SECONDS:
        minutes = int(age // MINUTE_SECONDS)
        return _running(f"{what} for {minutes} min", since + (minutes + 1) * MINUTE_SECONDS)
    later = min((step for step in REPORTED_AGES_SECONDS if step > age), default=MINUTE_SECONDS)
    passed = max((step for step in REPORTED_AGES_SECONDS if step <= age), default=0)
    return _running(f"{what} for {passed} s" if passed else what, since + later)


def _running(message: str, changes_at: float | None = None) -> WaitReason:
    """Return what a run waits for that is Running; callers who know better replace the reason."""
    return WaitReason(Reason.RUNNING, message, changes_at)


def after_loss(found: WaitReason, attempt: AttemptHistory | None) -> WaitReason:
    """Add to what an attempt's Pod waits for why it is not the first one, if it is not."""
    lost = attempt.last_lost if attempt is not None else None
    if lost is None:
        return found
    is_said = found.message.startswith(CANNOT_PULL) and lost.reason == IMAGE_PULL_FAILED
    why = lost.reason if is_said else f"{lost.reason}: {lost.message}"
    return found._replace(message=f"{found.message}{_BEFORE}{why}")


def is_about_unpulled(message: str) -> bool:
    """Whether a run's message is about an image that could not be pulled, now or before."""
    return CANNOT_PULL in message or IMAGE_PULL_FAILED in message


def deduplication_key(message: str) -> str:
    """Return what is waited for without task, times, counts and the loss before; may be empty."""
    _, message = without_task(message)
    return "" if message.startswith(_AGAIN) else lasting_words(message)


def without_task(message: str) -> tuple[str, str]:
    """Return the beginning of a message that names its task, which may be empty, and the rest."""
    found = _TASK.match(message)
    return (found[0], message[found.end() :]) if found is not None else ("", message)


def lasting_words(message: str) -> str:
    """Return a message that names no task without what changes by itself: times and counts."""
    if message.startswith(_GATED):
        return _COUNT.sub("Pods", message)
    if message.startswith(VOLUME_SILENT):
        return VOLUME_SILENT
    if message.startswith(PROVIDER):
        return message.partition(PROVIDER_SINCE)[0]
    return _AGE.sub("", message.partition(_BEFORE)[0])


def volume_silent(since: float, who: str) -> WaitReason:
    """Return what a run or a suite waits for whose call to the results volume does not return.

    Args:
        since: When the call began, seconds since the epoch.
        who: ``run`` or ``suite``.
    """
    message = f"{VOLUME_SILENT} since {rfc3339(since)}; the {who} goes on by itself once it does"
    return WaitReason(Reason.STORAGE_UNAVAILABLE, message)


def of_task(task: int, waiting: WaitReason) -> WaitReason:
    """Return what one task of a run waits for, with its index from 0."""
    return waiting._replace(message=f"task #{task}: {waiting.message}")


def next_try(attempts: Iterable[AttemptHistory]) -> WaitReason | None:
    """Return what the latest lost launch says of attempts that wait for their next one, or None."""
    lost = [
        each.last_lost for each in attempts if each.finish is None and each.last_lost is not None
    ]
    latest = min(lost, key=lambda each: (-each.at, each.launch), default=None)
    if latest is None:
        return None
    return _running(f"{_AGAIN}{latest.reason}: {latest.message}")


def is_refused(view: PodView) -> bool:
    """Whether the kubelet says of a Pod that has not begun that it cannot."""
    return any(map(_is_refused, view.containers.values()))


def has_begun(view: PodView) -> bool:
    """Whether the main container of a Pod runs or has run."""
    found = (view.containers.get(name) for name in MAIN_CONTAINERS if name != CONTROL_CHECK)
    return any(main is not None and (main.running or main.terminated) for main in found)


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
