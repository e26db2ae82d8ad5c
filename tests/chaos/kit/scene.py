"""One run of the real operator in memory, disturbed at chosen moments, and what became of it."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar
from unittest import mock

from chaos.kit.cluster import ChaosCluster
from chaos.kit.volume import Volume
from property.machine_kubelet import TARGET, Kubelet
from property.machine_world import ErrorLog, Fate
from securebench.clock import Clock
from securebench.cluster.port import ObjectKind, Raw
from securebench.controller.context import Context
from securebench.controller.leadership import Elector, FencedCluster
from securebench.controller.lifecycle import Supervisor
from securebench.controller.settings import LeaseTimes
from securebench.errors import LeaseOverdueError, TransientClusterError
from securebench.run.observe.pods import PodView, pod_view
from securebench.run.plan.model import Role
from securebench.run.state.entries import Entry
from support.build import (
    FakeClock,
    VirtualLoop,
    context_of,
    inline,
    question,
    run_body,
    write_pack,
)

T = TypeVar("T")

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


class Scene:
    """A run, its operator, its cluster and its volume.

    Args:
        root: Where the volume is.
        seed: Of the order in which Pods move on, and of what injectors choose.
        egress: Whether the run has a gateway.
    """

    def __init__(self, root: Path, seed: int, *, egress: bool = False) -> None:
        self.root = root
        self.random = Random(seed)  # noqa: S311 - repeatable, not secret
        self.clock = FakeClock()
        self.skewed = Skewed(self.clock)
        self.fate = Fate()
        self.cluster = ChaosCluster(self.fate, self.clock)
        self.volume = Volume(root, self.fate)
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
        self.errors = ErrorLog()
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
        self.open_runner()
        with self.fate.outside():
            made: Any = self.runner.run(self.cluster.create(ObjectKind.BENCHMARK_RUN, body))
        self.uid = str(made["metadata"]["uid"])
        way_out = "domains" if self._egress else ""
        self.kubelet = Kubelet(self.root, self.uid, list(SCRIPTS), way_out)
        self.start()

    def open_runner(self) -> None:
        """Make the loop in which the operator works."""
        self.runner = asyncio.Runner(loop_factory=lambda: _Loop(self))
        self.runner.get_loop().set_exception_handler(lambda *_: None)

    # The operator

    def start(self) -> None:
        """Start an operator's process, which leads from now on."""
        self.fate.fuse, self.fate.is_dead = None, False
        self.supervisor = Supervisor(self.new_context())
        self.observe(None)

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
        cluster = FencedCluster(self.cluster, self.link.require)
        with self.fate.outside():
            context = context_of(
                cluster, self.clock, self.root, gateway={"start_seconds": 600}, relist_seconds=300
            )
        lead = replace(context.lead, require=self.link.require_lease)
        return replace(context, targets=(TARGET,), clock=self.skewed, lead=lead)

    def observe(self, kind: str | None) -> None:
        """Tell the operator of an event of the run."""
        self._tell(self.supervisor, kind)

    def _tell(self, supervisor: Supervisor, kind: str | None) -> None:
        body = self.cluster.objects(ObjectKind.BENCHMARK_RUN)[NAME]

        async def tell() -> None:
            supervisor.observe(kind, body)

        self.runner.run(tell())
        self.let(0.001)

    def kill(self) -> None:
        """Kill the operator; nothing that it tries afterwards happens."""
        self.fate.is_dead = True

    def stop(self) -> None:
        """Stop the operator in order, which takes until no call to the volume hangs."""
        self.volume.release()
        self.runner.run(self.supervisor.close())

    def let(self, seconds: float) -> None:
        """Let time pass; an operator that died meanwhile is started again."""
        self.runner.run(asyncio.sleep(seconds))
        if self.fate.is_dead:
            self.stop()
            self.start()

    # The cluster

    def pods(self) -> list[PodView]:
        """Return the Pods by name."""
        views = map(pod_view, self.cluster.objects(ObjectKind.POD).values())
        return sorted((view for view in views if view is not None), key=lambda view: view.name)

    def report(self, view: PodView, status: Raw) -> None:
        """Let the kubelet write a status."""
        self.cluster.set_pod_status(view.name, status)

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
        run: Any = self.cluster.objects(ObjectKind.BENCHMARK_RUN)[NAME]
        conditions = run.get("status", {}).get("conditions", [])
        said = {item["type"]: (item["reason"], item["message"]) for item in conditions}
        return said.get("Succeeded", ("", ""))

    def play(self) -> bool:
        """Move Pods on until nobody works any more; return whether that came."""
        for _ in range(STEPS):
            self.carry_out_plans()
            self.see_new_pods()
            if not self.supervisor.active:
                return True
            movable = [view for view in self.pods() if self.is_movable(view)]
            if movable:
                self.move(self.random.choice(movable))
            self.let(self.random.choice([0.001, 0.2, 1.0]) if movable else 2.0)
        return False

    def carry_out_plans(self) -> None:
        """Do what is due."""
        due = [plan for plan in self.plans if plan[0] <= self.clock.now()]
        self.plans = [plan for plan in self.plans if plan not in due]
        for _, act in due:
            act()

    def see_new_pods(self) -> None:
        """Note the Pods that were created."""
        for view in self.pods():
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
        self.fate.is_dead = True
        for task in self.electing:
            task.cancel()
        self.stop()
        for rival in self.rivals:
            self.runner.run(rival.close())
        self.runner.close()


async def _no_epoch() -> int:
    return 0


class _Loop(VirtualLoop):
    """The loop of a scene's operators: calls to a volume that hangs wait for it."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene.clock)
        self._scene = scene

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Do the work at once, or once the volume answers."""
        if not self._scene.volume.is_hanging or self._scene.fate.is_dead:
            return super().run_in_executor(executor, func, *args)
        call: asyncio.Future[T] = self.create_future()
        self._scene.volume.hang(call, partial(func, *args))
        return call


@contextmanager
def scene(root: Path, seed: int, *, egress: bool = False) -> Iterator[Scene]:
    """Open a scene of one run that works in the test's own thread."""
    with opened(Scene(root, seed, egress=egress)) as made:
        yield made


S = TypeVar("S", bound=Scene)


@contextmanager
def opened(made: S) -> Iterator[S]:
    """Begin a scene, and close it in the end."""
    made.volume.install()
    try:
        with made.errors.listening(), mock.patch.object(asyncio, "to_thread", inline):
            made.begin()
            try:
                yield made
            finally:
                made.close()
    finally:
        made.volume.remove()


def records(root: Path, uid: str) -> Sequence[dict[str, Any]]:
    """Return the lines of candidates.jsonl."""
    text = (root / "runs" / uid / "candidates.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]
