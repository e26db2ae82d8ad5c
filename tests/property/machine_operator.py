"""The world of the machine model: one run, and a ledger of what reached its journal."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
)

from property.machine_world import PROVIDER_RETRIES, Ledger, reconcile_both_ways
from securebench.cluster.port import ObjectKind, Raw
from securebench.controller import run_loop
from securebench.run.observe.pods import PodView
from securebench.run.plan.model import AttemptKey
from securebench.run.state.attempts import AttemptHistory
from support.build import question, run_body, write_pack
from support.kubelet import ALL_SCRIPTS, SCRIPTS, Kubelet
from support.mortal_world import MortalWorld

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
    """Has a world whose operator can die at any effect, and a kubelet for its Pods."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.world = MortalWorld(Path(self.folder.name), **SETTINGS)
        self.stack = ExitStack()
        self.stack.enter_context(self.world.working())
        reconciles = mock.patch.object(run_loop, "reconcile", reconcile_both_ways)
        self.stack.enter_context(reconciles)
        self.stack.enter_context(mock.patch.object(os, "fsync"))
        self.is_sound = False
        self.first_fuse: int | None = None
        self.spare_fuse = False
        self.is_cancelled = self.is_suspended = self.is_refused = False
        self.is_unreadable = False
        self.forbidden = 0
        self.lost = Counter[AttemptKey]()

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
        write_pack(self.world.root / "packs/smoke", rows)
        self.scripts = scripts
        self.ledger = Ledger(parallelism, is_declared=require == "Declared")
        self.world.volume.on_append = self.ledger.take
        self.world.cluster.is_proven = lambda: self.ledger.is_proven
        self.world.cluster.live = lambda: self.ledger.live
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
        self.world.create(ObjectKind.SECRET, PROVIDER_SECRET)
        self.world.uid = self.world.create(ObjectKind.BENCHMARK_RUN, body)
        self.kubelet = Kubelet(self.world.root, self.world.uid, scripts, way_out)
        with self._working():
            self.world.start(self.first_fuse)

    def _pass(self, seconds: float) -> None:
        with self._working():
            self.world.wait(seconds)

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Let the operator work; the model is not sound where that raises."""
        self.is_sound = False
        yield
        self.is_sound = True

    def _going(self) -> list[PodView]:
        return [view for view in self.world.views() if not view.is_terminal]

    def _count_loss(self, view: PodView) -> None:
        """Count what may use up an attempt's retries; the loss of a batch does not."""
        if view.launch is not None and not view.members:
            self.lost[view.launch.attempt_key] += 1

    def _report(self, view: PodView, status: Raw) -> None:
        self.world.report(view, status)
        self._pass(0.001)

    def _finish(self, view: PodView) -> None:
        with self.world.fate.outside():
            status = self.kubelet.ended(view)
        self._report(view, status)

    def _attempts(self) -> dict[AttemptKey, AttemptHistory]:
        return self.ledger.history.attempts if hasattr(self, "ledger") else {}
