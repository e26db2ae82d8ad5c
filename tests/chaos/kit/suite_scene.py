"""One suite of the real operator in memory: two rounds, of which the second has a regression."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

from chaos.kit.follower import follow
from chaos.kit.scene import Moment, Scene, opened
from securebench.cluster.port import ObjectKind
from securebench.controller import sealing
from securebench.controller.suite_loop import SuiteSupervisor
from securebench.controller.suite_results import BaselineReader, GateEvaluator
from securebench.controller.suite_store import STATE, SUITES, SuiteStore, sweep_orphans
from securebench.names import RERUN_ANNOTATION, RUN_UID_LABEL, SUITE_CELL_ANNOTATION
from securebench.run.observe.pods import PodView
from support.build import question, run_body, write_pack
from support.kubelet import Kubelet

SUITE = "nightly"
REGRADE = "again"
TASKS = 4
LEVEL = "0.4"
"""Of the gate; losing all tasks of a cell is a loss at this level."""

RIGHT, WRONG = "echo right", "echo wrong"
PERIOD = 600.0
EVERY_PERIOD = "*/10 * * * *"
CALM_SECONDS = 65.0
"""After so long without anything to do nothing more comes: every loop has looked again."""

STEPS = 2_000
PACKS = ("smoke", "other")
RUN, BASELINE_RUN = ObjectKind.BENCHMARK_RUN, "smoke/b"

APPLIED = Moment("suite", "applied")
TICK = Moment("suite", "due")
REMEMBERED = Moment("suite", "remembered")
JUDGED = Moment("suite", "judged")
COMPARED = Moment("suite", "compared")
SHORTENED = Moment("suite", "shortened")
CREATED, STARTED, ENDED = (Moment("run", stage) for stage in ("created", "started", "ended"))
STATED = Moment("run", "stated")
"""Stages of a suite: it was applied; a time of its schedule comes; its state is about to be
written, its gates to be judged, a baseline to be read, a run beyond the history limits to be
deleted. And of its runs: created, a harness Pod started, ended, its statement is about to be
written."""


class SuiteScene(Scene):
    """A suite, the operator that makes and works on its runs, and everything around it.

    Args:
        root: Where the volume is.
        seed: Of the order in which Pods move on, and of what injectors choose.
        is_scheduled: Whether its rounds begin at times of a schedule.

    Attributes:
        said: What the suite said at the end of each round.
        effects: Points before and after effects of the suite's loop that were passed so far.
        dies_at: At which of them the operator dies; 0 for none.
    """

    def __init__(self, root: Path, seed: int, *, is_scheduled: bool) -> None:
        super().__init__(root, seed)
        self.is_scheduled = is_scheduled
        self.said: list[Mapping[str, Any]] = []
        self.suites: SuiteSupervisor
        self.followers: list[asyncio.Task[None]] = []
        self._kubelets: dict[str, Kubelet] = {}
        self._runs: dict[str, str] = {}
        self._tick = 0.0
        self.effects = self.dies_at = 0

    def begin(self) -> None:
        """Write the packs, and start an operator that has no suite yet."""
        for pack in PACKS:
            rows = [question(f"{pack}-{number}") for number in range(TASKS)]
            write_pack(self.root / "packs" / pack, rows)
        self.start()

    # The operator

    def start(self, fuse: int | None = None) -> None:
        """Start an operator's process, which leads from now on."""
        self.fate.fuse, self.fate.is_dead = fuse, False
        self.supervisor = self.new_supervisor()
        context, self.suites = self.context, SuiteSupervisor(self.context)
        runs, suites, link = self.supervisor, self.suites, self.link

        def see_run(kind: str | None, body: Mapping[str, object]) -> None:
            runs.observe(kind, body)
            suites.observe_run(kind, body)

        async def begin() -> None:
            work = (
                follow(context.cluster, ObjectKind.BENCHMARK_SUITE, suites.observe, link),
                follow(context.cluster, RUN, see_run, link),
                sweep_orphans(context),
            )
            self.followers = [asyncio.create_task(each) for each in work]

        self.runner.run(begin())

    def stop(self) -> None:
        """Stop the operator in order."""
        for task in self.followers:
            task.cancel()
        self.runner.run(self.suites.close())
        super().stop()

    def depose(self) -> None:
        """Start another leader while the first one neither stops nor knows."""
        self.rivals.append(self.suites)
        super().depose()

    @property
    def is_working(self) -> bool:
        """Whether what happens now is done by an operator that lives."""
        return not (self.fate.is_outside or self.fate.is_dead)

    def pass_effect(self) -> None:
        """Pass a point before or after an effect of the suite's loop; it may be the last one."""
        if not self.is_working:
            return
        self.effects += 1
        if self.effects == self.dies_at:
            self.kill()
            self.fate.point()

    # What is asked for

    def suite(self) -> Mapping[str, Any]:
        """Return the suite as the API server has it, empty if it is gone."""
        found: Any = self.cluster.objects(ObjectKind.BENCHMARK_SUITE).get(SUITE, {})
        return dict(found)

    def state_path(self) -> Path:
        """Return where the suite remembers things."""
        return self.root / SUITES / self.suite()["metadata"]["uid"] / STATE

    def edit(self, **spec: object) -> None:
        """Change fields of the suite's spec."""
        self.cluster.edit(ObjectKind.BENCHMARK_SUITE, SUITE, {"spec": spec})

    def apply_suite(self) -> None:
        """Create the suite."""
        body = {"metadata": {"name": SUITE}, "spec": self._spec()}
        self._create(ObjectKind.BENCHMARK_SUITE, body)
        self.reach(APPLIED)

    def runs_so_far(self) -> set[str]:
        """Return the names of all runs that were created so far."""
        return set(self._runs) | set(self.cluster.objects(RUN))

    def annotate(self, value: str) -> None:
        """Ask for all cells again."""
        annotations = {RERUN_ANNOTATION: value}
        patch = {"metadata": {"annotations": annotations}}
        self.cluster.edit(ObjectKind.BENCHMARK_SUITE, SUITE, patch)

    def delete_run(self, name: str) -> None:
        """Delete a run by hand; its Pods go with it."""
        self.cluster.remove(RUN, name)
        self.cluster.collect_garbage()

    def delete_suite(self, *, unseen: bool) -> None:
        """Delete the suite, and with it its runs; ``unseen``: while the watches are broken."""
        self.cluster.remove(ObjectKind.BENCHMARK_SUITE, SUITE)
        self.cluster.collect_garbage()
        if unseen:
            self.cluster.expire_history()

    def replace_suite(self, **spec: object) -> None:
        """Delete the suite and apply another one while the watches are broken."""
        self.cluster.remove(ObjectKind.BENCHMARK_SUITE, SUITE)
        self.cluster.collect_garbage()
        self.cluster.expire_history()
        body = {"metadata": {"name": SUITE}, "spec": {**self._spec(), **spec}}
        self._create(ObjectKind.BENCHMARK_SUITE, body)

    def regress(self) -> None:
        """Let the second harness answer wrong, and grade an earlier run of it again."""
        runs = self.cluster.objects(RUN)
        earlier = [name for name, raw in runs.items() if _cell(raw) == BASELINE_RUN]
        self.edit(matrix=_matrix(WRONG))
        spec = {"harness": _harness("b", RIGHT)["harness"], "regrade": {"run": earlier[0]}}
        self._create(RUN, run_body(REGRADE, **spec))

    def _create(self, kind: ObjectKind, body: Mapping[str, object]) -> None:
        """Create an object as a user does; the operator stands still meanwhile."""
        with self.fate.outside(), suppress(StopIteration):
            self.cluster.create(kind, body).send(None)

    def _spec(self) -> dict[str, object]:
        schedule = {"schedule": EVERY_PERIOD} if self.is_scheduled else {}
        return {
            **schedule,
            "matrix": _matrix(RIGHT),
            "maxConcurrentRuns": 2,
            "successfulRunsHistoryLimit": 0,
            "baseline": {"suite": SUITE},
            "gates": {"minPassRate": "0.5", "notWorse": {"level": LEVEL}},
            "template": {
                "isolation": {"require": "Declared"},
                "parallelism": TASKS,
                "infrastructureRetries": 6,
                "retention": {"pods": "None"},
            },
        }

    # The course

    def play(self) -> bool:
        """Run both rounds; return whether both came to their end."""
        for act in (self.apply_suite, self.regress):
            self._tick = (self.skewed.now() // PERIOD + 1) * PERIOD if self.is_scheduled else 0.0
            act()
            if not self.work():
                return False
            self.said.append(status_of(self.suite()))
        return True

    def work(self) -> bool:
        """Move Pods on until there is nothing to do; return whether that came."""
        calm_since: float | None = None
        for _ in range(STEPS):
            self.carry_out_plans()
            self.see_new_pods()
            self._see_runs()
            if not self.rests():
                calm_since = None
            elif calm_since is None:
                calm_since = self.clock.now()
            elif self.clock.now() - calm_since >= CALM_SECONDS:
                return True
            movable = [view for view in self.views() if self.is_movable(view)]
            if movable:
                self.move(self.random.choice(movable))
            self.wait(self.random.choice([0.001, 0.2, 1.0]) if movable else self._pause())
        return False

    def rests(self) -> bool:
        """Whether nothing goes on, and the suite says so."""
        if self.plans or self.supervisor.active:
            return False
        suite = self.suite()
        if not suite:
            return not self.suites.active
        if self.skewed.now() < self._tick:
            return False
        status = suite.get("status", {})
        ready = {each["type"]: each for each in status.get("conditions", [])}.get("Ready", {})
        is_current = status.get("observedGeneration") == suite["metadata"]["generation"]
        return is_current and ready.get("reason") in OVER

    def _pause(self) -> float:
        """Return how long to wait with nothing to move; it ends before a time of the schedule."""
        before = self._tick - 1.0 - self.skewed.now()
        if before > 0:
            return before
        if before > -1.0:
            self.reach(TICK)
        return 5.0

    def _see_runs(self) -> None:
        for name, raw in self.cluster.objects(RUN).items():
            stage, reached = _stage(raw), self._runs.get(name, "")
            if not reached:
                self.reach(CREATED)
            if stage == "ended" != reached:
                self.reach(ENDED)
            self._runs[name] = stage

    def kubelet_of(self, view: PodView) -> Kubelet:
        """Return what moves a Pod on: agents of one harness are right, of the other one wrong."""
        raw: Any = self.cluster.objects(ObjectKind.POD)[view.name]
        uid = raw["metadata"]["labels"][RUN_UID_LABEL]
        if uid not in self._kubelets:
            runs: list[Any] = list(self.cluster.objects(RUN).values())
            (spec,) = (run["spec"] for run in runs if run["metadata"]["uid"] == uid)
            script = "right" if spec["harness"]["config"]["command"] == RIGHT else "wrong"
            self._kubelets[uid] = Kubelet(self.root, uid, [script] * TASKS, "")
            self.reach(STARTED)
        return self._kubelets[uid]


OVER = frozenset({"Completed", "CellsFailed", "CellsInvalid", "GatesFailed", "GatesUndecided"})
"""What a suite says of which nothing is left to do."""


@contextmanager
def suite_scene(root: Path, seed: int, *, is_scheduled: bool = False) -> Iterator[SuiteScene]:
    """Open a scene of a suite that works in the test's own thread."""
    made = SuiteScene(root, seed, is_scheduled=is_scheduled)
    with ExitStack() as stack:
        for owner, name, moment in (
            (SuiteStore, "write", REMEMBERED),
            (GateEvaluator, "verdict", JUDGED),
            (BaselineReader, "read", COMPARED),
            (sealing, "write_statement", STATED),
        ):
            hook = _reaching(made, getattr(owner, name), moment)
            stack.enter_context(mock.patch.object(owner, name, hook))
        for verb, kind in EFFECTS:
            hook = _mortal(made, getattr(made.cluster, verb), kind)
            stack.enter_context(mock.patch.object(made.cluster, verb, hook))
        yield stack.enter_context(opened(made))


EFFECTS = (
    ("create", RUN),
    ("patch", RUN),
    ("delete", RUN),
    ("patch_status", ObjectKind.BENCHMARK_SUITE),
)
"""What the loop of a suite does to the cluster; it also writes its state."""


def _reaching(made: SuiteScene, real: Callable[..., Any], moment: Moment) -> Callable[..., Any]:
    """Return a function that does the same, and is a stage of the suite."""

    def reached(*args: Any, **named: Any) -> Any:
        if made.is_working:
            made.reach(moment)
        if moment is not REMEMBERED:
            return real(*args, **named)
        made.pass_effect()
        done = real(*args, **named)
        made.pass_effect()
        return done

    return reached


def _mortal(made: SuiteScene, real: Callable[..., Any], kind: ObjectKind) -> Callable[..., Any]:
    """Return a request in which the operator may die, if it is about a kind."""

    async def mortal(of: ObjectKind, *args: Any, **named: Any) -> Any:
        if of is not kind:
            return await real(of, *args, **named)
        if made.is_working and real.__name__ == "delete":
            made.reach(SHORTENED)
        made.pass_effect()
        done = await real(of, *args, **named)
        made.pass_effect()
        return done

    return mortal


def status_of(suite: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return what a suite says, without times."""
    status = suite.get("status", {})
    conditions = {
        each["type"]: (each["status"], each["reason"], each.get("message", ""))
        for each in status.get("conditions", [])
    }
    return {**conditions, "results": status.get("results"), "cells": status.get("cells")}


def _matrix(command: str) -> dict[str, object]:
    packs = [{"name": name, "pack": {"volume": {"path": name}}} for name in PACKS]
    harnesses = [_harness("a", RIGHT), _harness("b", command)]
    exclude = [{"pack": "other", "harness": "a"}]
    return {"packs": packs, "harnesses": harnesses, "exclude": exclude}


def _harness(name: str, command: str) -> dict[str, Any]:
    return {"name": name, "harness": {"type": "command", "config": {"command": command}}}


def _cell(raw: Any) -> str:
    return str(raw["metadata"].get("annotations", {}).get(SUITE_CELL_ANNOTATION, ""))


def _stage(raw: Any) -> str:
    conditions = raw.get("status", {}).get("conditions", [])
    found = {each["type"]: each["status"] for each in conditions}.get("Succeeded", "Unknown")
    return "created" if found == "Unknown" else "ended"
