"""What the parts of the controller are given: shared dependencies, an object, a frozen pack.

``Context`` is made once, when the process begins to lead. ``RunObject`` and ``SuiteObject`` are
the parts of a BenchmarkRun and a BenchmarkSuite that the controller works with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4
from weakref import WeakValueDictionary

from securebench.clock import Clock
from securebench.cluster.port import Cluster
from securebench.controller.capacity import CreationRate, SharedCapacity
from securebench.controller.reading import Reading
from securebench.controller.settings import Settings
from securebench.controller.volume.lead import VolumeLead
from securebench.json_values import object_at, text_at
from securebench.names import (
    AUDIT,
    PURPOSE_LABEL,
    QUEUE_LABEL,
    REQUESTER_ANNOTATION,
    RERUN_ANNOTATION,
)
from securebench.protocol.supervise import ProbeTarget
from securebench.run.api.field_types import KIND as RUN_KIND
from securebench.run.api.status import Condition, read_conditions
from securebench.run.decide.controls import DesiredState, desired_state
from securebench.suite.api import KIND as SUITE_KIND
from securebench.suite.planning import SuiteIdentity


class KeyedLocks:
    """Locks that are freed once nobody holds or awaits them."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, name: str) -> asyncio.Lock:
        """Return the lock of a name."""
        return self._locks.setdefault(name, asyncio.Lock())


@dataclass(frozen=True, slots=True)
class Context:
    """Shared parts of the operator: client, settings, clock.

    Attributes:
        cluster: Its namespace, as the leader sees it.
        rate: Rate of Pod creation of the whole operator.
        capacity: What the runs have of what the operator bounds.
        node_name: Node that the operator runs on, or empty when unknown.
        targets: What no Pod of a run may reach.
        tools: Tree digest of the programs of task containers.
        lead: What lets this process write to the volume.
        reading: Reads what agents left.
        pulls: Held while the image of a pack is pulled.
        publishing: Held while the results of a run are published: a record is in memory as a whole.
        process: Names this process in Events.
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
    reading: Reading
    pulls: KeyedLocks = field(default_factory=KeyedLocks)
    publishing: asyncio.Lock = field(default_factory=asyncio.Lock)
    process: str = field(default_factory=lambda: uuid4().hex)


class SpecVersion(NamedTuple):
    """The version of what an object asks for.

    Attributes:
        request: Value of an annotation that asks for more, which has no generation.
    """

    generation: int
    request: str = ""

    def replaces(self, known: SpecVersion) -> bool:
        """Whether this one is later than another one; requests have no order of their own."""
        is_same = self.generation == known.generation
        return self.generation > known.generation or (is_same and self.request != known.request)


@dataclass(frozen=True)
class RunObject:
    """The parts of a BenchmarkRun that the controller works with.

    Attributes:
        spec: As the API server has it.
        audit: Whether its label says that it examines a pack.
        queue: What its label says of the queue of its Pods, or empty.
        requester: Whom its annotation names as the user who requested it, or empty.
        conditions: Conditions of its status as it was seen; only their transition times are used.
        status: As it was seen: what it says already is not written again.
    """

    name: str
    uid: str
    namespace: str
    generation: int
    spec: Mapping[str, object]
    audit: bool = False
    queue: str = ""
    requester: str = ""
    conditions: tuple[Condition, ...] = ()
    status: Mapping[str, object] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Kind of the object."""
        return RUN_KIND

    @property
    def noun(self) -> str:
        """Word for the kind in messages and logs."""
        return "run"

    @property
    def version(self) -> SpecVersion:
        """What it asks for."""
        return SpecVersion(self.generation)

    @cached_property
    def desired(self) -> DesiredState:
        """What the spec asks for; parsed on first use, as most runs that are listed have ended."""
        return desired_state(self.spec, self.generation)


def run_object(body: Mapping[str, object]) -> RunObject:
    """Return the parts of a BenchmarkRun."""
    fields, status = object_at(body, "metadata"), object_at(body, "status")
    labels = object_at(fields, "labels")
    return RunObject(
        name=str(fields.get("name")),
        uid=str(fields.get("uid")),
        namespace=str(fields.get("namespace")),
        generation=_generation(fields),
        spec=dict(object_at(body, "spec")),
        audit=text_at(labels, PURPOSE_LABEL) == AUDIT,
        queue=text_at(labels, QUEUE_LABEL),
        requester=text_at(object_at(fields, "annotations"), REQUESTER_ANNOTATION),
        conditions=read_conditions(status.get("conditions", ())),
        status=status,
    )


def _generation(fields: Mapping[str, object]) -> int:
    generation = fields.get("generation")
    return generation if isinstance(generation, int) else 0


@dataclass(frozen=True, slots=True)
class FrozenPack:
    """A pack that cannot change any more.

    Attributes:
        folder: Its folder on the volume.
        manifest: The manifest file below it.
        tasks: The task file below it.
        digest: ``sha256:…`` of contract 15.6.
    """

    folder: Path
    manifest: Path
    tasks: Path
    digest: str


@dataclass(frozen=True, slots=True)
class SuiteObject:
    """The parts of a BenchmarkSuite that the controller works with.

    Attributes:
        identity: Its name, uid, queue and requester.
        created_at: RFC 3339.
        spec: As the API server has it.
        rerun: Value of the annotation for a manual run; empty without it.
        conditions: Conditions of its status as it was seen.
        status: As it was seen.
    """

    identity: SuiteIdentity
    namespace: str
    generation: int
    created_at: str
    spec: Mapping[str, object]
    rerun: str
    conditions: tuple[Condition, ...]
    status: Mapping[str, object]

    @property
    def kind(self) -> str:
        """Kind of the object."""
        return SUITE_KIND

    @property
    def noun(self) -> str:
        """Word for the kind in messages and logs."""
        return "suite"

    @property
    def version(self) -> SpecVersion:
        """What it asks for."""
        return SpecVersion(self.generation, self.rerun)

    @property
    def name(self) -> str:
        """Its name."""
        return self.identity.name

    @property
    def uid(self) -> str:
        """Its uid."""
        return self.identity.uid


def suite_object(body: Mapping[str, object]) -> SuiteObject:
    """Return the parts of a BenchmarkSuite."""
    metadata, status = object_at(body, "metadata"), object_at(body, "status")
    annotations = object_at(metadata, "annotations")
    return SuiteObject(
        identity=SuiteIdentity(
            text_at(metadata, "name"),
            text_at(metadata, "uid"),
            text_at(object_at(metadata, "labels"), QUEUE_LABEL),
            text_at(annotations, REQUESTER_ANNOTATION),
        ),
        namespace=text_at(metadata, "namespace"),
        generation=_generation(metadata),
        created_at=text_at(metadata, "creationTimestamp"),
        spec=object_at(body, "spec"),
        rerun=text_at(annotations, RERUN_ANNOTATION),
        conditions=read_conditions(status.get("conditions", ())),
        status=status,
    )
