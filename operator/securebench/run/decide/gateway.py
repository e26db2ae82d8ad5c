"""Decides about the gateway of a run from observation, memory and time. Pure.

A gateway Pod that ends is replaced by one with the next number; the Service in front of it keeps
its address. What a process remembers it finds out anew after a restart, at the price of a wait.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from securebench.clock import Instant, backoff
from securebench.run.observe.pods import ObjectView, PodView
from securebench.run.observe.waiting import pod_waiting

RESTART_SECONDS = 2.0
RESTART_LIMIT_SECONDS = 30.0
"""Pause before a gateway Pod that ended is replaced; doubled each time up to the limit. It is short
again after one that was ready for at least the limit."""

UNREADY_SECONDS = 30.0
"""A gateway that was ready and is not for so long is replaced: it stands still."""

SILENT_NODE_SECONDS = 90.0
"""A gateway whose node does not answer for so long is replaced: the node may be lost. After the API
server was away for more than 40 s every node looks like that, until its kubelet watches again (30
s, doubled by jitter, after a minute without), and agents read through its gateways all the time."""

STUCK_SECONDS = 60.0
"""A gateway that runs for so long and was never seen ready is replaced, too; an operator that
started again does not know whether it was."""

KEYS_SECONDS = 600.0
"""Polling interval of the cluster's signing keys, which may be rotated during a run."""

ANSWER_SECONDS = 2.0
"""Pause after a request without an answer."""


@dataclass(frozen=True, slots=True)
class ObservedGateway:
    """What the cluster shows of a run's gateway.

    Attributes:
        name: Name of the Service; a Pod's is this and its number.
        pods: Gateway Pods by number.
        last_vanished: Number of the latest gateway Pod that is gone, 0 for none.
        service: The Service, or None.
        create_blocked: Why a create has to wait, for room in a quota or for rights; or empty.
        start_seconds: Timeout for the gateway to become ready; then the run ends.
        listed_at: Start of the latest list of Pods, monotonic seconds.
        answered_at: Start of the list that the API server answered after an outage, monotonic
            seconds.
    """

    name: str
    pods: Mapping[int, PodView]
    last_vanished: int
    service: ObjectView | None
    create_blocked: str
    start_seconds: float
    listed_at: float = math.inf
    answered_at: float = -math.inf

    @property
    def ready(self) -> int:
        """Number of the newest Pod that is ready, 0 for none."""
        return max((number for number, view in self.pods.items() if is_ready(view)), default=0)

    @property
    def is_ready(self) -> bool:
        """Whether launches may begin: a Pod is ready and can be reached."""
        return bool(self.ready and self.service is not None and self.service.address)


@dataclass(frozen=True, slots=True)
class GatewayMemory:
    """What a process remembers of a run's gateway between two looks; times are monotonic seconds.

    Attributes:
        gone_since: Since when no gateway is ready, or None while one is, and before one was decided
            about.
        down_since: Since when one is waited for, or None while there is one; an outage, a silent
            node, requests without an answer, a quota and missing rights begin it anew.
        silent_since: Since when the node of the newest one does not answer, or None.
        next_at: Earliest time of the next create.
        failures: Pods that ended since one was ready for long.
        last_failed: Number of the latest of them.
        ready_uid: Uid of the Pod that was ready last.
        ready_since: Since when.
        running_uid: Uid of the Pod that runs without being ready.
        running_since: Since when that is known.
        keys_at: When the cluster's signing keys are read again.
        trouble: Why the gateway is not ready, in one sentence; empty while it is.
        failure: Why there will be no gateway, in one sentence; the run has to end. Empty before.
    """

    gone_since: float | None = None
    down_since: float | None = None
    silent_since: float | None = None
    next_at: float = 0.0
    failures: int = 0
    last_failed: int = 0
    ready_uid: str = ""
    ready_since: float = 0.0
    running_uid: str = ""
    running_since: float = 0.0
    keys_at: float = 0.0
    trouble: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class GatewayStep:
    """What to do now.

    Attributes:
        memory: What to remember.
        start: Number of the Pod to start, behind Service and files; 0 for none.
        needs_service: Whether the Service of a gateway that is ready has to be made anew.
        needs_keys: Whether the signing keys are due.
        delete: Pods to delete.
        wake_at: When to decide again without an event, monotonic seconds, or None.
        needs_list: Whether Pods are to be listed: an event about them may have been lost.
    """

    memory: GatewayMemory
    start: int = 0
    needs_service: bool = False
    needs_keys: bool = False
    delete: tuple[PodView, ...] = ()
    wake_at: float | None = None
    needs_list: bool = False


def decide(seen: ObservedGateway, known: GatewayMemory, now: Instant) -> GatewayStep:
    """Decide about the gateway of a run that needs one.

    Args:
        seen: What the cluster shows.
        known: What was decided before, by the same process.
        now: This moment.
    """
    if known.failure:
        return GatewayStep(known)
    at = now.monotonic
    known = _without_outage(known, seen.answered_at)
    step = _maintain(seen, known, at) if seen.ready else _replace_gateway(seen, known, now)
    memory = _with_timeout(seen, _with_absence(seen, step.memory, at), at)
    needs_list = not memory.failure and _is_late(seen, memory, at)
    wake_at = _wake_at(seen, memory, at)
    return replace(step, memory=memory, wake_at=wake_at, needs_list=needs_list)


def delayed(
    known: GatewayMemory, trouble: str, now: float, again_at: float | None = None
) -> GatewayMemory:
    """Return the memory after a request without an answer, with the timeout restarted.

    Args:
        known: What was remembered.
        trouble: Why there is no answer.
        now: Monotonic seconds.
        again_at: When to try again, monotonic seconds, else in a moment.
    """
    next_at = again_at if again_at is not None else now + ANSWER_SECONDS
    return replace(known, trouble=trouble, next_at=next_at, down_since=now)


def refused(known: GatewayMemory, refusal: str) -> GatewayMemory:
    """Return the memory after a permanent refusal."""
    return replace(known, failure=f"the run's gateway cannot be made: {refusal}")


def _without_outage(known: GatewayMemory, answered_at: float) -> GatewayMemory:
    """Return the memory with the waits begun anew during which the API server was away."""
    if known.down_since is None or known.down_since >= answered_at:
        return known
    return replace(
        known,
        down_since=answered_at,
        silent_since=None,
        running_since=max(known.running_since, answered_at),
    )


def is_ready(view: PodView) -> bool:
    """Return whether a gateway Pod serves."""
    return view.is_living and view.is_ready


def pod_trouble(view: PodView, now: float) -> str:
    """Return briefly why a Pod is not ready, as the cluster says it."""
    trouble = _failure(view)
    if trouble:
        return trouble
    found = pod_waiting(view, now)
    return found.message if found is not None else "it is starting"


def _failure(view: PodView) -> str:
    """Return what went wrong with a Pod, or nothing."""
    if view.unschedulable:
        return view.unschedulable
    for container in view.containers.values():
        end = container.terminated or container.previous
        if container.waiting_reason not in {"", "ContainerCreating", "PodInitializing"}:
            return f"{container.waiting_reason}: {container.waiting_message}"
        if end is not None:
            return f"it ended with exit code {end.exit_code} ({end.message or end.reason})"
    if view.is_terminal:
        return f"{view.reason}: {view.message}" if view.reason else "it ended"
    return ""


def _maintain(seen: ObservedGateway, known: GatewayMemory, now: float) -> GatewayStep:
    """Look after a gateway that is ready."""
    ready = seen.pods[seen.ready]
    if ready.uid != known.ready_uid:
        known = replace(known, ready_uid=ready.uid, ready_since=now)
    others = (view for view in seen.pods.values() if view is not ready)
    delete = tuple(view for view in others if view.deleting_since is None)
    if not seen.is_ready:
        is_gone = seen.service is None
        trouble = f"the gateway's Service {'is gone' if is_gone else 'has no address yet'}"
        down_since = now if known.down_since is None else known.down_since
        known = replace(known, down_since=down_since, trouble=known.trouble or trouble)
        needs_service = is_gone and now >= known.next_at
        return GatewayStep(known, needs_service=needs_service, delete=delete)
    known = replace(known, down_since=None, silent_since=None, trouble="")
    return GatewayStep(known, needs_keys=now >= known.keys_at, delete=delete)


def _replace_gateway(seen: ObservedGateway, known: GatewayMemory, now: Instant) -> GatewayStep:
    at = now.monotonic
    if known.down_since is None:
        is_calm = at >= known.ready_since + RESTART_LIMIT_SECONDS
        known = replace(known, down_since=at, failures=0 if is_calm else known.failures)
    newest = max((*seen.pods, seen.last_vanished))
    view = seen.pods.get(newest)
    if view is not None and view.is_living:
        return _wait_for(view, _with_silence(view, known, at), now)
    known = replace(known, silent_since=None)
    if newest > known.last_failed:
        message = pod_trouble(view, now.wall) if view is not None else "it disappeared"
        known = _failed(known, newest, f"gateway Pod {seen.name}-{newest}: {message}", at)
    return GatewayStep(known, start=newest + 1 if at >= known.next_at else 0)


def _with_silence(view: PodView, known: GatewayMemory, now: float) -> GatewayMemory:
    """Note since when the node of a Pod is silent; the time of what follows begins after that."""
    if not view.has_silent_node:
        return replace(known, silent_since=None)
    silent_since = now if known.silent_since is None else known.silent_since
    return replace(known, silent_since=silent_since, down_since=now)


def _wait_for(view: PodView, known: GatewayMemory, now: Instant) -> GatewayStep:
    at = now.monotonic
    known = replace(known, trouble=f"gateway Pod {view.name}: {_words(view, known, now.wall)}")
    if view.uid != known.ready_uid:
        is_running = any(container.running for container in view.containers.values())
        if not is_running:
            known = replace(known, running_uid="")
        elif view.uid != known.running_uid:
            known = replace(known, running_uid=view.uid, running_since=at)
    is_late = at >= _replace_at(view, known)
    return GatewayStep(known, delete=(view,) if is_late else ())


def _words(view: PodView, known: GatewayMemory, now: float) -> str:
    if view.has_silent_node:
        return "its node does not answer"
    if view.uid == known.ready_uid:
        return _failure(view) or "it runs and is not ready"
    return pod_trouble(view, now)


def _replace_at(view: PodView, known: GatewayMemory) -> float:
    """Return when a Pod is replaced that is not ready by then."""
    if known.silent_since is not None:
        return known.silent_since + SILENT_NODE_SECONDS
    if view.uid == known.ready_uid:
        return (known.down_since or 0.0) + UNREADY_SECONDS
    return known.running_since + STUCK_SECONDS if view.uid == known.running_uid else math.inf


def _failed(known: GatewayMemory, number: int, trouble: str, now: float) -> GatewayMemory:
    failures = known.failures + 1
    pause = backoff(RESTART_SECONDS, RESTART_LIMIT_SECONDS, failures)
    known = replace(known, last_failed=number, failures=failures)
    return replace(known, trouble=trouble, next_at=now + pause)


def _with_absence(seen: ObservedGateway, known: GatewayMemory, now: float) -> GatewayMemory:
    if seen.is_ready:
        return replace(known, gone_since=None)
    return known if known.gone_since is not None else replace(known, gone_since=now)


def _with_timeout(seen: ObservedGateway, known: GatewayMemory, now: float) -> GatewayMemory:
    """End the waiting for a gateway in time; quotas and rights are waited for elsewhere.

    A list that began after that time has to show no gateway, too.
    """
    if known.down_since is None:
        return known
    if seen.create_blocked:
        return replace(known, down_since=now)
    if not _is_late(seen, known, now) or not _is_late(seen, known, seen.listed_at):
        return known
    seconds = f"{seen.start_seconds:g}"
    return replace(known, failure=f"the run had no gateway for {seconds} seconds: {known.trouble}")


def _is_late(seen: ObservedGateway, known: GatewayMemory, at: float) -> bool:
    return known.down_since is not None and at >= known.down_since + seen.start_seconds


def _wake_at(seen: ObservedGateway, known: GatewayMemory, now: float) -> float | None:
    if known.failure:
        return None
    if known.down_since is None:
        return known.keys_at
    newest = max(seen.pods, default=0)
    times = (
        known.next_at,
        _replace_at(seen.pods[newest], known) if newest else math.inf,
        known.down_since + seen.start_seconds,
        now + UNREADY_SECONDS,
    )
    return min(at for at in times if at > now)
