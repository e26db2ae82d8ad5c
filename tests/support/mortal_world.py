"""An operator in memory that may die at any of its effects, and is started again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar, cast
from unittest import mock

from securebench.cluster.port import ObjectKind, Raw, metadata
from securebench.controller import lifecycle, object_loop, publish, run_loop, suite_loop
from securebench.controller.context import Context
from securebench.controller.reading import Reading, ReadingEndedError
from securebench.names import ROLE_LABEL
from securebench.run.observe.pods import PodView, pod_view
from securebench.run.plan.model import LaunchKey, Role
from support.build import FakeClock, VirtualLoop, inline
from support.failing_volume import Fate, OperatorDied, Volume
from support.fake_cluster import FakeCluster
from support.kubelet import TARGET
from support.operator_world import World

T = TypeVar("T")

EVERYTHING: Final = [{}]
"""Rules of a policy that somebody opened."""

NOTICED_SECONDS = 75.0
"""A deletion whose event was lost is seen by the next list, which may fail a few times."""


class MortalCluster(FakeCluster):
    """A cluster that sees the operator die before or after each of its calls."""

    def __init__(self, fate: Fate, clock: FakeClock) -> None:
        super().__init__(namespace="bench", clock=clock)
        self.fate = fate
        self.on_create: list[str] = []
        self.policies_lost: dict[str, float] = {}
        self.is_proven: Callable[[], bool] = lambda: True
        self.live: Callable[[], Collection[LaunchKey]] = tuple

    async def list(self, kind: ObjectKind, selector: str) -> Any:
        self.fate.point()
        return await super().list(kind, selector)

    async def get(self, kind: ObjectKind, name: str) -> Any:
        self.fate.point()
        return await super().get(kind, name)

    async def create(self, kind: ObjectKind, manifest: Raw) -> Raw:
        self.fate.point()
        made = await super().create(kind, manifest)
        name = str(made["metadata"]["name"])  # type: ignore[index]
        if kind is ObjectKind.POD:
            self.on_create.append(name)
            assert self._open_seconds() < NOTICED_SECONDS, f"{name} has an open network"
            labels = cast("dict[str, str]", metadata(made)["labels"])
            is_launch = labels[ROLE_LABEL] in {Role.HARNESS, Role.VERIFIER}
            assert not is_launch or self.is_proven(), f"{name} has no proof"
        self.fate.point()
        return made

    async def delete(
        self, kind: ObjectKind, name: str, *, uid: str | None, grace_seconds: int | None
    ) -> bool:
        self.fate.point()
        found = await super().delete(kind, name, uid=uid, grace_seconds=grace_seconds)
        self.fate.point()
        return found

    async def delete_collection(
        self, kind: ObjectKind, selector: str, fields: str, resource_version: str
    ) -> None:
        self.fate.point()
        live = {
            name: raw
            for name, raw in self.objects(kind).items()
            if (view := pod_view(raw)) is not None and view.launch in self.live()
        }
        await super().delete_collection(kind, selector, fields, resource_version)
        there = self.objects(kind)
        assert {name: there.get(name) for name in live} == live, "a live launch was swept away"
        self.fate.point()

    def lose_policy(self, name: str) -> None:
        """Delete a network policy as somebody else would."""
        self._open_seconds()
        self.remove(ObjectKind.NETWORK_POLICY, name)
        self.policies_lost.setdefault(name, self._clock.now())

    def edit_policy(self, name: str) -> None:
        """Open a network policy as somebody else would."""
        self._open_seconds()
        self.edit(ObjectKind.NETWORK_POLICY, name, {"spec": {"egress": EVERYTHING}})
        self.policies_lost.setdefault(name, self._clock.now())

    def _open_seconds(self) -> float:
        """Return for how long a policy has been missing, or open, that was there before."""
        there = self.objects(ObjectKind.NETWORK_POLICY)
        for name in [name for name in self.policies_lost if name in there]:
            if cast("Raw", there[name]["spec"]).get("egress") != EVERYTHING:
                del self.policies_lost[name]
        now = self._clock.now()
        return now - min(self.policies_lost.values(), default=now)

    def begin_deletion(self, name: str) -> None:
        """Delete a Pod as somebody else would."""
        self._begin_deletion(ObjectKind.POD, self.objects(ObjectKind.POD)[name], None)

    async def patch_status(self, kind: ObjectKind, name: str, body: Raw) -> Raw | None:
        self.fate.point()
        found = await super().patch_status(kind, name, body)
        self.fate.point()
        return found

    async def patch(self, kind: ObjectKind, name: str, body: Raw) -> bool:
        self.fate.point()
        return await super().patch(kind, name, body)


LOOPS = (run_loop, lifecycle, object_loop, suite_loop, publish)
"""Modules whose errors are a defect of ours, whatever cluster and volume do."""


class ErrorLog(logging.Handler):
    """Remembers what only a defect of ours can make the operator say."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if not isinstance(error, OperatorDied):
            self.lines.append(self.format(record))

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to the loops of runs and suites, and keep what they say from everybody else."""
        with ExitStack() as stack:
            for module in LOOPS:
                stack.enter_context(mock.patch.object(module.logger, "handlers", [self]))
                stack.enter_context(mock.patch.object(module.logger, "propagate", new=False))
            yield


class MortalWorld(World):
    """An operator with one run, on a cluster and a volume that see it die.

    What stands in ``fate.outside()`` is not the operator's, and nobody dies of it.

    Attributes:
        reading_ends: How many of the next readings end the process that reads.
    """

    cluster: MortalCluster

    def __init__(self, root: Path, **settings: object) -> None:
        self.fate = Fate()
        self.volume = Volume(root, self.fate)
        self.errors = ErrorLog()
        self.deaths = 0
        self.reading_ends = 0
        self.uid = ""
        super().__init__(root, targets=(TARGET,), **settings)
        self.runner.get_loop().set_exception_handler(lambda *_: None)

    def new_cluster(self) -> FakeCluster:
        return MortalCluster(self.fate, self.clock)

    def new_loop(self) -> asyncio.AbstractEventLoop:
        return _Loop(self)

    def new_context(self) -> Context:
        with self.fate.outside():
            return replace(super().new_context(), reading=Reading(self._read))

    def _read(self, work: Callable[[], T]) -> T:
        if self.reading_ends:
            self.reading_ends -= 1
            raise ReadingEndedError("a reading ended its process with code -9")
        return work()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let the operator work in the test's own thread until the block ends."""
        with ExitStack() as stack:
            self.volume.install()
            stack.callback(self.volume.remove)
            stack.enter_context(self.errors.listening())
            stack.enter_context(mock.patch.object(asyncio, "to_thread", inline))
            stack.callback(self.close)
            yield

    def create(self, kind: ObjectKind, body: Raw) -> str:
        """Create an object as a user does; return its uid."""
        with self.fate.outside():
            made: Any = self.runner.run(self.cluster.create(kind, body))
        return str(made["metadata"]["uid"])

    def start(self, fuse: int | None = None) -> None:
        """Start an operator's process; it dies after so many points of its effects."""
        self.fate.fuse, self.fate.is_dead = fuse, False
        self.supervisor = self.new_supervisor()
        self.observe(None)

    def kill(self) -> None:
        """Kill the operator; nothing that it tries afterwards happens."""
        self.fate.is_dead = True

    def stop(self) -> None:
        """Stop the operator in order, which takes until no call to the volume hangs."""
        self.volume.release()
        self.runner.run(self.supervisor.close())

    def wait(self, seconds: float = 0.001) -> None:
        """Let time pass; an operator that died meanwhile is started again."""
        super().wait(seconds)
        if self.fate.is_dead:
            self.deaths += 1
            self.stop()
            self.start()

    def report(self, view: PodView, status: Raw) -> None:
        """Let the kubelet write a status."""
        self.cluster.set_pod_status(view.name, status)

    def close(self) -> None:
        """Stop everything."""
        self.kill()
        self.stop()
        self.runner.close()


class _Loop(VirtualLoop):
    """The loop of a world's operators: calls to a volume that hangs wait for it."""

    def __init__(self, world: MortalWorld) -> None:
        super().__init__(world.clock)
        self._world = world

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Do the work at once, or once the volume answers."""
        if not self._world.volume.is_hanging or self._world.fate.is_dead:
            return super().run_in_executor(executor, func, *args)
        call: asyncio.Future[T] = self.create_future()
        self._world.volume.hang(call, partial(func, *args))
        return call
