"""What launches need of the network: policies, a gateway, a proof of isolation. Pure.

The API server fills in defaults of a NetworkPolicy. An admission policy of the administrator may
change a created object. So a policy is right when its content is what the run needs, or what the
server answered to this process's own create. Nothing in the object itself is believed.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from securebench.clock import Instant
from securebench.json_values import object_at, object_in
from securebench.run.decide import canary, gateway
from securebench.run.decide.canary import CanaryCheck, CanaryMemory, CanaryStep, ObservedCanary
from securebench.run.decide.gateway import GatewayMemory, GatewayStep, ObservedGateway
from securebench.run.observe.pods import ObjectView, Raw
from securebench.run.observe.waiting import ObservedProvider
from securebench.run.plan.model import Role
from securebench.run.state.entries import IsolationResult

PEERS = ("from", "to")


class Repair(NamedTuple):
    """A policy to make.

    Attributes:
        edited_uid: UID of the one that has to go first, or empty where there is none.
    """

    name: str
    edited_uid: str = ""


@dataclass(frozen=True, slots=True)
class NetworkState:
    """Observed and remembered state of a run's network.

    Attributes:
        repairs: Policies of the run that are missing or were edited.
        gateway: Its gateway, or None where it needs none.
        gateway_memory: What the process remembers of that.
        canary_memory: What the process remembers of the canary.
        check: What the canary has to prove; None if the user waived the proof.
        found: What is proven, or None before that.
        is_declared: Whether the user does without the proof.
        create_blocked: Why a create has to wait, for room in a quota, for rights or for an answer;
            or empty.
        monotonic: Time of the look, monotonic seconds.
        listed_at: Start of the latest list of Pods, monotonic seconds.
        answered_at: Start of the list of Pods that was answered after others had failed.
        last_vanished: Number of the latest probing Pod of a role that is gone.
        provider: Which launches the model provider makes wait.
    """

    repairs: tuple[Repair, ...] = ()
    gateway: ObservedGateway | None = None
    gateway_memory: GatewayMemory = field(default_factory=GatewayMemory)
    canary_memory: CanaryMemory = field(default_factory=CanaryMemory)
    check: CanaryCheck | None = None
    found: IsolationResult | None = None
    is_declared: bool = False
    create_blocked: str = ""
    monotonic: float = 0.0
    listed_at: float = math.inf
    answered_at: float = -math.inf
    last_vanished: Mapping[Role, int] = field(default_factory=dict)
    provider: ObservedProvider = field(default_factory=ObservedProvider)

    @property
    def has_policies(self) -> bool:
        """Whether all policies are there as they were made; without them no Pod is created."""
        return not self.repairs

    @property
    def has_address(self) -> bool:
        """Whether the gateway's Service has its address, or none is needed."""
        service = self.gateway.service if self.gateway is not None else None
        return self.gateway is None or bool(service is not None and service.address)

    @property
    def is_gateway_ready(self) -> bool:
        """Whether the gateway is there, or none is needed; without it no harness is created."""
        return self.gateway is None or self.gateway.is_ready

    @property
    def is_proven(self) -> bool:
        """Whether launches may begin by what was found."""
        return self.found is not None and not self.isolation_failure

    @property
    def creatable(self) -> Collection[Role]:
        """Roles whose Pods find the network that they need."""
        if not (self.has_policies and self.is_proven):
            return ()
        return (Role.VERIFIER, Role.HARNESS) if self.is_gateway_ready else (Role.VERIFIER,)

    @property
    def isolation_failure(self) -> str:
        """Why there will be no launch by what was found, in one sentence; empty before that."""
        found = self.found
        if found is None or (found.sandboxed and (found.verified or self.is_declared)):
            return ""
        return found.message


@dataclass(frozen=True, slots=True)
class NetworkStep:
    """The next actions for a run's network.

    Attributes:
        repairs: Policies to make.
        gateway: What to do about the gateway, or None for nothing.
        canary: What to do about the canary, or None for nothing.
        wake_at: When to decide again without an event, seconds since the epoch, or None.
    """

    repairs: tuple[Repair, ...] = ()
    gateway: GatewayStep | None = None
    canary: CanaryStep | None = None
    wake_at: float | None = None

    @property
    def needs_list(self) -> bool:
        """Whether Pods are to be listed: an event about them may have been lost."""
        return any(step is not None and step.needs_list for step in (self.gateway, self.canary))

    @property
    def found(self) -> IsolationResult | None:
        """What there is to be journalled about isolation, or None."""
        return self.canary.found if self.canary is not None else None


def network_step(
    network: NetworkState, seen: ObservedCanary, now: float, *, is_probing: bool
) -> NetworkStep:
    """Decide what to do for the launches of a run that has some or will have.

    Args:
        network: What is seen and remembered.
        seen: What is seen of the canary.
        now: Seconds since the epoch.
        is_probing: Whether a proof is still needed, and may be sought.
    """
    moment = Instant(now, network.monotonic)
    gateway_step = canary_step = None
    if network.gateway is not None and network.has_policies:
        gateway_step = gateway.decide(network.gateway, network.gateway_memory, moment)
    if is_probing:
        canary_step = canary.decide(seen, network.check, network.canary_memory, moment)
    steps = (step for step in (gateway_step, canary_step) if step is not None)
    wakes = (moment.wall_at(step.wake_at) for step in steps if step.wake_at is not None)
    return NetworkStep(network.repairs, gateway_step, canary_step, min(wakes, default=None))


@dataclass(frozen=True, slots=True)
class ObservedPolicies:
    """The policies of a run.

    Attributes:
        wanted: What the run needs: manifests by name.
        found: What is there, by name.
        stored: What the server made of those that this process created: content by name.
    """

    wanted: Mapping[str, Raw]
    found: Mapping[str, ObjectView]
    stored: Mapping[str, Raw]

    def repairs(self) -> Iterator[Repair]:
        """Yield what is missing, and what somebody edited."""
        for name, manifest in self.wanted.items():
            view = self.found.get(name)
            if view is None:
                yield Repair(name)
            elif not self._is_right(manifest, view):
                yield Repair(name, view.uid)

    def _is_right(self, manifest: Raw, view: ObjectView) -> bool:
        right = [object_at(manifest, "spec")]
        if view.name in self.stored:
            right.append(self.stored[view.name])
        return normalized(view.spec) in map(normalized, right)


def normalized(spec: Raw) -> Raw:
    """Return the content of a NetworkPolicy in one of the ways to write it.

    Args:
        spec: With or without the defaults of the API server: a port's protocol is TCP, an empty
            list of rules, peers or ports is left out. An empty selector selects everything and
            stays.
    """
    lists = {key: [_rule(rule) for rule in _items(spec, key)] for key in ("ingress", "egress")}
    rest = {key: value for key, value in spec.items() if key not in lists}
    if "podSelector" in rest:
        rest["podSelector"] = _selector(rest["podSelector"])
    return {**rest, **lists}


def _rule(rule: object) -> Raw:
    raw = object_in(rule)
    rest = {key: value for key, value in raw.items() if value != []}
    for key in PEERS:
        if key in rest:
            rest[key] = [_peer(peer) for peer in _items(raw, key)]
    if "ports" in rest:
        rest["ports"] = [{"protocol": "TCP", **object_in(port)} for port in _items(raw, "ports")]
    return rest


def _peer(peer: object) -> Raw:
    return {
        key: _selector(value) if key.endswith("Selector") else value
        for key, value in object_in(peer).items()
    }


def _selector(selector: object) -> Raw:
    return {key: value for key, value in object_in(selector).items() if value not in ({}, [])}


def _items(raw: Raw, key: str) -> list[object]:
    value = raw.get(key)
    return list(value) if isinstance(value, list | tuple) else []
