"""The Pods that show that a run's Pods reach nothing.

The same targets are tried from a canary, which the policy selects, and from a control, which it
does not select. A target counts as proven when the control reaches it and the canary does not; one
that the control does not reach proves nothing. The run's gateway, where it has one, is the only
address that the canary must reach; no control tries it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from securebench.protocol.messages import CLOSED, OPEN
from securebench.protocol.sidecar import GATEWAY_PORT
from securebench.run import layout
from securebench.run.plan.model import PodUserNamespaces, Role, RunPlan
from securebench.run.pods.parts import sizes, volumes
from securebench.run.pods.parts.commands import module_argv
from securebench.run.pods.parts.containers import trusted_container
from securebench.run.pods.parts.frame import Containers, Frame, Manifest, pod

if TYPE_CHECKING:
    from collections.abc import Sequence

ROUNDS = 4
"""A policy may take a moment to reach a new Pod, and so may its network."""

TIMEOUT_SECONDS = 2
"""Of one try; targets are inside the cluster or answer within this time."""

GATEWAY_TARGET = "gateway"
"""Name of the target that must be open; that of no other one."""

KUBELET_TARGET = "kubelet"
"""Name of the target on the operator's node; a network plugin may let a Pod reach its own node."""

PROBE_SECONDS = 60
"""Longer than all rounds take, whatever the number of targets: they are tried side by side."""


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """One address that a harness must not reach.

    Attributes:
        name: Unique among the targets; stands in the condition.
        host: Numeric address: the Pods have no resolver.
        port: From 1 to 65535.
        protocol: ``tcp`` (open when a connection is accepted) or ``udp`` (a DNS server; open
            when it answers a query).
        is_node: Whether it is the operator's node, which a run may allow its Pods to reach.
    """

    name: str
    host: str
    port: int
    protocol: Literal["tcp", "udp"]
    is_node: bool = False

    @property
    def authority(self) -> str:
        """Host and port as one word."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def canary_pod(
    plan: RunPlan,
    number: int,
    targets: Sequence[ProbeTarget],
    user_namespaces: PodUserNamespaces,
) -> Manifest:
    """Return the Pod that is as closed in as a harness Pod.

    Args:
        plan: The run; where its gateway's address is known, that is a target besides the others.
        number: Counts from 1.
        targets: What it tries to reach.
        user_namespaces: ON also shows that a Pod with a sub-path of the volume, this runtime class
            and a user namespace starts.
    """
    return _probe_pod(plan, Role.CANARY, number, targets, user_namespaces)


def control_pod(plan: RunPlan, number: int, targets: Sequence[ProbeTarget]) -> Manifest:
    """Return the same Pod without the policy: the proof that a closed target would answer.

    Args:
        plan: The run.
        number: Counts from 1.
        targets: What it tries to reach.
    """
    return _probe_pod(plan, Role.CONTROL, number, targets, PodUserNamespaces.OFF)


def _probe_pod(
    plan: RunPlan,
    role: Role,
    number: int,
    targets: Sequence[ProbeTarget],
    user_namespaces: PodUserNamespaces,
) -> Manifest:
    frame = Frame(
        name=layout.probe_name(plan.identity.uid, role, number),
        role=role,
        deadline_seconds=plan.pods.startup_allowance_seconds + PROBE_SECONDS,
        user_namespaces=user_namespaces,
    )
    spec: Manifest = {
        "want": CLOSED if role is Role.CANARY else OPEN,
        "rounds": ROUNDS,
        "timeout_seconds": TIMEOUT_SECONDS,
        "targets": [_told(target) for target in targets],
    }
    if role is Role.CANARY and plan.egress is not None and plan.egress.gateway:
        spec["must_open"] = [_gateway_target(plan.egress.gateway)]
    main = trusted_container(
        plan.pods,
        layout.PROBE,
        sizes.fixed_resources(sizes.PROBE_REQUESTS, sizes.PROBE_LIMITS),
        (
            volumes.mount(
                volumes.RESULTS,
                layout.PROBE_VOLUME,
                sub_path=layout.probe_folder(plan.identity.uid),
                read_only=True,
            ),
        ),
    )
    main["command"] = module_argv("sandbox.probe", spec)
    return pod(plan, frame, Containers(main, (volumes.claim(plan.pods.claim),)))


def _gateway_target(address: str) -> dict[str, object]:
    return _told(ProbeTarget(GATEWAY_TARGET, address, GATEWAY_PORT, "tcp"))


def _told(target: ProbeTarget) -> dict[str, object]:
    """Return what a probing Pod is told of a target."""
    return {
        "name": target.name,
        "host": target.host,
        "port": target.port,
        "protocol": target.protocol,
    }
