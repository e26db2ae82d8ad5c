"""The machine model for suites: edits, syncs, restarts and deaths in any order.

The loop of a suite, what it remembers on the volume and the names of its runs are real; time,
cluster and the runs themselves are not. What may run is counted independently of those names.
Every decision that the loop asks for is checked against the promises of the pure function.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import tempfile
from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from securebench.cluster.port import ObjectKind
from securebench.controller import suite_loop
from securebench.controller.suite_store import SuiteStore, suite_folders, sweep_orphans
from securebench.errors import TransientClusterError
from securebench.suite.decide import DesiredSuite, ObservedSuite, SuiteDecision, decide
from securebench.suite.rounds import SuiteState
from support.build import inline, question, write_pack
from support.failing_volume import Fate
from support.suite_world import HARNESSES, PACKS, SuiteWorld

ENDS = ["Completed", "DeadlineExceeded"]
CALLS = [
    ("create", ObjectKind.BENCHMARK_RUN),
    ("list", ObjectKind.BENCHMARK_RUN),
    ("patch_status", ObjectKind.BENCHMARK_SUITE),
]
"""Calls of the operator that the API server may refuse."""

TASKS = 22
LOOKS = {"gates": {"notWorse": {"looks": 2}}, "baseline": {"suite": "nightly"}}
"""Half of the tasks lost are a loss, whatever the rest would show."""

OVER = {"Completed", "CellsFailed", "GatesFailed", "GatesUndecided"}
"""What a suite says of which nothing is left to do."""

FAIR_ROUNDS = 60
"""Rounds of a fair cluster within which every cell has run; each ends what goes on."""


def checked_decide(
    observed: ObservedSuite, state: SuiteState, desired: DesiredSuite, now: float
) -> SuiteDecision:
    """Decide, and assert what ``decide`` promises for any input that comes up."""
    found = decide(observed, state, desired, now)
    if found.needed is not None:
        assert (found.create, found.cancel, found.delete) == ((), (), ())
        return found
    runs, past = observed.runs.runs, observed.runs.past
    names = {run.name for run in found.create}
    assert names <= {run.name for run in found.state.plan.runs} - set(runs) - set(past)
    going = sum(not run.has_ended for run in runs.values())
    assert not names or going + len(names) <= desired.spec.max_concurrent_runs
    assert not (names and desired.spec.suspend)
    current = {run.name for run in found.state.plan.runs}
    assert not current & {run.name for run in found.delete}
    stopped = {run.name for run, _ in found.cancel} & current
    assert all(desired.spec.gates and not runs[run].has_ended for run in stopped)
    again = decide(observed, found.state, desired, now)
    assert (again.needed, again.state) == (None, found.state)
    assert {run.name for run in again.create} == names
    return found


Work = tuple[str, str, str, int, str]
"""Cell, pack digest, harness, attempts, and the value of the annotation that asked for it."""


class SuiteModel(RuleBasedStateMachine):
    """Drives one suite through everything that can happen to it."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        folder = self.stack.enter_context(tempfile.TemporaryDirectory())
        self.stack.enter_context(mock.patch.object(asyncio, "to_thread", inline))
        self.stack.enter_context(mock.patch.object(suite_loop, "decide", checked_decide))
        self.fate = Fate()
        self.world = SuiteWorld(Path(folder))
        self.world.runner.get_loop().set_exception_handler(lambda *_: None)
        for owner, name in (
            (self.world.cluster, "create"),
            (self.world.cluster, "delete"),
            (self.world.cluster, "patch_status"),
        ):
            self.stack.enter_context(
                mock.patch.object(owner, name, self._mortal(getattr(owner, name)))
            )
        self.stack.enter_context(
            mock.patch.object(SuiteStore, "write", self._mortal_write(SuiteStore.write))
        )
        self.spec: dict[str, Any] = {}
        self.value = ""
        self.asked: dict[str, str] = {}
        self.begun: dict[str, Work] = {}
        self.names = Counter[str]()
        self.worse = set[str]()

    def _mortal(self, real: Any) -> Any:
        async def mortal(*args: Any, **kwargs: Any) -> Any:
            self.fate.point()
            done = await real(*args, **kwargs)
            self.fate.point()
            return done

        return mortal

    def _mortal_write(self, real: Any) -> Any:
        def mortal(store: SuiteStore, state: Any) -> None:
            self.fate.point()
            real(store, state)
            self.fate.point()

        return mortal

    def _after(self) -> None:
        """Take in what runs are there, and start the operator again if it died."""
        if self.fate.is_dead:
            self.fate.fuse, self.fate.is_dead = None, False
            with self.fate.outside():
                self.world.restart_suites()
        assert self.world.suites.failed == 0
        for name, raw in self.world.cluster.objects(ObjectKind.BENCHMARK_RUN).items():
            assert self.world.cell(raw) in self._cells() or name in self.asked
            self.asked.setdefault(name, self.value)
            assert name in self.worse or not self._is_cancelling(name)

    def _is_cancelling(self, name: str) -> bool:
        raw: Any = self.world.cluster.objects(ObjectKind.BENCHMARK_RUN)[name]
        return bool(raw["spec"].get("cancel") == "Immediate")

    def _end(self, name: str, reason: str = "Completed") -> None:
        """End a run as its own loop does: a cancelled one with what it has done by then."""
        self._begin(name)
        if self._is_cancelling(name):
            self.world.end(name, "Cancelled", passed=[False] * (TASKS // 2))
        else:
            self.world.end(name, reason, passed=[True] * TASKS)

    def _cells(self) -> set[str]:
        matrix = self.spec["matrix"]
        pairs = itertools.product(matrix["packs"], matrix["harnesses"])
        return {f"{pack['name']}/{harness['name']}" for pack, harness in pairs}

    def _work(self, name: str) -> Work:
        raw: Any = self.world.cluster.objects(ObjectKind.BENCHMARK_RUN)[name]
        spec = raw["spec"]
        harness = json.dumps(spec["harness"]["config"])
        return (
            self.world.cell(raw), spec["pack"]["digest"], harness, spec["attempts"],
            self.asked[name],
        )  # fmt: skip

    def _begin(self, name: str) -> None:
        run: Any = self.world.cluster.objects(ObjectKind.BENCHMARK_RUN)[name]
        uid, work = run["metadata"]["uid"], self._work(name)
        again = [other for other, known in self.begun.items() if known == work and other != uid]
        assert not again, f"{name} does what a run did before: {work}"
        self.names[name] += uid not in self.begun
        self.begun[uid] = work
        self.world.begin(name)

    @initialize()
    def begin(self) -> None:
        """Give every cell its baseline, and run all of them again."""
        self.edit(PACKS, HARNESSES, 1, 4, is_suspended=False, has_looks=True)
        for name in self.world.going().values():
            self._end(name)
        assert self.world.said()[1] == "Completed"
        self.annotate("one")

    @rule(
        packs=st.lists(st.sampled_from(PACKS), min_size=1, unique_by=lambda each: each["name"]),
        harnesses=st.lists(
            st.sampled_from(HARNESSES), min_size=1, unique_by=lambda each: each["name"]
        ),
        attempts=st.integers(1, 2),
        at_once=st.integers(1, 4),
        is_suspended=st.booleans(),
        has_looks=st.booleans(),
    )
    def edit(
        self,
        packs: Iterable[Any],
        harnesses: Iterable[Any],
        attempts: int,
        at_once: int,
        *,
        is_suspended: bool,
        has_looks: bool,
    ) -> None:
        self.spec = {
            "matrix": {"packs": list(packs), "harnesses": list(harnesses)},
            "attempts": attempts,
            "maxConcurrentRuns": at_once,
            "suspend": is_suspended,
            **(LOOKS if has_looks else {}),
        }
        self.world.apply_suite(**self.spec)
        self._after()

    @rule(command=st.sampled_from(["echo A", "echo C"]))
    def change_a_harness(self, command: str) -> None:
        harness = {"type": "command", "config": {"command": command}}
        matrix = {**self.spec["matrix"], "harnesses": [{"name": "a", "harness": harness}]}
        self.spec = {**self.spec, "matrix": matrix}
        self.world.apply_suite(**self.spec)
        self._after()

    @rule(name=st.sampled_from(["smoke", "other"]), version=st.integers(0, 2))
    def change_a_pack(self, name: str, version: int) -> None:
        write_pack(self.world.root / "packs" / name, [question(f"v{version}")])

    @rule(value=st.sampled_from(["", "one", "two"]))
    def annotate(self, value: str) -> None:
        if value and self.spec["suspend"]:
            return
        self.value = value or self.value
        self.world.annotate(value or None)
        self._after()

    @rule()
    def sync(self) -> None:
        self.world.apply_suite(**self.spec)
        self._after()

    @rule(seconds=st.sampled_from([1.0, 40.0, 130.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.settle(seconds)
        self._after()

    @rule()
    def restart(self) -> None:
        self.world.restart_suites()
        self._after()

    @rule(is_down=st.booleans())
    def delete_and_apply_again(self, *, is_down: bool) -> None:
        """Kubernetes deletes the runs with their suite, whether an operator sees it or not."""
        world = self.world
        with self.fate.outside():
            if not is_down:
                world.tell_suite(kind="DELETED")
            world.cluster.remove(ObjectKind.BENCHMARK_SUITE, "nightly")
            for name in world.run_names():
                world.cluster.remove(ObjectKind.BENCHMARK_RUN, name)
            if is_down:
                world.restart_suites()
                world.runner.run(sweep_orphans(world.context))
            assert suite_folders(world.root) == []
            self.value = ""
            world.apply_suite(**self.spec)
        self._after()

    @rule(effects=st.integers(1, 6))
    def let_die(self, effects: int) -> None:
        self.fate.fuse = effects

    @rule(call=st.sampled_from(CALLS), before=st.booleans())
    def fail_a_call(self, call: tuple[str, ObjectKind], *, before: bool) -> None:
        error = TransientClusterError("the server is away")
        self.world.cluster.fail_next(call[0], error, before=before, kind=call[1])

    @precondition(lambda self: self.world.going())
    @rule(data=st.data(), reason=st.sampled_from(ENDS))
    def end_a_run(self, data: st.DataObject, reason: str) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.going().values())))
        with self.fate.outside():
            self._end(name, reason)
        self._after()

    @precondition(lambda self: self.world.going())
    @rule(data=st.data())
    def lose_the_first_tasks(self, data: st.DataObject) -> None:
        """A run goes on with a loss, which stops it where its cell has a baseline and looks."""
        name = data.draw(st.sampled_from(sorted(self.world.going().values())))
        self._begin(name)
        self.worse.add(name)
        with self.fate.outside():
            self.world.write_records(self.world.begin(name), [False] * (TASKS // 2))
        self.world.settle(95)
        self._after()

    @precondition(lambda self: self.world.going())
    @rule(data=st.data())
    def begin_a_run(self, data: st.DataObject) -> None:
        self._begin(data.draw(st.sampled_from(sorted(self.world.going().values()))))

    @precondition(lambda self: self.world.run_names())
    @rule(data=st.data())
    def delete_a_run(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.world.run_names()))
        self.world.cluster.remove(ObjectKind.BENCHMARK_RUN, name)

    def teardown(self) -> None:
        try:
            if self.spec:
                self._finish()
        finally:
            self.fate.is_outside = 1
            for supervisor in (self.world.suites, self.world.supervisor):
                self.world.runner.run(supervisor.close())
            self.world.runner.close()
            self.stack.close()

    def _finish(self) -> None:
        """On a fair cluster every cell of the suite has run, once, with what it is now."""
        self.fate.fuse = None
        self.world.cluster.recover()
        self._after()
        self.spec = {**self.spec, "suspend": False}
        self.world.apply_suite(**self.spec)
        for _ in range(FAIR_ROUNDS):
            self.world.settle(65)
            self._after()
            for name in self.world.going().values():
                self._end(name)
            if self.world.said("Reconciling")[0] == "False":
                break
        assert self.world.said()[1] in OVER, self.world.said()
        results = self.world.suite_status()["results"]
        assert {each["cell"] for each in results} == self._cells()
        assert [each["cell"] for each in results if self.names[each["run"]] != 1] == []


def test_suite_model() -> None:
    run_state_machine_as_test(
        SuiteModel,
        settings=settings(
            max_examples=30,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
