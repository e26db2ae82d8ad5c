"""A run as the API server has it, and the same bound to its plan, folder and pack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from securebench.benchmark.pack.oracle import ReferenceAnswer
from securebench.controller.volume.index import IndexEntry
from securebench.controller.volume.store import RunStore
from securebench.run.api.base import KIND
from securebench.run.api.conditions import Condition
from securebench.run.plan.model import RunPlan
from securebench.run.state.entries import CandidateKept, Kept


@dataclass(frozen=True, slots=True)
class RunObject:
    """The parts of a BenchmarkRun that the controller works with.

    Attributes:
        name: Its name.
        uid: Its uid.
        namespace: Its namespace.
        generation: Generation of the spec.
        spec: As the API server has it.
        audit: Whether its label says that it examines a pack.
        queue: What its label says of the queue of its Pods, or empty.
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
    conditions: tuple[Condition, ...] = ()
    status: Mapping[str, object] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Kind of the object, for its Events."""
        return KIND


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
class PreparedRun:
    """A run that is bound to its plan, folder and pack.

    Attributes:
        plan: What it does.
        store: Its folder.
        pack: Its frozen pack.
        index: Its line of the index.
        kept: Records, and in a regrade sealed candidates, taken over from an earlier run.
        answers: Reference answers by task id; empty for every harness but an oracle.
        plan_mismatch: Why this version may only end the run, in one sentence; empty where it
            is active. The plan then is this version's reading of the pack, bound as the run began.
    """

    plan: RunPlan
    store: RunStore
    pack: FrozenPack
    index: IndexEntry
    kept: tuple[Kept | CandidateKept, ...]
    answers: Mapping[str, ReferenceAnswer]
    plan_mismatch: str = ""
