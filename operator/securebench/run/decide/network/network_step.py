"""Decides the next step for a run's policies, gateway and isolation proof. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from securebench.core.clock import Instant
from securebench.run.decide.network import canary, gateway
from securebench.run.decide.network.canary import (
    CanaryMemory,
    CanaryStep,
    ObservedCanary,
)
from securebench.run.decide.network.gateway import GatewayMemory, GatewayStep, ObservedGateway
from securebench.run.decide.network.policies import Repair
from securebench.run.decide.network.probing import CanaryCheck
from securebench.run.observe.provider_waits import ObservedProvider
from securebench.run.plan.keys import Role
from securebench.run.state.entries import IsolationResult


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
