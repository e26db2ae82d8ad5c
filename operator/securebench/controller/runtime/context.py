"""Dependencies shared by the controller's components, created once at start-up."""

from __future__ import annotations

from dataclasses import dataclass, field
from uuid import uuid4

from securebench.cluster.port import Cluster
from securebench.controller.runtime.capacity import SharedCapacity
from securebench.controller.runtime.creation_rate import CreationRate
from securebench.controller.runtime.keyed_locks import KeyedLocks
from securebench.controller.runtime.reading_budget import ReadingBudget
from securebench.controller.settings.settings import Settings
from securebench.controller.volume.lead import VolumeLead
from securebench.core.clock import Clock
from securebench.protocol.probe import ProbeTarget


@dataclass(frozen=True, slots=True)
class Context:
    """Shared parts of the operator: client, settings, clock.

    Attributes:
        cluster: Its namespace, as the leader sees it.
        settings: As the chart wrote them.
        clock: The wall clock.
        rate: Rate of Pod creation of the whole operator.
        capacity: What the runs have of what the operator bounds.
        node_name: Node that the operator runs on, or empty when unknown.
        targets: What no Pod of a run may reach.
        tools: Folder of the volume with the programs of task containers.
        lead: What lets this process write to the volume.
        reading: Memory for what candidates left, of the whole operator.
        pulls: Held while the image of a pack is pulled.
        process: Names this process in journals.
    """

    cluster: Cluster
    settings: Settings
    clock: Clock
    rate: CreationRate
    capacity: SharedCapacity
    node_name: str
    targets: tuple[ProbeTarget, ...]
    tools: str
    lead: VolumeLead
    reading: ReadingBudget = field(default_factory=ReadingBudget)
    pulls: KeyedLocks = field(default_factory=KeyedLocks)
    process: str = field(default_factory=lambda: uuid4().hex)
