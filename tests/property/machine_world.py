"""The world of the machine model: a cluster that sees the operator die, and its ledger."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast
from unittest import mock

from securebench.cluster.port import ObjectKind, Raw, metadata
from securebench.names import ROLE_LABEL
from securebench.run.decide.controls import Controls
from securebench.run.decide.decision_cache import DecisionCache
from securebench.run.decide.reconcile import ObservedState, RunDecision, reconcile
from securebench.run.observe.pods import pod_view
from securebench.run.plan.model import AttemptKey, LaunchKey, Role
from securebench.run.state.entries import (
    Closed,
    Entry,
    Finished,
    IsolationResult,
    LaunchBegun,
    LaunchLost,
    Opened,
    Produced,
    ReadBegun,
    RunBound,
    Verified,
)
from securebench.run.state.history import RunHistory
from support.build import FakeClock
from support.fake_cluster import FakeCluster

PROVIDER_RETRIES = 2

EVERYTHING: Final = [{}]
"""Rules of a policy that somebody opened."""

NOTICED_SECONDS = 75.0
"""A deletion whose event was lost is seen by the next list, which may fail a few times."""


class OperatorDied(BaseException):
    """The process was killed."""


def reconcile_both_ways(
    observed: ObservedState, controls: Controls, cache: DecisionCache
) -> RunDecision:
    """Decide by what has changed, and check that a look at everything decides the same."""
    decision = reconcile(observed, controls, cache)
    assert decision == reconcile(replace(observed, changes=None), controls)
    return decision


@dataclass
class Fate:
    """Kills the operator at one of its effects; nothing that it tries afterwards happens."""

    fuse: int | None = None
    is_dead: bool = False
    is_outside: int = 0

    def point(self) -> None:
        if self.is_outside:
            return
        if self.fuse is not None:
            self.fuse -= 1
            self.is_dead = self.is_dead or self.fuse <= 0
        if self.is_dead:
            raise OperatorDied

    def outside(self) -> AbstractContextManager[Any]:
        """Do something that is not the operator's."""
        return mock.patch.object(self, "is_outside", self.is_outside + 1)


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


LOOPS = ("loop", "runtime.loop_tasks", "suites")


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
        loggers = [logging.getLogger(f"securebench.controller.{name}") for name in LOOPS]
        before = [logger.propagate for logger in loggers]
        for logger in loggers:
            logger.addHandler(self)
            logger.propagate = False
        try:
            yield
        finally:
            for logger, propagate in zip(loggers, before, strict=True):
                logger.removeHandler(self)
                logger.propagate = propagate


@dataclass
class Ledger:
    """What reached the journal, folded by the model itself."""

    parallelism: int
    may_begin: bool = True
    begun: set[LaunchKey] = field(default_factory=set)
    history: RunHistory = field(default_factory=RunHistory)
    counts: Counter[tuple[str, AttemptKey]] = field(default_factory=Counter)
    records: dict[AttemptKey, bytes] = field(default_factory=dict)
    reading: dict[AttemptKey, bool] = field(default_factory=dict)
    is_declared: bool = True
    condemned: set[AttemptKey] = field(default_factory=set)
    process: str = ""

    def take(self, batch: tuple[Entry, ...]) -> None:
        for entry in batch:
            assert not isinstance(entry, RunBound) or self.history.bound is None
            self._count(entry)
            self._blame(entry)
            self.history.apply(entry)
        if any(isinstance(entry, LaunchBegun) for entry in batch):
            assert len(self.live) <= self.parallelism

    def _blame(self, entry: Entry) -> None:
        """Remember what was read, alone, by an operator that did not end in order."""
        match entry:
            case ReadBegun(key, _, _, is_alone):
                assert key not in self.condemned
                assert not is_alone or not self.reading
                self.reading[key] = is_alone
            case Closed():
                self.reading.clear()
            case Opened(_, _, process):
                alone = {key for key, is_alone in self.reading.items() if is_alone}
                self.condemned |= alone if process != self.process else set()
                self.process = process
                self.reading.clear()
            case LaunchLost(lost):
                self.reading.pop(lost.launch.attempt_key, None)
            case Produced(key) | Verified(key):
                self.reading.pop(key)
            case Finished(finish):
                self.reading.pop(finish.key, None)

    @property
    def is_proven(self) -> bool:
        found = self.history.isolation
        return found is not None and (found.verified or self.is_declared)

    @property
    def live(self) -> set[LaunchKey]:
        """The launches after which live Pods are named."""
        return {known.pod for known in self.history.attempts.values() if known.pod}

    def _count(self, entry: Entry) -> None:
        match entry:
            case IsolationResult():
                assert self.history.isolation is None
            case LaunchBegun(launch):
                assert self.may_begin
                assert self.is_proven
                assert launch not in self.begun
                self.begun.add(launch)
            case Produced(key):
                self.counts["Produced", key] += 1
                outages = self.history.attempts[key].provider_retries
                assert self.counts["Produced", key] == 1 + outages
                assert outages <= PROVIDER_RETRIES
            case Verified(key):
                self.counts["Verified", key] += 1
                assert self.counts["Verified", key] == 1
            case Finished(finish):
                self.counts["Finished", finish.key] += 1
                assert self.counts["Finished", finish.key] == 1
