import asyncio
import json
from dataclasses import replace

import pytest

from securebench.cluster.port import ObjectKind
from securebench.controller.context import run_object
from securebench.controller.object_loop import LatestObject
from securebench.controller.publish import (
    Publisher,
    RunFacts,
    run_fields,
    succeeded,
    with_derived,
)
from securebench.controller.sealing import Exported
from securebench.controller.volume_calls import VolumeCall
from securebench.run.api.field_types import Outcome
from securebench.run.api.status import (
    MAX_REASONS,
    ConditionStatus,
    ConditionType,
    ConditionUpdate,
    Reason,
    set_conditions,
)
from securebench.run.plan.model import LaunchKey, Role, RunPlan
from securebench.run.state.attempts import Finish, Lost
from securebench.run.state.entries import (
    ContainerEvidence,
    ContainerUsage,
    Finished,
    IsolationResult,
    LaunchBegun,
    LaunchEvidence,
    LaunchLost,
    Produced,
    ResourceNoise,
    RunEnded,
)
from securebench.run.state.history import (
    RunHistory,
    attempt_rewards,
    run_history,
    task_verdicts,
)
from securebench.sizes import GIB
from securebench.stats.intervals import Estimates, mean_reward, pass_at_each_k, pass_rate
from support.build import (
    NOW,
    FakeClock,
    changed,
    context_of,
    many_tasks,
    plan_of,
    production,
    run_body,
)
from support.fake_cluster import FakeCluster
from support.manifest_samples import text_task
from support.records import SCHEMA

LIMIT_BYTES = 32 * 1024


def finished(plan: RunPlan, *finishes: Finish) -> RunHistory:
    history = run_history(plan, ())
    for finish in finishes:
        known = history.attempts[finish.key]
        history.attempts[finish.key] = changed(known, finish=finish, record_sha256="a" * 64)
    return history


def estimates_of(history, at_each_k=lambda _: ()):
    verdicts = task_verdicts(history.attempts.values())
    rewards = mean_reward(attempt_rewards(history.attempts.values()))
    return Estimates(pass_rate(verdicts), at_each_k(verdicts), rewards)


def running(plan, history, exported=None, estimates=None):
    facts = RunFacts(plan, history, exported or Exported())
    return run_fields(facts, estimates or estimates_of(history))


def outcome_of(key, outcome, passed=None):
    return Finish(key, outcome, passed=passed)


REWARDED = {
    "rewards": ("reward-file", {"scoreSum": "1.5", "meanReward": "0.5"}),
    "no rewards": ("exit-code", {"scoreSum": "1.5", "meanReward": None}),
}


@pytest.mark.parametrize("name", REWARDED)
def test_a_status_has_the_mean_of_rewards(name):
    grading, want = REWARDED[name]
    plan = plan_of(*many_tasks(4), attempts=1)
    keys = list(run_history(plan, ()).attempts)
    ends = [
        Finish(keys[0], Outcome.SCORED, passed=True, score=2.0, grading=grading),
        Finish(keys[1], Outcome.SCORED, passed=False, score=-0.5, grading=grading),
        Finish(keys[2], Outcome.AGENT, "empty_candidate", "verification", "m", passed=False),
        Finish(keys[3], Outcome.VERIFIER, "reward_missing", "verification", "m", grading=grading),
    ]
    score = running(plan, finished(plan, *ends))["score"]
    mean = score.get("meanReward")
    assert {"scoreSum": score["scoreSum"], "meanReward": mean and mean["value"]} == want


def test_a_status_counts_and_rates():
    plan = plan_of(*many_tasks(4), attempts=1)
    ends = [(Outcome.SCORED, True), (Outcome.SCORED, False), (Outcome.INFRASTRUCTURE, None)]
    keys = list(run_history(plan, ()).attempts)
    history = finished(plan, *(outcome_of(key, *end) for key, end in zip(keys, ends, strict=False)))
    status = running(plan, history, exported=Exported(3, "f" * 64))
    assert status["tasks"] == {
        "total": 4,
        "done": 3,
        "active": 0,
        "scored": 2,
        "agent": 0,
        "resource": 0,
        "verifier": 0,
        "infrastructure": 1,
        "provider": 0,
        "cancelled": 0,
        "unverified": 0,
    }
    assert status["score"] == {
        "passed": 1,
        "verified": 2,
        "scoreSum": "1.0",
        "passRate": {"value": "0.5000", "low": "0.094531", "high": "0.905469"},
    }
    assert status["results"] == {
        "path": "runs/3f2a9c1e-5b7d-4e80-9a6c-2d1f0e4b8c77/candidates.jsonl",
        "records": 3,
    }
    assert "startTime" not in status
    assert "completionTime" not in status


def test_several_attempts_have_wider_intervals_and_in_the_end_pass_at_k():
    plan = plan_of(*many_tasks(4), attempts=3)
    ends = [
        outcome_of(key, Outcome.SCORED, passed=key.task < 2 or key.attempt == 1)
        for key in run_history(plan, ()).attempts
    ]
    history = finished(plan, *ends)
    score = running(plan, history)["score"]
    assert score["passRate"] == {"value": "0.6667", "low": "0.245120", "high": "0.924917"}
    assert "passAtK" not in score
    history.ended = RunEnded("Completed", "", NOW)
    estimates = estimates_of(history, pass_at_each_k)
    chances = running(plan, history, estimates=estimates)["score"]["passAtK"]
    assert [(each["k"], each["tasks"], each["value"]) for each in chances] == [
        (1, 4, "0.6667"),
        (2, 4, "0.8333"),
        (3, 4, "1.0000"),
    ]


def test_a_rate_needs_a_verdict():
    status = running(plan_of(), run_history(plan_of(), ()))
    assert "passRate" not in status["score"]


def test_a_sealed_run_has_its_digest_and_its_times():
    plan = plan_of()
    history = run_history(plan, [RunEnded("Completed", "", NOW + 9)])
    history.started_at = NOW
    exported = Exported(1, "f" * 64, is_sealed=True)
    status = running(plan, history, exported=exported)
    assert status["results"]["sha256"] == "f" * 64
    assert status["startTime"] == "2026-01-01T00:00:00Z"
    assert status["completionTime"] == "2026-01-01T00:00:09Z"


def test_failed_tasks_are_named_once_each_and_twenty_at_most():
    plan = plan_of(*(text_task(index=n, task=named(n)) for n in range(30)), attempts=2)
    keys = list(run_history(plan, ()).attempts)
    history = finished(plan, *(outcome_of(key, Outcome.SCORED, passed=False) for key in keys))
    assert running(plan, history)["failedTasks"] == [f"task-{n}" for n in range(20)]


def test_reasons_are_counted_the_commonest_first():
    plan = plan_of(*many_tasks(6))
    keys = list(run_history(plan, ()).attempts)
    reasons = ["oom_killed", "harness_failed", "harness_failed", "", "", "api_error"]
    ends = [
        replace(outcome_of(key, Outcome.AGENT, passed=False), reason=reason)
        for key, reason in zip(keys, reasons, strict=True)
    ]
    assert running(plan, finished(plan, *ends))["failureReasons"] == [
        {"reason": "harness_failed", "count": 2},
        {"reason": "api_error", "count": 1},
        {"reason": "oom_killed", "count": 1},
    ]


def test_lost_launches_are_counted_by_reason():
    plan = plan_of(*many_tasks(3))
    history = run_history(plan, ())
    for task, reason in ((0, "pod_lost"), (1, "image_pull_failed"), (2, "pod_lost")):
        launch = LaunchKey(task, 1, Role.HARNESS, 1)
        history.apply(LaunchBegun(launch, NOW))
        history.apply(LaunchLost(Lost(launch, reason, "gone", NOW)))
    assert running(plan, history)["lostLaunches"] == [
        {"reason": "pod_lost", "count": 2},
        {"reason": "image_pull_failed", "count": 1},
    ]


def test_launches_that_met_a_limit_are_counted_also_when_they_passed():
    plan = plan_of(*many_tasks(2))
    history = run_history(plan, ())
    slow, full = ContainerUsage(1, 100, 50), ContainerUsage(GIB, 100, 50)
    for task, usage in ((0, slow), (1, full)):
        launch = LaunchKey(task, 1, Role.HARNESS, 1)
        container = ContainerEvidence("harness", limits={"memory": "1Gi"}, usage=usage)
        evidence = LaunchEvidence("p", containers=(container,))
        history.apply(LaunchBegun(launch, NOW))
        history.apply(Produced(launch.attempt_key, production(), NOW, evidence))
        finish = outcome_of(launch.attempt_key, Outcome.SCORED, passed=True)
        history.apply(Finished(finish, "a" * 64, NOW))
    status = running(plan, history)
    assert status["noisyLaunches"] == 2
    assert history.noise == {
        ResourceNoise.CPU_THROTTLED: 2,
        ResourceNoise.NEAR_MEMORY_LIMIT: 1,
    }
    assert (status["lostLaunches"], status["score"]["passed"]) == ([], 2)


def test_without_a_launch_that_met_a_limit_nothing_is_said():
    plan = plan_of(*many_tasks(1))
    assert "noisyLaunches" not in running(plan, run_history(plan, ()))


def test_every_reason_fits():
    assert len(SCHEMA["properties"]["failure_reason"]["enum"]) < MAX_REASONS


def named(number, text="task-"):
    return replace(text_task().task, id=f"{text}{number}")


def test_what_has_no_verifier_has_not_failed():
    plan = plan_of(*many_tasks(3))
    keys = list(run_history(plan, ()).attempts)
    history = finished(
        plan,
        outcome_of(keys[0], Outcome.NOT_VERIFIED),
        outcome_of(keys[1], Outcome.SCORED, passed=True),
    )
    assert running(plan, history)["failedTasks"] == []


def test_ten_thousand_tasks_fit_the_bound():
    """Design 3: the status stays below 32 KiB whatever the tasks and messages are."""
    count = 10_000
    long, same = [named(n, "ä" * 300) for n in range(30)], text_task()
    tasks = [replace(same, index=n, task=long[n % 30]) for n in range(count)]
    plan = plan_of(*tasks)
    keys = list(run_history(plan, ()).attempts)
    history = finished(plan, *(outcome_of(key, Outcome.INFRASTRUCTURE) for key in keys))
    history.isolation = IsolationResult(verified=True, user_namespaces=True, message="x" * 5000)
    history.started_at = NOW
    history.ended = RunEnded("Incomplete", "x" * 5000, NOW)
    findings = [
        ConditionUpdate(
            ConditionType.ISOLATION_VERIFIED, ConditionStatus.TRUE, Reason.VERIFIED, "x" * 5000
        ),
        ConditionUpdate(
            ConditionType.SUSPENDED, ConditionStatus.FALSE, Reason.NOT_SUSPENDED, "x" * 5000
        ),
        ConditionUpdate(
            ConditionType.RESULTS_SEALED, ConditionStatus.TRUE, Reason.SEALED, "x" * 5000
        ),
    ]
    said = set_conditions(
        (),
        with_derived(succeeded(Reason.INCOMPLETE, "x" * 5000), *findings),
        observed_generation=1,
        now=NOW,
    )
    status = running(plan, history, Exported(count, "f" * 64, is_sealed=True))
    conditions = [each.to_json() for each in said]
    assert len(json.dumps({"status": {**status, "conditions": conditions}})) < LIMIT_BYTES
    assert status["tasks"]["infrastructure"] == count


# Conditions


class Said:
    """A run whose status is written; the operator's time passes only when a test says so."""

    def __init__(self, tmp_path):
        self.clock = FakeClock()
        self.cluster = FakeCluster(namespace="bench", clock=self.clock)
        asyncio.run(self.cluster.create(ObjectKind.BENCHMARK_RUN, run_body("nightly")))
        self.restart(tmp_path)

    def restart(self, tmp_path):
        """Begin as another process does."""
        run = self.cluster.objects(ObjectKind.BENCHMARK_RUN)["nightly"]
        self.latest = LatestObject(run_object(run))
        context = context_of(self.cluster, self.clock, tmp_path)
        self.publisher = Publisher(context, self.latest)

    def change(self):
        """Let somebody change the spec."""
        self.cluster.edit(ObjectKind.BENCHMARK_RUN, "nightly", {"spec": {"parallelism": 9}})
        run = self.cluster.objects(ObjectKind.BENCHMARK_RUN)["nightly"]
        self.latest.update(run_object(run))

    def announce(self, reason, message=""):
        asyncio.run(self.publisher.announce(reason, message))
        return self.status

    def refuse(self, reason, message):
        asyncio.run(self.publisher.refused(reason, message, None))
        return self.status

    @property
    def status(self):
        return self.cluster.objects(ObjectKind.BENCHMARK_RUN)["nightly"]["status"]

    @property
    def conditions(self):
        return {item["type"]: item for item in self.status["conditions"]}


@pytest.fixture
def said(tmp_path):
    return Said(tmp_path)


def test_a_transition_keeps_its_time(said):
    first = said.announce(Reason.QUEUED)
    said.clock.advance(60)
    assert said.announce(Reason.QUEUED) == first
    said.change()
    said.clock.advance(30)
    said.refuse(Reason.PACK_INVALID, "row 3")
    end = said.conditions["Succeeded"]
    assert end["status"] == "False"
    assert end["lastTransitionTime"] == said.status["completionTime"] == "2026-01-01T00:01:30Z"
    assert end["observedGeneration"] == said.status["observedGeneration"] == 2


def test_a_bare_status_leaves_what_was_counted_before(said):
    counted = {"tasks": {"total": 1, "done": 0, "active": 0}}
    patch = said.cluster.patch_status(ObjectKind.BENCHMARK_RUN, "nightly", {"status": counted})
    asyncio.run(patch)
    status = said.announce(Reason.QUEUED)
    assert set(status) == {"observedGeneration", "conditions", "tasks"}
    assert status["tasks"] == counted["tasks"]


def test_kstatus_readers_are_told_too(said):
    said.refuse(Reason.PACK_INVALID, "row 3")
    found = said.conditions
    assert found["Succeeded"]["status"] == "False"
    assert found["Stalled"]["status"] == "True"
    assert found["Ready"]["status"] == "False"


def hang(said):
    """Let a call to the volume be late."""
    said.publisher.calls.add(VolumeCall(said.clock.monotonic(), 0.0))


def test_a_silent_volume_covers_no_end(said):
    said.announce(Reason.QUEUED)
    hang(said)
    assert asyncio.run(said.publisher.report_silence())
    assert said.conditions["Succeeded"]["reason"] == "StorageUnavailable"
    said.refuse(Reason.PACK_INVALID, "row 3")
    assert not asyncio.run(said.publisher.report_silence())
    assert said.conditions["Succeeded"]["reason"] == "PackInvalid"


def test_an_end_stays_whatever_the_next_process_meets(said, tmp_path):
    ended = said.refuse(Reason.PACK_INVALID, "row 3")
    said.restart(tmp_path)
    hang(said)
    assert not asyncio.run(said.publisher.report_silence())
    assert said.announce(Reason.STORAGE_UNAVAILABLE, "the results volume: no answer") == ended


def test_only_an_end_is_an_end():
    assert succeeded(Reason.RUNNING, "").status is ConditionStatus.UNKNOWN
    assert succeeded(Reason.CANCELLED, "").status is ConditionStatus.FALSE
    assert succeeded(Reason.COMPLETED, "").status is ConditionStatus.TRUE
