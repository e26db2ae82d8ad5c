"""The machine model: the real operator against a cluster, a kubelet and a user at their worst.

Supervisor, run loop, journal, object writers and informers are real; time, cluster and kubelet
are not.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from property.machine_operator import (
    NAME,
    RETRIES,
    WAYS_OUT,
    OperatorUnderTest,
)
from securebench.cluster.port import Forbidden, ObjectKind, QuotaExceeded
from securebench.controller import run_loop
from securebench.errors import PermanentClusterError, TransientClusterError
from securebench.run.api.field_types import Outcome
from securebench.run.decide.canary import PROBING
from securebench.run.observe.pods import PodView
from securebench.run.plan.model import Role
from securebench.run.state.attempts import Finish
from support.build import (
    DISRUPTED,
    pod_status,
    probe_done,
)
from support.kubelet import ALL_SCRIPTS, REQUESTS, SCRIPTS, SPOILED, TARGET

CHECKS = list(HealthCheck)
MIN_EFFECTS = 30
"""Points at which an operator can die even in the shortest of the runs below."""

MAX_FORBIDDEN = 7
"""Refusals by rights in one run: with two more, the time for which it tries would not be over."""

FAIR_ROUNDS = 60
"""Rounds of a fair cluster within which a run has to end; each is half a minute."""

ENDED_BY_THE_CLUSTER = {"GatewayFailed", "PodRefused", "IsolationNotVerified"}
"""Reasons that end a run together with attempts that have no result."""


class MachineModel(OperatorUnderTest):
    """Drives one run through everything that can happen to it."""

    # Time and the operator

    @rule(seconds=st.sampled_from([0.001, 0.5, 3.0, 30.0, 200.0]))
    def time_passes(self, seconds: float) -> None:
        self._pass(seconds)

    @rule(effects=st.integers(1, 12))
    def the_operator_will_die(self, effects: int) -> None:
        self.world.fate.fuse = effects

    @rule()
    def the_operator_is_killed(self) -> None:
        self.world.kill()
        self._pass(0.001)

    @rule()
    def the_operator_is_restarted(self) -> None:
        with self._working():
            self.world.stop()
            self.world.start()

    @rule(times=st.integers(1, 3))
    def readings_end_their_process(self, times: int) -> None:
        self.world.reading_ends = times
        self.is_unreadable |= times > 1

    # The cluster

    @rule(count=st.integers(1, 4))
    def events_get_lost(self, count: int) -> None:
        self.world.cluster.lose_events(count)

    @rule()
    def the_history_expires(self) -> None:
        self.world.cluster.expire_history()
        self._pass(0.001)

    @rule(breaks=st.booleans())
    def watches_end(self, breaks: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        self.world.cluster.end_watches(
            TransientClusterError("connection reset") if breaks else None
        )
        self._pass(0.001)

    @rule(
        verb=st.sampled_from(
            ["create", "delete", "delete_collection", "patch", "patch_status", "list", "watch"]
        ),
        kind=st.sampled_from([None, ObjectKind.POD]),
        before=st.booleans(),
    )
    def a_call_fails(self, verb: str, kind: ObjectKind | None, before: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        self.world.cluster.fail_next(
            verb, TransientClusterError("no answer"), before=before, kind=kind
        )

    @rule(count=st.integers(1, 4))
    def a_pod_is_made_without_a_trace(self, count: int) -> None:
        self.world.cluster.fail_next(
            "create", TransientClusterError("x"), before=False, kind=ObjectKind.POD
        )
        self.world.cluster.lose_events(count)

    @rule()
    def the_quota_is_used_up(self) -> None:
        self.world.cluster.fail_next(
            "create", QuotaExceeded("exceeded quota: pods"), kind=ObjectKind.POD
        )

    @precondition(lambda self: not self.is_refused)
    @rule()
    def a_pod_is_refused(self) -> None:
        self.is_refused = True
        error = PermanentClusterError("invalid", status=422)
        self.world.cluster.fail_next("create", error, kind=ObjectKind.POD)

    @precondition(lambda self: self.forbidden < MAX_FORBIDDEN)
    @rule(
        count=st.integers(1, 3),
        kind=st.sampled_from([ObjectKind.POD, ObjectKind.SERVICE, ObjectKind.NETWORK_POLICY]),
    )
    def rights_are_away_for_a_while(self, count: int, kind: ObjectKind) -> None:
        self.forbidden += count
        for _ in range(count):
            self.world.cluster.fail_next("create", Forbidden("forbidden", status=403), kind=kind)

    # The kubelet

    @precondition(lambda self: self._going())
    @rule(data=st.data())
    def a_pod_starts(self, data: st.DataObject) -> None:
        view = data.draw(st.sampled_from(self._going()))
        self._report(view, self.kubelet.started(view))

    @precondition(lambda self: self._going())
    @rule(data=st.data())
    def a_pod_ends(self, data: st.DataObject) -> None:
        self._finish(data.draw(st.sampled_from(self._going())))

    @precondition(lambda self: self._going())
    @rule(data=st.data(), reason=st.sampled_from(["Evicted", "NodeLost", "NodeShutdown"]))
    def a_pod_is_ended(self, data: st.DataObject, reason: str) -> None:
        view = data.draw(st.sampled_from(self._going()))
        self._count_loss(view)
        self._report(view, pod_status("Failed", reason=reason, conditions=[DISRUPTED]))

    @precondition(lambda self: self.world.views())
    @rule(data=st.data())
    def a_pod_vanishes(self, data: st.DataObject) -> None:
        view = data.draw(st.sampled_from(self.world.views()))
        self._count_loss(view)
        self.world.cluster.remove(ObjectKind.POD, view.name)
        self._pass(0.001)

    @precondition(lambda self: any(view.deleting_since for view in self.world.views()))
    @rule(data=st.data())
    def a_deletion_ends(self, data: st.DataObject) -> None:
        going = [view for view in self.world.views() if view.deleting_since]
        self.world.cluster.finish_deletion(data.draw(st.sampled_from(going)).name)
        self._pass(0.001)

    @precondition(lambda self: self._going())
    @rule(data=st.data())
    def somebody_deletes_a_pod(self, data: st.DataObject) -> None:
        view = data.draw(st.sampled_from(self._going()))
        self._count_loss(view)
        self.world.cluster.begin_deletion(view.name)
        self._pass(0.001)

    @precondition(lambda self: self.world.cluster.objects(ObjectKind.NETWORK_POLICY))
    @rule(data=st.data())
    def somebody_deletes_a_policy(self, data: st.DataObject) -> None:
        names = sorted(self.world.cluster.objects(ObjectKind.NETWORK_POLICY))
        self.world.cluster.lose_policy(data.draw(st.sampled_from(names)))
        self._pass(0.001)

    @precondition(lambda self: self.world.cluster.objects(ObjectKind.NETWORK_POLICY))
    @rule(data=st.data())
    def somebody_edits_a_policy(self, data: st.DataObject) -> None:
        names = sorted(self.world.cluster.objects(ObjectKind.NETWORK_POLICY))
        self.world.cluster.edit_policy(data.draw(st.sampled_from(names)))
        self._pass(0.001)

    def _probing(self) -> list[PodView]:
        return [view for view in self._going() if view.role in PROBING]

    @precondition(lambda self: self._probing())
    @rule(data=st.data())
    def a_probing_pod_is_lost(self, data: st.DataObject) -> None:
        self.world.cluster.remove(ObjectKind.POD, data.draw(st.sampled_from(self._probing())).name)
        self._pass(0.001)

    @precondition(lambda self: self._probing())
    @rule()
    def the_probing_pods_answer(self) -> None:
        for view in self._probing():
            if view.name in self.world.cluster.objects(ObjectKind.POD):
                self._finish(view)

    @precondition(lambda self: self._probing())
    @rule()
    def the_canary_gets_out(self) -> None:
        for view in self._probing():
            if view.name in self.world.cluster.objects(ObjectKind.POD):
                self._report(view, probe_done({TARGET.name: "open"}))

    @precondition(lambda self: self.world.cluster.objects(ObjectKind.SERVICE))
    @rule()
    def somebody_deletes_the_service(self) -> None:
        for name in self.world.cluster.objects(ObjectKind.SERVICE):
            self.world.cluster.remove(ObjectKind.SERVICE, name)
        self._pass(0.001)

    @rule(how=st.sampled_from(sorted(SPOILED)))
    def verdicts_of_a_batch_are_spoiled(self, how: str) -> None:
        self.kubelet.spoil = how

    # The user

    def _edit(self, **spec: object) -> None:
        self.ledger.may_begin = not self.is_suspended or self.is_cancelled
        self.world.cluster.edit(ObjectKind.BENCHMARK_RUN, NAME, {"spec": spec})
        with self._working():
            self.world.observe("MODIFIED")

    @rule(suspend=st.booleans())
    def the_user_suspends(self, suspend: bool) -> None:  # noqa: FBT001 - drawn by hypothesis
        self.is_suspended = suspend
        self._edit(suspend=suspend)

    @rule(parallelism=st.integers(1, 3))
    def the_user_changes_parallelism(self, parallelism: int) -> None:
        self.ledger.parallelism = parallelism
        self._edit(parallelism=parallelism)

    @precondition(lambda self: not self.is_cancelled)
    @rule(mode=st.sampled_from(["Graceful", "Immediate"]))
    def the_user_cancels(self, mode: str) -> None:
        self.is_cancelled = True
        self._edit(cancel=mode)

    # What always holds

    @invariant()
    def the_operator_has_no_defect(self) -> None:
        assert self.world.errors.lines == []

    @invariant()
    def an_attempt_has_one_pod_that_lives(self) -> None:
        living = [view for view in self._going() if view.deleting_since is None]
        count = Counter(each.attempt_key for view in living for each in view.launches)
        assert all(number == 1 for number in count.values())

    @invariant()
    def a_finished_attempt_never_changes(self) -> None:
        for key, known in self._attempts().items():
            if known.finish is None:
                continue
            place = f"runs/{self.world.uid}/tasks/{key.task}/attempts/{key.attempt}/record.json"
            record = (self.world.root / place).read_bytes()
            assert self.ledger.records.setdefault(key, record) == record
            assert hashlib.sha256(record).hexdigest() == known.state.record_sha256

    # The end

    def teardown(self) -> None:
        try:
            if self.is_sound:
                self._be_fair()
                self._check_end()
        finally:
            self.stack.close()
            self.folder.cleanup()

    def _be_fair(self) -> None:
        """Let the cluster work as it should until the run has ended."""
        self.world.fate.fuse = self.world.fate.fuse if self.spare_fuse else None
        self.world.cluster.recover()
        self.the_user_suspends(suspend=False)
        for _ in range(FAIR_ROUNDS):
            for view in self.world.views():
                if view.name not in self.world.cluster.objects(ObjectKind.POD):
                    continue  # the operator removed it a moment ago
                if view.deleting_since is not None:
                    self.world.cluster.finish_deletion(view.name)
                elif view.role is Role.GATEWAY and not view.is_terminal:
                    self._report(view, self.kubelet.started(view))
                elif not view.is_terminal:
                    self._finish(view)
            self._pass(30.0)
            if not self.world.supervisor.active:
                return
        raise AssertionError("the run does not end on a fair cluster")

    def _check_end(self) -> None:
        self.the_operator_has_no_defect()
        self.a_finished_attempt_never_changes()
        assert self.ledger.history.ended is not None
        assert [view.name for view in self._going() if view.deleting_since is None] == []
        assert self.world.cluster.objects(ObjectKind.SERVICE) == {}
        for key, known in self._attempts().items():
            assert known.finish is not None
            self._check_finish(known.finish, self.scripts[key.task])
        self._check_files()
        self._check_status()

    def _check_finish(self, finish: Finish, script: str) -> None:
        outcome, passes = ALL_SCRIPTS[script]
        allowed = {outcome}
        if self.lost[finish.key] > RETRIES:
            allowed.add(Outcome.INFRASTRUCTURE)
        ended_as = self.ledger.history.ended
        reason = ended_as.reason if ended_as is not None else ""
        # A process that starts again knows of no refusal; it asks again for what has no record yet.
        is_cut = self.is_cancelled or self.is_refused or reason in ENDED_BY_THE_CLUSTER
        allowed |= {Outcome.CANCELLED} if is_cut else set()
        if finish.reason == "candidate_invalid" and outcome is not Outcome.AGENT:
            assert self.is_unreadable
            allowed.add(Outcome.AGENT)
        assert self.way_out or reason != "GatewayFailed"
        assert self.is_refused or reason != "PodRefused"
        is_unproven = reason == "IsolationNotVerified"
        assert not is_unproven or finish.outcome is Outcome.CANCELLED
        assert not (is_unproven and self.ledger.is_declared)
        assert finish.outcome in allowed
        assert (finish.passed is True) == (finish.outcome is Outcome.SCORED and passes)

    def _check_files(self) -> None:
        folder = self.world.root / "runs" / self.world.uid
        data = (folder / "candidates.jsonl").read_bytes()
        records = [json.loads(line) for line in data.splitlines()]
        want = [(f"{key.task}-{self.scripts[key.task]}", key.attempt) for key in self._attempts()]
        assert [(record["task_id"], record["attempt"]) for record in records] == want
        summary = json.loads((folder / "summary.json").read_text())
        assert summary["total"] == len(want)
        assert summary["sha256"] == hashlib.sha256(data).hexdigest()
        assert not list(folder.glob("tasks/*/lanes"))
        self._check_usage(records, summary)

    def _check_usage(self, records: list[dict[str, Any]], summary: dict[str, Any]) -> None:
        """What was asked is counted once for each launch, also where a launch was lost."""
        if self.way_out != "provider":
            assert "usage" not in summary
            return
        usages = [record["producer_metadata"]["usage"]["requests"] for record in records]
        for asked, key in zip(usages, self._attempts(), strict=True):
            assert asked % REQUESTS == 0
            produced = self.ledger.counts["Produced", key]
            assert produced <= asked // REQUESTS <= self.kubelet.reports(*key)
        assert summary["usage"]["requests"] == sum(usages)

    def _check_status(self) -> None:
        status: Any = self.world.run()["status"]
        conditions = {item["type"]: item for item in status["conditions"]}
        ended_as = self.ledger.history.ended
        assert ended_as is not None
        assert conditions["Succeeded"]["status"] in {"True", "False"}
        assert conditions["Succeeded"]["reason"] == ended_as.reason
        assert conditions["ResultsSealed"]["status"] == "True"
        assert status["tasks"]["done"] == status["tasks"]["total"] == len(self._attempts())


def test_machine_model() -> None:
    run_state_machine_as_test(
        MachineModel,
        settings=settings(
            max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=CHECKS
        ),
    )


@pytest.mark.parametrize("script", sorted(ALL_SCRIPTS))
def test_a_run_that_nothing_disturbs(script: str) -> None:
    model = MachineModel()
    try:
        model.apply([script], 1, 1, "" if script in SCRIPTS else "provider")
    finally:
        model.teardown()


def test_ended_pods_of_a_run_that_nothing_disturbs_go_together() -> None:
    model = MachineModel()
    try:
        model.apply(["right", "wrong", "right"], 2, 3)
    finally:
        model.teardown()
    deletes = model.world.cluster.requests["delete", ObjectKind.POD]
    assert model.world.cluster.requests["delete_collection", ObjectKind.POD] >= 1
    assert deletes < len(model.world.cluster.on_create) / 2


@pytest.mark.parametrize("how", sorted(SPOILED))
def test_verdicts_of_a_batch_that_are_spoiled_cost_one_more_launch(how: str) -> None:
    """No verdict is taken from them, each candidate is judged alone, and no retry is used up."""
    model = MachineModel()
    try:
        model.apply(["right", "wrong", "unjudged", "right"], 1, 4)
        model.kubelet.spoil = how
    finally:
        model.teardown()
    alone = {"": 1}.get(how, 4)
    assert len(model.world.cluster.on_create) == 4 + 1 + alone
    known = model.ledger.history.attempts.values()
    assert [each.retries for each in known] == [()] * 4
    assert sum(each.shared for each in known) == alone


@pytest.mark.parametrize("way_out", sorted(WAYS_OUT))
def test_a_run_with_a_proof_that_nothing_disturbs(way_out: str) -> None:
    model = MachineModel()
    try:
        model.apply(["right", "wrong"], 1, 2, way_out, require="Verified")
    finally:
        model.teardown()
    assert model.ledger.history.isolation is not None
    assert model.ledger.history.isolation.verified


def test_a_defect_of_the_operator_is_heard() -> None:
    model = MachineModel()
    with mock.patch.object(run_loop, "reconcile", side_effect=ZeroDivisionError):
        model.apply(["right"], 1, 1)
    with pytest.raises(AssertionError, match="loop failed"):
        model.the_operator_has_no_defect()
    model.is_sound = False
    model.teardown()


DEATHS = {
    "to the end": (["right", "greedy"], "", "", "Declared"),
    "graceful": (["right", "greedy"], "", "Graceful", "Declared"),
    "immediate": (["right", "greedy"], "", "Immediate", "Declared"),
    "at what the agent left": (["hiccup"], "", "", "Declared"),
    "with a batch": (["right", "wrong"], "", "", "Declared"),
    "with a batch that crashes": (["right", "unjudgeable"], "", "", "Declared"),
    "with a provider": (["flaky", "thirsty"], "provider", "", "Declared"),
    "with a proof": (["right"], "", "", "Verified"),
    "with a proof and a gateway": (["right"], "domains", "", "Verified"),
    "cancelled before the proof": (["right"], "", "Immediate", "Verified"),
}


@pytest.mark.parametrize("name", DEATHS)
def test_death_at_every_third_effect(name: str) -> None:
    die_in_turn(name, 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", DEATHS)
def test_death_at_any_effect(name: str) -> None:
    die_in_turn(name, 1)


def die_in_turn(name: str, stride: int) -> None:
    """Let the first operator die at its effects in turn; the second brings the run home."""
    scripts, way_out, cancel, require = DEATHS[name]
    for effects in itertools.count(1, stride):
        model = MachineModel()
        model.first_fuse = effects
        model.spare_fuse = True
        try:
            model.apply(scripts, 1, 1, way_out, require=require)
            if cancel:
                model.the_user_cancels(cancel)
        finally:
            model.teardown()
        if model.world.deaths == 0:
            break
    assert effects > MIN_EFFECTS
