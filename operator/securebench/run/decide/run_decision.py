"""Input and result of a pass of the loop over a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from securebench.core.clock import Instant
from securebench.run.decide.attempt.decision_cache import ChangeSet
from securebench.run.decide.attempt.machine import Capture
from securebench.run.decide.capacity.launch_limits import CapacityUse
from securebench.run.decide.desired_state import Halt
from securebench.run.decide.network.network_step import NetworkState, NetworkStep
from securebench.run.decide.reporting.verdict import EndReason
from securebench.run.decide.reporting.wait_reason import ObservedWrites
from securebench.run.observe.pods import KUBELETS_SECONDS, PodView
from securebench.run.observe.waiting import WaitReason
from securebench.run.plan.keys import LaunchKey
from securebench.run.plan.model import RunPlan
from securebench.run.state.attempt_index import AttemptIndex
from securebench.run.state.attempts import Finish, Lost


@dataclass(frozen=True, slots=True)
class Deletion:
    """One Pod to delete.

    Attributes:
        name: Its name.
        uid: Its uid; a later Pod of that name is not deleted.
        at_once: Whether it is deleted without its grace period.
    """

    name: str
    uid: str
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class RunDecision:
    """The result of a pass, in the order in which it is applied.

    Attributes:
        network: What to do about policies, gateway and canary; the proof to journal.
        lost: Launches to journal as lost.
        begin: Launches to journal and then to create, each with a Pod of its own.
        batches: The same for launches that share a Pod, by Pod.
        repeat: Launches whose Pod's create is repeated; of a batch, its first.
        captures: Ended launches to read.
        finishes: Attempts to end with a record.
        deletions: Pods to delete.
        halt: Why the run starts no new launches.
        needs_list: Whether Pods are to be listed: an event about them may have been lost.
        wait_reason: Why it makes no progress at the moment, or None.
        wake_at: When the next pass is due without an event, or None.
        parked: What it waits for while nothing of it is under way; None while it is active.
        end: How it ended; None while an attempt is open or an action is left.
        usage: What the run uses of the operator's limits, the new launches included.
    """

    network: NetworkStep = field(default_factory=NetworkStep)
    lost: tuple[Lost, ...] = ()
    begin: tuple[LaunchKey, ...] = ()
    batches: tuple[tuple[LaunchKey, ...], ...] = ()
    repeat: tuple[LaunchKey, ...] = ()
    captures: tuple[Capture, ...] = ()
    finishes: tuple[Finish, ...] = ()
    deletions: tuple[Deletion, ...] = ()
    halt: Halt = Halt.NONE
    needs_list: bool = False
    wait_reason: WaitReason | None = None
    wake_at: float | None = None
    parked: WaitReason | None = None
    end: EndReason | None = None
    usage: CapacityUse = field(default_factory=CapacityUse)

    @property
    def has_journal_entries(self) -> bool:
        """Whether applying it adds journal entries on which the next decision depends."""
        return bool(self.captures or self.finishes or self.lost or self.network.found)


@dataclass(frozen=True, slots=True)
class ObservedState:
    """The input of a pass.

    ``pods``, ``history`` and ``vanished`` are live views owned by the loop: decisions only read
    them, and keep no reference after the pass.

    Attributes:
        plan: The run.
        history: State of every attempt of the plan, as folded from the journal.
        network: State of the policies, the gateway and the canary.
        pods: All Pods of the run by name, as listed and watched.
        pending: Names of Pods whose create has no definite answer yet.
        vanished: Names of Pods that were observed and are gone, but for those of ended attempts.
        now: Seconds since the epoch.
        writes: State of the requests that change the cluster.
        plan_mismatch: Why this version may only end the run, or empty.
        changes: What has changed since the last pass; None requires a full resync.
    """

    plan: RunPlan
    history: AttemptIndex
    network: NetworkState
    pods: Mapping[str, PodView]
    pending: Collection[str]
    vanished: Collection[str]
    now: float
    writes: ObservedWrites = field(default_factory=ObservedWrites)
    plan_mismatch: str = ""
    changes: ChangeSet | None = None

    @property
    def listed_at(self) -> float:
        """Start of the latest list of Pods, seconds since the epoch."""
        return self._wall_at(self.network.listed_at)

    @property
    def settled_at(self) -> float:
        """When a list shows again what became of every Pod, seconds since the epoch."""
        return self._wall_at(self.network.answered_at + KUBELETS_SECONDS)

    def _wall_at(self, monotonic: float) -> float:
        return Instant(self.now, self.network.monotonic).wall_at(monotonic)
