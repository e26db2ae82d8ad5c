"""What the parts of the controller share: one value, made once at start-up."""

from __future__ import annotations

from dataclasses import dataclass

from securebench.clock import Clock
from securebench.kube.port import Cluster
from securebench.kube.retry import TokenBucket
from securebench.manifests.canary import ProbeTarget
from securebench.settings import Settings


@dataclass(frozen=True, slots=True)
class Context:
    """The operator's surroundings.

    Attributes:
        cluster: Its namespace.
        settings: As the chart wrote them.
        clock: The wall clock.
        bucket: Rate of Pod creation of the whole operator.
        node_name: Node that the operator runs on, or empty when unknown.
        targets: What no Pod of a run may reach.
    """

    cluster: Cluster
    settings: Settings
    clock: Clock
    bucket: TokenBucket
    node_name: str
    targets: tuple[ProbeTarget, ...]
