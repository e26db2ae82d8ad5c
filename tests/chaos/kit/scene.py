"""One run of the real operator in memory, disturbed at chosen moments, and what became of it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

from chaos.kit.cluster import ChaosCluster
from securebench.clock import Clock
from securebench.cluster.port import ObjectKind, Raw
from securebench.controller.context import Context
from securebench.controller.leadership import Elector, FencedCluster
from securebench.controller.settings import LeaseTimes
from securebench.errors import LeaseOverdueError, TransientClusterError
from securebench.run.observe.pods import PodView
from securebench.run.plan.model import Role
from securebench.run.state.entries import Entry
from support.build import question, run_body, write_pack
from support.fake_cluster import FakeCluster
from support.kubelet import Kubelet
from support.mortal_world import MortalWorld

NAME = "nightly"
SCRIPTS = ("right", "wrong", "slow", "nothing", "greedy", "unjudged", "right", "wrong")
"""What the agents do: every way to end by themselves, so that a changed grade is seen."""

END = "Incomplete"
"""How a run of these ends: one of them has no verdict."""

PARALLELISM = 3
RETRIES = 6
STEPS = 1_500
"""Far more than a disturbed run needs; the clock moves a second and more at each."""

DOMAINS: dict[str, object] = {
    "harness": {
        "type": "command",
        "config": {"command": "echo B", "allowed_domains": ["docs.example.org"]},
    }
}


class Moment(NamedTuple):
    """A stage that a Pod reaches, or a suite.

    Attributes:
        role: ``harness``, ``verifier``, ``canary``, ``control`` or ``gateway``; of suites see
            ``suite_scene``.
        stage: ``created``, ``started``, ``ended`` or ``gone``.
    """

    role: str
    stage: str


class Skewed:
    """The operator's wall clock, which may be wrong; the loop's own time is not."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.offset = 0.0

    def now(self) -> float:
        return self._clock.now() + self.offset

    def monotonic(self) -> float:
        return self._clock.monotonic()


class Link:
    """What an operator needs to write: a way to the API server, and its Lease."""

    def __init__(self) -> None:
        self.is_cut = False
        self.is_overdue = False
        self.refused = 0

    def require(self) -> None:
        """Let a request through."""
        if self.is_cut:
            raise TransientClusterError("no connection")
        self.require_lease()

    def require_lease(self) -> None:
        """Let entries through to the journal."""
        if self.is_overdue:
            self.refused += 1
            raise LeaseOverdueError("the Lease was not renewed in time")


@dataclass
class Injection:
    """A fault that comes at the n-th time that a moment is reached.

    Attributes:
        moment: See Moment.
        count: From 1.
        act: Brings it about; returns False while it does not fit.
        is_done: Whether it happened.
    """

    moment: Moment
    count: int
    act: Callable[[Any, Any], object]
    is_done: bool = False


class Scene(MortalWorld):
    """A run, and everything that may disturb its operator, its cluster and its volume.

    Args:
        root: Where the volume is.
        seed: Of the order in which Pods move on, and of what injectors choose.
        egress: Whether the run has a gateway.
    """

    def __init__(self, root: Path, seed: int, *, egress: bool = False) -> None:
        super().__init__(root, gateway={"start_seconds": 600}, relist_seconds=300)
        self.random = Random(seed)  # noqa: S311 - repeatable, not secret
        self.entries: list[Entry] = []
        self.volume.on_append = self.entries.extend
        self.injections: list[Injection] = []
        self.reached = Counter[Moment]()
        self.held: dict[str, tuple[Raw, float]] = {}
        self.endings: dict[str, Raw] = {}
        self.plans: list[tuple[float, Callable[[], None]]] = []
        self.rivals: list[Any] = []
        self.electing: list[asyncio.Task[Any]] = []
        self.silent: set[str] = set()
        self.must_feel: list[Callable[[], bool]] = []
        self._hit: set[tuple[int, str]] = set()
        self._stages: dict[str, str] = {}
        self._egress = egress

    def begin(self) -> None:
        """Create the run and start an operator."""
        rows = [question(f"{number}-{script}") for number, script in enumerate(SCRIPTS)]
        write_pack(self.root / "packs/smoke", rows)
        body = run_body(
            NAME,
            parallelism=PARALLELISM,
            infrastructureRetries=RETRIES,
            retention={"pods": "None"},
            isolation={"require": "Verified"},
            **(DOMAINS if self._egress else {}),
        )
        self.uid = self.create(ObjectKind.BENCHMARK_RUN, body)
        way_out = "domains" if self._egress else ""
        self.kubelet = Kubelet(self.root, self.uid, list(SCRIPTS), way_out)
        self.start()

    def new_cluster(self) -> FakeCluster:
        self.skewed = Skewed(self.clock)
        return ChaosCluster(self.fate, self.clock)

    # The operator

    def depose(self) -> None:
        """Start another leader while the first one neither stops nor knows.

        What it asks of the API server gets no answer; what it writes reaches the disk.
        """
        self.link.is_cut = True
        self.rivals.append(self.supervisor)
        self.start()

    def elect(self) -> tuple[Elector, Elector]:
        """Let this operator hold the Lease and a second one want it."""
        first, second = (
            Elector(self.cluster, name, LeaseTimes(), self.skewed, self.clock.now, lambda _: None)
            for name in ("first_1", "second_2")
        )

        async def begin() -> None:
            await first.acquire(_no_epoch)
            self.electing = [
                asyncio.create_task(each) for each in (first.hold(), second.acquire(_no_epoch))
            ]

        self.runner.run(begin())
        return first, second

    def new_context(self) -> Context:
        """Return what an operator works with that leads from now on."""
        self.link = Link()
        context = super().new_context()
        lead = replace(context.lead, require=self.link.require_lease)
        cluster = FencedCluster(self.cluster, self.link.require)
        return replace(context, cluster=cluster, clock=self.skewed, lead=lead)

    # The cluster

    def later(self, seconds: float, act: Callable[[], None]) -> None:
        """Do something after some time."""
        self.plans.append((self.clock.now() + seconds, act))

    def hold(self, view: PodView, status: Raw, seconds: float) -> None:
        """Leave a Pod in a state for some time."""
        self.report(view, status)
        self.held[view.name] = (status, self.clock.now() + seconds)

    def folder(self, view: PodView) -> Path:
        """Return where a launch lies on the volume."""
        launch = view.launch
        assert launch is not None
        place = f"tasks/{launch.task}/attempts/{launch.attempt}/launches/{launch.launch}"
        return self.root / "runs" / self.uid / place

    def is_first(self, view: PodView) -> bool:
        """Whether no launch of a task in this role was asked for before."""
        assert view.launch is not None
        key = (view.launch.task, view.launch.role.value)
        is_first = key not in self._hit
        self._hit.add(key)
        return is_first

    # The course of the run

    def told(self) -> tuple[str, str]:
        """Return reason and message of the run's ``Succeeded``."""
        said = self.condition()
        return said.get("reason", ""), said.get("message", "")

    def play(self) -> bool:
        """Move Pods on until nobody works any more; return whether that came."""
        for _ in range(STEPS):
            self.carry_out_plans()
            self.see_new_pods()
            if not self.supervisor.active:
                return True
            movable = [view for view in self.views() if self.is_movable(view)]
            if movable:
                self.move(self.random.choice(movable))
            self.wait(self.random.choice([0.001, 0.2, 1.0]) if movable else 2.0)
        return False

    def carry_out_plans(self) -> None:
        """Do what is due."""
        due = [plan for plan in self.plans if plan[0] <= self.clock.now()]
        self.plans = [plan for plan in self.plans if plan not in due]
        for _, act in due:
            act()

    def see_new_pods(self) -> None:
        """Note the Pods that were created."""
        for view in self.views():
            if view.name not in self._stages:
                self._stages[view.name] = "created"
                self._reach(view, "created")

    def kubelet_of(self, _: PodView) -> Kubelet:
        """Return what moves a Pod on."""
        return self.kubelet

    def is_movable(self, view: PodView) -> bool:
        """Whether the kubelet may go on with a Pod."""
        if view.name in self.silent:
            return False
        if view.name in self.held and self.clock.now() < self.held[view.name][1]:
            return view.deleting_since is not None
        is_steady = view.role is Role.GATEWAY and self._stages.get(view.name) == "started"
        return view.deleting_since is not None or not (view.is_terminal or is_steady)

    def move(self, view: PodView) -> None:
        """Bring a Pod to its next stage."""
        if view.deleting_since is not None:
            self.cluster.finish_deletion(view.name)
            self._reach(view, "gone")
        elif self._stages.get(view.name, "created") == "created":
            self._stages[view.name] = "started"
            self.report(view, self.kubelet_of(view).started(view))
            self._reach(view, "started")
        else:
            self._stages[view.name] = "ended"
            with self.fate.outside():
                ending = self.kubelet_of(view).ended(view)
            self.endings[view.name] = ending
            self._reach(view, "ended")
            if view.name in self.cluster.objects(ObjectKind.POD):
                self.report(view, self.endings[view.name])

    def _reach(self, view: PodView, stage: str) -> None:
        self.reach(Moment(view.role.value if view.role else "", stage), view)

    def reach(self, moment: Moment, view: PodView | None = None) -> None:
        """Bring about the faults that come at a moment; ``view`` is the Pod that reached it."""
        self.reached[moment] += 1
        for injection in self.injections:
            is_time = injection.moment == moment and self.reached[moment] >= injection.count
            if is_time and not injection.is_done and injection.act(self, view) is not False:
                injection.is_done = True

    def close(self) -> None:
        """Stop everything."""
        self.kill()
        for task in self.electing:
            task.cancel()
        for rival in self.rivals:
            self.runner.run(rival.close())
        super().close()


async def _no_epoch() -> int:
    return 0


@contextmanager
def scene(root: Path, seed: int, *, egress: bool = False) -> Iterator[Scene]:
    """Open a scene of one run that works in the test's own thread."""
    with opened(Scene(root, seed, egress=egress)) as made:
        yield made


S = TypeVar("S", bound=Scene)


@contextmanager
def opened(made: S) -> Iterator[S]:
    """Begin a scene, and close it in the end."""
    with made.working():
        made.begin()
        yield made


def records(root: Path, uid: str) -> Sequence[dict[str, Any]]:
    """Return the lines of candidates.jsonl."""
    text = (root / "runs" / uid / "candidates.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
