"""An operator in memory, for tests of whole runs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

from securebench.cluster.port import ObjectKind, Raw
from securebench.controller.context import Context
from securebench.controller.lifecycle import Supervisor
from securebench.errors import TransientClusterError
from securebench.names import REQUESTER_ANNOTATION
from securebench.protocol.supervise import ProbeTarget
from securebench.run.observe.pods import PodView, pod_view
from securebench.run.plan.model import LaunchKey, Role, pod_name
from support.build import (
    FakeClock,
    Status,
    VirtualLoop,
    context_of,
    inline,
    probe_done,
    question,
    run_body,
    write_pack,
)
from support.fake_cluster import FakeCluster
from support.pod_ends import handed_in, judged


class World:
    """An operator with everything below it real but time, cluster and threads.

    Attributes:
        user: Who requests runs from now on; empty where the cluster does not keep that true.
    """

    def __init__(
        self, root: Path, *, targets: Sequence[ProbeTarget] = (), **settings: object
    ) -> None:
        self.root = root
        self.targets = tuple(targets)
        self.settings = settings
        self.runs = 0
        self.user = ""
        self.clock = FakeClock()
        self.cluster = self.new_cluster()
        self.supervisor = self.new_supervisor()
        self.runner = asyncio.Runner(loop_factory=self.new_loop)
        write_pack(root / "packs/smoke", [question("a"), question("b")])

    def new_cluster(self) -> FakeCluster:
        """Return the cluster that every operator of this world has."""
        return FakeCluster(namespace="bench", clock=self.clock)

    def new_loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop in which they work."""
        return VirtualLoop(self.clock)

    def new_context(self) -> Context:
        """Return what an operator works with that leads from now on."""
        context = context_of(self.cluster, self.clock, self.root, **self.settings)
        return replace(context, targets=self.targets)

    def new_supervisor(self) -> Supervisor:
        """Return the supervisor of an operator that leads from now on."""
        self.context = self.new_context()
        return Supervisor(self.context)

    def wait(self, seconds: float = 0.01) -> None:
        self.runner.run(asyncio.sleep(seconds))

    @contextmanager
    def outage(self) -> Iterator[None]:
        """Let the API server answer nothing until the block ends."""
        gone = TransientClusterError("connection refused")
        with mock.patch.object(self.cluster, "_call", side_effect=gone):
            self.cluster.end_watches(gone)
            yield

    def apply(self, name: str = "nightly", **spec: object) -> str:
        """Create a run and let the operator know; return its uid."""
        self.runner.run(self.cluster.create(ObjectKind.BENCHMARK_RUN, run_body(name, **spec)))
        self.runs += 1
        uid = f"{self.runs:08x}-0000-4000-8000-000000000000"
        annotations = {REQUESTER_ANNOTATION: self.user} if self.user else {}
        metadata = {"uid": uid, "annotations": annotations}
        self.cluster.edit(ObjectKind.BENCHMARK_RUN, name, {"metadata": metadata})
        self.observe("ADDED", name)
        return uid

    def observe(self, kind: str | None, name: str = "nightly", body: Raw | None = None) -> None:
        async def observe() -> None:
            self.supervisor.observe(kind, body or self.run(name))

        self.runner.run(observe())
        self.wait()

    def edit(self, name: str = "nightly", **spec: object) -> None:
        self.cluster.edit(ObjectKind.BENCHMARK_RUN, name, {"spec": spec})
        self.observe("MODIFIED", name)

    def run(self, name: str = "nightly") -> dict[str, Any]:
        found: dict[str, Any] = dict(self.cluster.objects(ObjectKind.BENCHMARK_RUN)[name])
        return found

    def condition(self, kind: str = "Succeeded", name: str = "nightly") -> dict[str, Any]:
        status = self.run(name).get("status", {})
        return {item["type"]: item for item in status.get("conditions", [])}.get(kind, {})

    def restart(self) -> None:
        self.runner.run(self.supervisor.close())
        self.supervisor = self.new_supervisor()

    def views(self) -> list[PodView]:
        """Return the Pods of runs, by name."""
        views = map(pod_view, self.cluster.objects(ObjectKind.POD).values())
        return sorted((view for view in views if view is not None), key=lambda view: view.name)

    def pods(self) -> list[str]:
        return sorted(self.cluster.objects(ObjectKind.POD))

    def launch(self, name: str) -> LaunchKey:
        """Return the launch of a Pod."""
        view = pod_view(self.cluster.objects(ObjectKind.POD)[name])
        assert view is not None
        assert view.launch is not None
        return view.launch

    def probe(self, control: Mapping[str, str], canary: Mapping[str, str]) -> None:
        """Let the probing Pods that go say what they found."""
        states = {Role.CONTROL: control, Role.CANARY: canary}
        for raw in self.cluster.objects(ObjectKind.POD).values():
            view = pod_view(raw)
            if view is not None and view.role in states and not view.is_terminal:
                self.cluster.set_pod_status(view.name, probe_done(states[view.role]))
        self.wait(5)

    def work(self, uid: str, rounds: int = 10) -> None:
        """Let every Pod end well until the run has."""
        for _ in range(rounds):
            for raw in self.cluster.objects(ObjectKind.POD).values():
                view = pod_view(raw)
                if view is None or view.is_terminal or view.launch is None:
                    continue
                self.cluster.set_pod_status(view.name, self.ending(uid, view.launch))
            self.wait(5)

    def ending(self, uid: str, launch: LaunchKey) -> Status:
        if launch.role is Role.VERIFIER:
            view = pod_view(self.cluster.objects(ObjectKind.POD)[pod_name(uid, launch)])
            assert view is not None
            return judged(self.root, uid, view)
        return handed_in(self.root, uid, launch, "B")


W = TypeVar("W", bound=World)


@contextmanager
def opened(kind: type[W], root: Path, **settings: object) -> Iterator[W]:
    """Make an operator that works in the test's own thread; it is closed when the block ends."""
    with mock.patch.object(asyncio, "to_thread", inline):
        world = kind(root, **settings)
        yield world
        world.runner.run(world.supervisor.close())
        world.runner.close()
