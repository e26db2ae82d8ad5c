"""What a run, and each of its launches, reports that it waits for, and from when. Pure.

A run has one wait reason; its message names every wait, the first one with times and counts. Those
who watch a run are also told what each launch waits for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from securebench.clock import Instant
from securebench.protocol.volume import SharedWait, shared_waits
from securebench.run.api.status import Reason
from securebench.run.decide.canary import canary_waiting
from securebench.run.decide.decision_cache import LaunchesUnderWay, LaunchPods
from securebench.run.decide.network import NetworkState
from securebench.run.layout import EGRESS_PROXY, HARNESS
from securebench.run.observe.pods import PodView
from securebench.run.observe.waiting import (
    ObservedProvider,
    WaitReason,
    after_loss,
    answer_waiting,
    gated_message,
    is_refused,
    lasting_words,
    launch_waiting,
    longest_wait,
    next_try,
    of_task,
    pod_waiting,
    provider_waiting,
    waits_under_way,
    without_task,
)
from securebench.run.plan.model import Role
from securebench.run.state.attempts import AttemptHistory
from securebench.run.state.history import AttemptIndex

REPORT_DELAY_SECONDS = 3.0
"""A wait between tasks, or while others run, is reported after this long; rejections, losses and
waits before the first task are reported at once."""

SUSPENDED_MESSAGE = "spec.suspend is true: nothing of the run is under way"

PARKED_MESSAGE = "waiting for a slot: other runs have their turn (settings.turnSeconds)"

YIELDING_MESSAGE = (
    "its turn is over and other runs are Queued: launches that are under way end, then it queues "
    "again (settings.turnSeconds)"
)

GATEWAY_MESSAGE = "the run's gateway is being made"


class Throttled(NamedTuple):
    """Pods that a limit of the operator keeps from starting.

    Attributes:
        message: What they wait for, or empty without any.
        since: Since when, seconds since the epoch; None: only now.
    """

    message: str = ""
    since: float | None = None


@dataclass(frozen=True, slots=True)
class ObservedWrites:
    """State of the requests that change the cluster.

    Attributes:
        refusal: The API server's message after one was refused permanently, or empty.
        trouble: Why the last create of an object that is still wanted had no answer, or empty.
        quota: The API server's message while a quota refuses a create, or empty.
        forbidden: Which create authorization or admission refuses at the moment, and why; or empty.
        is_idle: Whether none is under way.
        rate: Creates that wait for the operator's rate limit.
    """

    refusal: str = ""
    trouble: str = ""
    quota: str = ""
    forbidden: str = ""
    is_idle: bool = True
    rate: Throttled = field(default_factory=Throttled)


def run_waits(
    network: NetworkState,
    pods: Collection[PodView],
    attempts: AttemptIndex,
    now: float,
    writes: ObservedWrites,
    launches: LaunchesUnderWay,
) -> Iterator[WaitReason]:
    """Yield what a run and its tasks wait for by priority, at most one wait of each kind.

    Those that are not told yet have no message.

    Args:
        network: State of the network: observed, and remembered.
        attempts: All attempts of the run.
        now: Seconds since the epoch.
        writes: What is known of requests that change the cluster.
        launches: What is under way.
    """
    if writes.quota:
        yield WaitReason(Reason.QUOTA_EXCEEDED, writes.quota)
    if writes.forbidden:
        yield WaitReason(Reason.FORBIDDEN, writes.forbidden)
    around = _around_wait(network, pods, attempts, now, writes.trouble)
    if around is not None:
        yield around
    # What is around the launches tells of its own Pods.
    stuck = [each for each in launches.unschedulable if around is None or each.launch is not None]
    if stuck:
        first = min(stuck, key=attrgetter("name"))
        yield WaitReason(Reason.UNSCHEDULABLE, first.unschedulable)
    if launches.is_working:
        yield from _task_waits(launches, attempts, network.provider, now)
    else:
        yield from _start_waits(launches, attempts, now)


def parked_wait(*, is_yielding: bool) -> WaitReason:
    """Return what a run waits for of which nothing is under way: its user, or its turn.

    Args:
        is_yielding: Whether it rests only because its turn is over.
    """
    if is_yielding:
        return WaitReason(Reason.QUEUED, PARKED_MESSAGE)
    return WaitReason(Reason.SUSPENDED, SUSPENDED_MESSAGE)


def _task_waits(
    launches: LaunchesUnderWay, attempts: AttemptIndex, provider: ObservedProvider, now: float
) -> Iterator[WaitReason]:
    """Yield what tasks wait for while others work.

    A Pod that is refused comes first, then a lost launch, a wait for the model provider, a Pod that
    starts slowly, Pods with scheduling gates.
    """
    if launches.refused is not None:
        yield from _task_pod_wait(launches.refused, now, report_at=now)
    yield from _next_try(launches, attempts)
    longest, oldest = longest_wait(provider, attempts), launches.waiting
    if longest is not None:
        report_at = longest.wait.since + REPORT_DELAY_SECONDS
        yield _reported_from(report_at, provider_waiting(provider, longest, now), now)
    if oldest is not None:
        yield from _task_pod_wait(oldest, now, oldest.created_at + REPORT_DELAY_SECONDS)
    gated = gated_message(launches.gated)
    if gated:
        report_at = min(view.created_at for view in launches.gated) + REPORT_DELAY_SECONDS
        yield _reported_from(report_at, WaitReason(Reason.RUNNING, gated), now)


def _task_pod_wait(view: PodView, now: float, report_at: float) -> Iterator[WaitReason]:
    """Yield what the Pod of a launch waits for, reported from a moment on."""
    found = pod_waiting(view, now)
    if view.launch is not None and found is not None:
        yield _reported_from(report_at, of_task(view.launch.task, found), now)


def _next_try(launches: LaunchesUnderWay, attempts: AttemptIndex) -> Iterator[WaitReason]:
    """Yield why a task is launched again later while others work."""
    if launches.again:
        lost = attempts[min(launches.again)]
        found = next_try([lost])
        if found is not None:
            yield of_task(lost.key.task, found)


def _start_waits(
    launches: LaunchesUnderWay, attempts: AttemptIndex, now: float
) -> Iterator[WaitReason]:
    """Yield what a run waits for of which no launch works: the oldest Pod comes first."""
    gated = gated_message(launches.gated)
    if gated:
        yield WaitReason(Reason.SCHEDULING_GATED, gated)
    views = [view for view in (launches.refused, launches.waiting) if view is not None]
    for view in sorted(views, key=attrgetter("created_at", "name")):
        found = pod_waiting(view, now)
        if view.launch is not None and found is not None:
            found = after_loss(found, attempts.get(view.launch.attempt_key))
            yield _early(found, attempts, view.created_at + REPORT_DELAY_SECONDS, now)
    has_pods = views or launches.gated or launches.unschedulable
    lost = [attempts[key] for key in launches.again]
    found = next_try(lost if lost or has_pods else attempts.under_way)
    if found is not None:
        yield _early(found, attempts, now, now)


def _early(found: WaitReason, attempts: AttemptIndex, report_at: float, now: float) -> WaitReason:
    """Return a wait that is told at once before the first result, else from a moment on."""
    if not attempts.has_results:
        return found._replace(reason=Reason.STARTING)
    return _reported_from(report_at, found, now)


def throttled_wait(
    held: Throttled, now: float, *, is_idle: bool, has_results: bool
) -> WaitReason | None:
    """Return which limit holds Pods back, or None where there are none.

    Args:
        held: What holds them back.
        now: Seconds since the epoch.
        is_idle: Whether the run has no Pod of a launch; that is reported at once.
        has_results: Whether an attempt has ended or handed something in.
    """
    if not held.message:
        return None
    report_at = (held.since if held.since is not None else now) + REPORT_DELAY_SECONDS
    if not is_idle and now < report_at:
        return WaitReason(Reason.RUNNING, "", report_at)
    return WaitReason(
        Reason.STARTING if is_idle and not has_results else Reason.RUNNING, held.message
    )


def _reported_from(report_at: float, found: WaitReason, now: float) -> WaitReason:
    """Return a reason, without its message before the moment from which it is reported."""
    return found if now >= report_at else WaitReason(found.reason, "", report_at)


def _around_wait(
    network: NetworkState,
    pods: Collection[PodView],
    attempts: AttemptIndex,
    now: float,
    trouble: str,
) -> WaitReason | None:
    """Return what policies, gateway, canary and creates wait for, or None."""
    found = _network_wait(network, pods, trouble, now)
    if not trouble or network.repairs:
        return found
    early = Reason.RUNNING if attempts.has_results else Reason.STARTING
    reason = found.reason if found is not None else early
    return WaitReason(reason, f"{trouble}; tried again")


def _network_wait(
    network: NetworkState, pods: Collection[PodView], trouble: str, now: float
) -> WaitReason | None:
    """Return what the launches of a run wait for before they may begin, or None."""
    if network.repairs:
        return WaitReason(Reason.STARTING, trouble) if trouble else None
    is_first, message = network.found is None, network.gateway_memory.trouble
    if not network.is_gateway_ready and (message or is_first):
        return WaitReason(Reason.GATEWAY_STARTING, message or GATEWAY_MESSAGE)
    if is_first and network.check is not None:
        moment = Instant(now, network.monotonic)
        return canary_waiting(pods, network.canary_memory, moment)
    return None


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


GATEWAY_WAIT = "waiting for the run's gateway"

GATEWAY_GONE = "the run's gateway is not ready"
"""Of an agent that had reached it; whether it needs it now is not known."""

CREATE_WAIT = "its Pod is being created"


class LaunchWaits(NamedTuple):
    """What launches wait for.

    Attributes:
        waits: Waits that have lasted for ``REPORT_DELAY_SECONDS``.
        changes_at: When the next one has, seconds since the epoch, or None.
    """

    waits: tuple[SharedWait, ...] = ()
    changes_at: float | None = None


def launch_waits(
    live: LaunchPods,
    pods: Mapping[str, PodView],
    attempts: AttemptIndex,
    network: NetworkState,
    writes: ObservedWrites,
    now: float,
) -> LaunchWaits:
    """Return what the launches wait for whose main container has not begun, or whose agent waits.

    Costs as much as there are Pods that have not begun; of all Pods while the gateway is not ready.

    Args:
        live: Pods of live launches.
        pods: All Pods of the run by name.
        attempts: All attempts of the run.
        network: State of the network, with what the model provider makes wait.
        writes: What is known of requests that change the cluster.
        now: Seconds since the epoch.
    """
    found: dict[tuple[str, bool], list[str]] = defaultdict(list)
    later: list[float] = []
    for name in live.starting:
        history = attempts[next(iter(live.attempts_of(name)))]
        launched = history.launched
        report_at = launched.since + REPORT_DELAY_SECONDS if launched is not None else now
        if now < report_at:
            later.append(report_at)
        elif message := _waiting(history, pods.get(name), network, writes, now):
            found[message, False].append(name)
    gone = _without_gateway(live, pods, network, now)
    later += [gone.report_at] if gone.report_at is not None else []
    for name, key in gone.pods.items():
        found[key].append(name)
    for each in waits_under_way(network.provider, attempts):
        report_at = each.wait.since + REPORT_DELAY_SECONDS
        if now < report_at:
            later.append(report_at)
        elif each.wait.pod not in live.starting and each.wait.pod not in gone.pods:
            found[answer_waiting(network.provider.host, each.wait), True].append(each.wait.pod)
    return LaunchWaits(shared_waits(found), min(later, default=None))


class _WithoutGateway(NamedTuple):
    """Pods of agents while their run's gateway is not ready.

    Args:
        pods: What is said of them, and whether what runs in them has begun, by name.
        report_at: From when on it is said, seconds since the epoch, if it is not said yet.
    """

    pods: Mapping[str, tuple[str, bool]]
    report_at: float | None = None


def _without_gateway(
    live: LaunchPods, pods: Mapping[str, PodView], network: NetworkState, now: float
) -> _WithoutGateway:
    """Return the Pods whose main container runs while the gateway is not ready.

    One whose sidecar was started since then has not reached it, and its agent waits for that.
    """
    if network.is_gateway_ready:
        return _WithoutGateway({})
    views = {name: pods[name] for name in live.started if name in pods}
    agents = {name: view for name, view in views.items() if _is_agent_at_work(view)}
    known = network.gateway_memory.gone_since
    if known is None and not network.has_policies:
        # Nothing is decided about the gateway before they are there.
        return _WithoutGateway({})
    # The memory is that of the pass before; if it is the first one without a gateway, this one
    # will remember it.
    since = now if known is None else Instant(now, network.monotonic).wall_at(known)
    if agents and now < since + REPORT_DELAY_SECONDS:
        return _WithoutGateway({}, since + REPORT_DELAY_SECONDS)
    return _WithoutGateway(
        {
            name: (GATEWAY_WAIT, False) if _has_begun_after(view, since) else (GATEWAY_GONE, True)
            for name, view in agents.items()
        }
    )


def _is_agent_at_work(view: PodView) -> bool:
    main = view.containers.get(HARNESS)
    return view.is_living and main is not None and main.running


def _has_begun_after(view: PodView, since: float) -> bool:
    sidecar = view.containers.get(EGRESS_PROXY)
    return sidecar is not None and sidecar.started_at is not None and sidecar.started_at >= since


def _waiting(
    history: AttemptHistory,
    view: PodView | None,
    network: NetworkState,
    writes: ObservedWrites,
    now: float,
) -> str:
    """Return what a launch waits for whose main container has not begun; empty if it has ended."""
    launch = history.live
    if launch is None:
        return ""
    is_held = view is not None and (view.gates or is_refused(view))
    if launch.role is Role.HARNESS and not network.is_gateway_ready and not is_held:
        return GATEWAY_WAIT
    if view is None:
        cause = writes.quota or writes.forbidden or writes.trouble or writes.rate.message
        return f"{CREATE_WAIT}: {cause}" if cause else CREATE_WAIT
    return launch_waiting(view, now)
