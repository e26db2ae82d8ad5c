"""What each launch of a run waits for, for those who watch it. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from securebench.core.clock import Instant
from securebench.protocol.launch_waits import SharedWait, shared_waits
from securebench.run.decide.attempt.decision_cache import LaunchPods
from securebench.run.decide.network.network_step import NetworkState
from securebench.run.decide.reporting.wait_reason import REPORT_DELAY_SECONDS, ObservedWrites
from securebench.run.layout import EGRESS_PROXY, HARNESS
from securebench.run.observe.pods import PodView
from securebench.run.observe.provider_waits import answer_waiting, waits_under_way
from securebench.run.observe.waiting import is_refused, launch_waiting
from securebench.run.plan.keys import Role
from securebench.run.state.attempt_index import AttemptIndex
from securebench.run.state.attempts import AttemptHistory

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
        report_at = history.live_since + REPORT_DELAY_SECONDS
        if history.live is not None and now < report_at:
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
