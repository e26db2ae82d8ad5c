"""What is decided by what has changed is what a look at the whole run decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from securebench.run.api.field_types import Outcome
from securebench.run.decide.capacity import Bound, Headroom, Holding
from securebench.run.decide.controls import Controls, Halt
from securebench.run.decide.decision_cache import ChangeSet, DecisionCache
from securebench.run.decide.network import NetworkState
from securebench.run.decide.reconcile import ObservedState, RunDecision, reconcile
from securebench.run.observe.pods import PodView
from securebench.run.plan.model import AttemptKey, LaunchKey, PodRetention, Role, pod_name
from securebench.run.state.attempts import Finish, Lost
from securebench.run.state.history import AttemptIndex
from support.build import (
    NOW,
    PROVEN_NETWORK,
    changed,
    harness_done,
    history_of,
    many_tasks,
    plan_of,
    pod_status,
    production,
    running,
    verification,
    verifier_done,
    view_of,
)

TASKS = 6
STUCK = pod_status(
    "Pending",
    conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}],
)
PENDING = pod_status("Pending")
STATUSES = {
    Role.HARNESS: (PENDING, pod_status("Running", running("harness")), harness_done()),
    Role.VERIFIER: (PENDING, pod_status("Running", running("verifier")), verifier_done()),
}
GATES = [{"name": "kueue.x-k8s.io/admission"}]
CHANGES = ("live", "made", "lost", "end")


class Run:
    """A run to which anything happens, and which carries out what it decides."""

    def __init__(self) -> None:
        self.plan = plan_of(*many_tasks(TASKS), keep_pods=PodRetention.FAILED)
        self.history = AttemptIndex(history_of(AttemptKey(task, 1)) for task in range(TASKS))
        self.pods: dict[str, PodView] = {}
        self.vanished: set[str] = set()
        self.pending: set[str] = set()
        self.changed: set[str] = set()
        self.network: NetworkState = PROVEN_NETWORK
        self.controls = Controls(parallelism=3)
        self.cache = DecisionCache()
        self.now = NOW
        self.is_first = True

    def step(self, what: str, number: int) -> None:
        """Let something happen, then decide both ways and apply the decision."""
        SITUATIONS[what](self, number)
        news = ChangeSet(self.history.pop_changed(), self.changed)
        self.changed = set()
        observed = ObservedState(
            self.plan,
            self.history,
            self.network,
            self.pods,
            frozenset(self.pending),
            frozenset(self.vanished),
            self.now,
            changes=None if self.is_first else news,
        )
        self.is_first = False
        decision = reconcile(observed, self.controls, self.cache)
        assert decision == reconcile(replace(observed, changes=None), self.controls)
        self._apply(decision)

    def nothing(self, _: int) -> None:
        """Decide again without any news."""

    def pod(self, number: int) -> None:
        """Let a launch's Pod come or go on."""
        for launch in self._live()[number % TASKS :][:1]:
            name = pod_name(self.plan.identity.uid, launch)
            choices = (*STATUSES[launch.role], STUCK)
            if name not in self.vanished:
                gates = GATES if number % 7 == 0 else []
                status = choices[number % len(choices)]
                self.pods[name] = view_of(launch, status, schedulingGates=gates)
                self.changed.add(name)

    def vanish(self, number: int) -> None:
        for launch in self._live()[number % TASKS :][:1]:
            self._gone(pod_name(self.plan.identity.uid, launch))

    def time(self, number: int) -> None:
        self.now += (1, 30, 300)[number % 3]

    def halt(self, number: int) -> None:
        self.controls = replace(self.controls, halt=(*Halt, Halt.NONE, Halt.NONE)[number % 6])

    def parallelism(self, number: int) -> None:
        self.controls = replace(self.controls, parallelism=1 + number % TASKS)

    def headroom(self, number: int) -> None:
        others = {"other": Holding(number % 3, number % 2)}
        headroom = Headroom(
            pods=Bound(2 + number, "mine", others),
            own_starting=1 + number % 5,
            first_pulls=1 + number % 3,
            started=("python:3.11-slim",) if number % 2 else (),
        )
        self.controls = replace(self.controls, headroom=headroom)

    def proof(self, number: int) -> None:
        self.network = PROVEN_NETWORK if number % 2 else NetworkState()

    def pending(self, _: int) -> None:
        self.pending = {pod_name(self.plan.identity.uid, each) for each in self._live()}

    def _live(self) -> Sequence[LaunchKey]:
        """Return the launches after which the Pods of live ones are named."""
        return sorted({each.pod for each in self.history.under_way if each.pod is not None})

    def _gone(self, name: str) -> None:
        self.pods.pop(name, None)
        self.vanished.add(name)
        self.changed.add(name)

    def _set(self, key: AttemptKey, **changes: Any) -> None:
        self.history[key] = changed(self.history[key], **changes)

    def _begin(self, launch: LaunchKey, batch: LaunchKey | None) -> None:
        begun = {"live": launch, "live_since": self.now, "batch": batch}
        self._set(launch.attempt_key, **begun, launches=launch.launch)

    def _apply(self, decision: RunDecision) -> None:
        for lost in decision.lost:
            known = self.history[lost.launch.attempt_key]
            self._set(
                known.key, live=None, last_lost=lost, retries=(*known.retries, lost.launch.role)
            )
        for launch in decision.begin:
            self._begin(launch, None)
        for batch in decision.batches:
            for launch in batch:
                self._begin(launch, batch[0])
        for capture in decision.captures:
            key = capture.launch.attempt_key
            if capture.launch.role is Role.HARNESS:
                self._set(key, live=None, production=production())
            else:
                self._set(key, live=None, verification=verification())
        for finish in decision.finishes[:2]:
            self._set(finish.key, live=None, finish=finish)
        for deletion in decision.deletions[:1]:
            self._gone(deletion.name)


SITUATIONS = {
    "decide": Run.nothing,
    "pod": Run.pod,
    "vanish": Run.vanish,
    "time": Run.time,
    "halt": Run.halt,
    "parallelism": Run.parallelism,
    "proof": Run.proof,
    "pending": Run.pending,
    "headroom": Run.headroom,
}
STEPS = st.tuples(st.sampled_from([*SITUATIONS, *["pod"] * 5]), st.integers(0, TASKS * 2))


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, min_size=5, max_size=60))
def test_news_decide_what_the_whole_run_decides(steps: list[tuple[str, int]]) -> None:
    run = Run()
    for what, number in steps:
        run.step(what, number)


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(CHANGES))))
def test_counts_of_an_index_are_those_of_its_attempts(changes: list[tuple[int, str]]) -> None:
    index = AttemptIndex(history_of(AttemptKey(task, 1)) for task in range(4))
    for task, what in changes:
        key = AttemptKey(task, 1)
        launch = LaunchKey(task, 1, Role.HARNESS, 1)
        change = {
            "live": {"live": launch, "launches": 1},
            "made": {"live": None, "production": production()},
            "lost": {"live": None, "last_lost": Lost(launch, "pod_lost", "", NOW)},
            "end": {"live": None, "finish": Finish(key, Outcome.SCORED, passed=task > 1)},
        }
        index[key] = changed(index[key], **change[what])
        again = AttemptIndex(index.values())
        assert index.tally() == again.tally()
        assert index.open == sum(1 for each in index.values() if each.finish is None)
        assert {each.key for each in index.under_way} == {each.key for each in again.under_way}
        assert index.has_results == again.has_results
