"""The real operator of the machine model, with one run, that can die at any effect."""

from __future__ import annotations

import asyncio
import logging
import os
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
)

from property.machine_kubelet import ALL_SCRIPTS, SCRIPTS, TARGET, Kubelet
from property.machine_world import (
    PROVIDER_RETRIES,
    ErrorLog,
    Fate,
    Ledger,
    MortalCluster,
    reconcile_both_ways,
)
from securebench.cluster.port import ObjectKind, Raw
from securebench.controller import run_loop
from securebench.controller.lifecycle import Supervisor
from securebench.controller.volume.journal import Journal
from securebench.run.observe.pods import PodView, pod_view
from securebench.run.plan.model import AttemptKey
from securebench.run.state.attempts import AttemptHistory
from support.build import (
    FakeClock,
    VirtualLoop,
    context_of,
    inline,
    question,
    run_body,
    write_pack,
)

NAME = "nightly"
RETRIES = 2

WAYS_OUT: dict[str, dict[str, object]] = {
    "": {},
    "domains": {
        "harness": {
            "type": "command",
            "config": {"command": "echo B", "allowed_domains": ["docs.example.org"]},
        }
    },
    "provider": {
        "harness": {"type": "codex", "config": {"model": "m"}},
        "provider": {"secretRef": {"name": "openai"}},
    },
}
"""What the spec says of a run's egress."""

SETTINGS: dict[str, object] = {
    "overlays": {"codex": {"images": {"1": "overlay-codex:1"}, "latest": "1"}},
    "gateway": {"start_seconds": 600},
}
PROVIDER_SECRET = {
    "metadata": {"name": "openai", "labels": {"securebench.dev/usable-by-runs": "true"}},
    "data": {"OPENAI_API_KEY": "eA=="},
}


def scripts_of(way_out: str) -> list[str]:
    """Return what agents may do."""
    return sorted(ALL_SCRIPTS if way_out == "provider" else SCRIPTS)


class OperatorUnderTest(RuleBasedStateMachine):
    """Starts, kills and restarts the operator, and makes the kubelet report about its Pods."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.root = Path(self.folder.name)
        self.clock = FakeClock()
        self.fate = Fate()
        self.cluster = MortalCluster(self.fate, self.clock)
        self.errors = ErrorLog()
        self.logger = logging.getLogger("securebench.controller.loop")
        self.logger.addHandler(self.errors)
        self.logger.propagate = False
        self.patches = [
            mock.patch.object(asyncio, "to_thread", inline),
            mock.patch.object(os, "fsync"),
            mock.patch.object(Path, "replace", self._replace(Path.replace)),
            mock.patch.object(Journal, "append", self._append(Journal.append)),
            mock.patch.object(run_loop, "reconcile", reconcile_both_ways),
        ]
        for patch in self.patches:
            patch.start()
        self.runner = asyncio.Runner(loop_factory=lambda: VirtualLoop(self.clock))
        self.runner.get_loop().set_exception_handler(lambda *_: None)
        self.is_sound = False
        self.first_fuse: int | None = None
        self.spare_fuse = False
        self.deaths = 0
        self.is_cancelled = self.is_suspended = self.is_refused = False
        self.forbidden = 0
        self.lost = Counter[AttemptKey]()

    def _replace(self, real: Any) -> Any:
        def mortal(path: Path, target: Path) -> Path:
            self.fate.point()
            done: Path = real(path, target)
            self.fate.point()
            return done

        return mortal

    def _append(self, real: Any) -> Any:
        def mortal(journal: Journal, batch: Any) -> None:
            entries = tuple(batch)
            self.fate.point()
            real(journal, entries)
            self.ledger.take(entries)
            self.fate.point()

        return mortal

    # The start

    @initialize(
        run=st.sampled_from(sorted(WAYS_OUT)).flatmap(
            lambda way_out: st.tuples(
                st.lists(st.sampled_from(scripts_of(way_out)), min_size=1, max_size=3),
                st.just(way_out),
            )
        ),
        attempts=st.integers(1, 2),
        parallelism=st.integers(1, 3),
        require=st.sampled_from(["Declared", "Verified"]),
    )
    def begin(
        self, run: tuple[list[str], str], attempts: int, parallelism: int, require: str
    ) -> None:
        self.apply(run[0], attempts, parallelism, run[1], require=require)

    def apply(
        self,
        scripts: list[str],
        attempts: int,
        parallelism: int,
        way_out: str = "",
        *,
        require: str = "Declared",
    ) -> None:
        rows = [question(f"{number}-{script}") for number, script in enumerate(scripts)]
        write_pack(self.root / "packs/smoke", rows)
        self.scripts = scripts
        self.ledger = Ledger(parallelism, is_declared=require == "Declared")
        self.cluster.is_proven = lambda: self.ledger.is_proven
        self.cluster.live = lambda: self.ledger.live
        for task in range(len(scripts)):
            for number in range(attempts):
                key = AttemptKey(task, number + 1)
                self.ledger.history.attempts[key] = AttemptHistory(key)
        body = run_body(
            NAME,
            attempts=attempts,
            parallelism=parallelism,
            infrastructureRetries=RETRIES,
            providerRetries=PROVIDER_RETRIES,
            retention={"pods": "None"},
            isolation={"require": require},
            **WAYS_OUT[way_out],
        )
        self.way_out = way_out
        with self.fate.outside():
            self.runner.run(self.cluster.create(ObjectKind.SECRET, PROVIDER_SECRET))
            made = self.runner.run(self.cluster.create(ObjectKind.BENCHMARK_RUN, body))
        self.uid = str(made["metadata"]["uid"])  # type: ignore[index]
        self.kubelet = Kubelet(self.root, self.uid, scripts, way_out)
        self._start(self.first_fuse)

    def _start(self, fuse: int | None = None) -> None:
        self.fate.fuse, self.fate.is_dead = fuse, False
        context = context_of(self.cluster, self.clock, self.root, **SETTINGS)
        self.supervisor = Supervisor(replace(context, targets=(TARGET,)))
        self._observe(None)

    def _observe(self, kind: str | None) -> None:
        async def observe() -> None:
            self.supervisor.observe(kind, self._run())
            await asyncio.sleep(0)

        self.runner.run(observe())
        self._pass(0.001)

    def _run(self) -> Raw:
        return self.cluster.objects(ObjectKind.BENCHMARK_RUN)[NAME]

    def _pass(self, seconds: float) -> None:
        self.is_sound = False
        self.runner.run(asyncio.sleep(seconds))
        self.is_sound = True
        if self.fate.is_dead:
            self.deaths += 1
            self._bury()
            self._start()

    def _bury(self) -> None:
        """Drop everything that the dead process held in memory."""
        self.fate.is_dead = True
        self.runner.run(self.supervisor.close())

    def _pods(self) -> list[PodView]:
        views = map(pod_view, self.cluster.objects(ObjectKind.POD).values())
        return sorted((view for view in views if view is not None), key=lambda view: view.name)

    def _going(self) -> list[PodView]:
        return [view for view in self._pods() if not view.is_terminal]

    def _count_loss(self, view: PodView) -> None:
        """Count what may use up an attempt's retries; the loss of a batch does not."""
        if view.launch is not None and not view.members:
            self.lost[view.launch.attempt_key] += 1

    def _report(self, view: PodView, status: Raw) -> None:
        self.cluster.set_pod_status(view.name, status)
        self._pass(0.001)

    def _finish(self, view: PodView) -> None:
        with self.fate.outside():
            status = self.kubelet.ended(view)
        self._report(view, status)

    def _attempts(self) -> dict[AttemptKey, AttemptHistory]:
        return self.ledger.history.attempts if hasattr(self, "ledger") else {}
