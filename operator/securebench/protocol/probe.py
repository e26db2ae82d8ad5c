"""What the Pods try that prove a run's isolation, and within which times.

A canary must find every target closed but the run's gateway; a control must find them open.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TIMEOUT_SECONDS = 2
"""Of one try; targets are inside the cluster or answer within this time."""

QUIET_SECONDS = 2.0
"""Silence after which a canary is sure, if the control had its answers in half of the time."""

SETTLE_SECONDS = 8
"""For policy and network to reach a new Pod, besides the silence."""

GATEWAY_SECONDS = 28
"""The same for the first canary of a run, beside which the gateway is started."""

GATEWAY_TARGET = "gateway"
"""Name of the target that must be open; that of no other one."""

KUBELET_TARGET = "kubelet"
"""Name of the target on the operator's node; a network plugin may let a Pod reach its own node."""


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
