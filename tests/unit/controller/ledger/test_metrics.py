"""What Prometheus learns of runs."""

import re
from dataclasses import replace
from pathlib import Path

from prometheus_client import REGISTRY

from securebench.cluster.port import ObjectKind
from securebench.controller.metrics import count_entry
from securebench.errors import TransientClusterError
from securebench.run.plan.model import AttemptKey, LaunchKey, Role
from securebench.run.state.attempts import Lost, PodFacts, Usage
from securebench.run.state.entries import LaunchEvidence, LaunchLost, Produced
from support.build import production
from support.monitoring import REQUESTS, served
from support.operator_world import World, opened


class Counts:
    """How much counters have risen since this was made."""

    def __init__(self):
        self._before = dict(self._samples())

    def __getitem__(self, key):
        name, *labels = key if isinstance(key, tuple) else (key,)
        return self.risen(f"{name}_total", *labels)

    def risen(self, name, *labels):
        found = (f"securebench_{name}", labels)
        return dict(self._samples()).get(found, 0) - self._before.get(found, 0)

    def _samples(self):
        for metric in REGISTRY.collect():
            for sample in metric.samples:
                yield (sample.name, tuple(sample.labels.values())), sample.value


def test_a_run_is_counted_once_however_often_its_journal_is_read(world):
    counts = Counts()
    uid = world.apply(parallelism=1)
    world.restart()
    world.observe(None)
    world.work(uid)
    world.restart()
    world.observe(None)
    assert counts["launches", "harness"] == 2
    assert counts["launches", "verifier"] == 2
    assert counts["launches_lost", "pod_lost"] == 0
    assert counts["attempts", "scored"] == 2
    assert counts["runs_ended", "Completed"] == 1


def test_a_lost_launch_is_counted_with_its_reason(world):
    counts = Counts()
    world.apply(parallelism=1)
    (pod,) = world.pods()
    world.cluster.remove(ObjectKind.POD, pod)
    world.wait(1)
    assert counts["launches_lost", "pod_lost"] == 1


def test_a_run_that_is_taken_up_again_is_counted_with_the_reason(world):
    counts = Counts()
    world.cluster.fail_next("list", TransientClusterError("no answer"), kind=ObjectKind.POD)
    world.apply()
    world.wait(10)
    assert counts["run_retries", "Internal"] == 1


def test_a_run_that_waits_for_a_place_is_counted(tmp_path):
    with opened(World, tmp_path, max_active_runs=1) as world:
        world.apply("first")
        assert world.supervisor.queued == 0
        world.apply("second")
        assert world.supervisor.queued == 1


def test_waiting_for_a_pack_is_no_retry(world):
    counts = Counts()
    world.apply(pack={"volume": {"path": "not-there-yet"}})
    world.wait(30)
    assert world.condition()["reason"] == "InputMissing"
    assert counts["run_retries", "InputMissing"] == 0


def test_launches_in_flight_rise_and_fall(world):
    counts = Counts()
    uid = world.apply(parallelism=2)
    assert counts.risen("launches_in_flight") == 2
    world.work(uid)
    assert counts.risen("launches_in_flight") == 0


def test_a_run_that_is_left_has_no_launches_in_flight(world):
    counts = Counts()
    world.apply(parallelism=2)
    world.observe("DELETED")
    assert counts.risen("launches_in_flight") == 0


def test_the_stages_of_a_captured_launch_are_observed():
    counts, key = Counts(), AttemptKey(0, 1)
    facts = PodFacts(started_at=107.0, finished_at=117.5)
    evidence = LaunchEvidence("pod", created_at=100.0, scheduled_at=102.0)
    count_entry(Produced(key, replace(production(), facts=facts), 118.0, evidence))
    count_entry(Produced(key, replace(production(), facts=facts), 118.0))
    want = {"schedule": 2.0, "start": 5.0, "run": 10.5, "capture": 0.5}
    for stage, seconds in want.items():
        name = "launch_stage_seconds"
        assert counts.risen(f"{name}_sum", "harness", stage) == seconds
        assert counts.risen(f"{name}_count", "harness", stage) == 1


def test_the_use_of_a_provider_is_counted_also_of_lost_launches():
    counts, key = Counts(), LaunchKey(0, 1, Role.HARNESS, 1)
    lost = Lost(key, "pod_lost", "gone", 1.0, Usage(2, 100, 40, 7))
    count_entry(LaunchLost(lost))
    assert counts["provider_requests"] == 2
    assert counts["provider_tokens", "input"] == 60
    assert counts["provider_tokens", "cached"] == 40
    assert counts["provider_tokens", "output"] == 7


def test_a_provider_that_counts_more_cached_tokens_than_input_ends_no_run():
    counts, key = Counts(), LaunchKey(0, 1, Role.HARNESS, 1)
    count_entry(LaunchLost(Lost(key, "pod_lost", "gone", 1.0, Usage(1, 10, 25, 3))))
    assert counts["provider_tokens", "input"] == 0
    assert counts["provider_tokens", "cached"] == 10
    assert counts["provider_tokens", "output"] == 3


def test_every_metric_is_documented_with_its_kind_and_labels():
    page = Path(__file__).parents[4] / "docs" / "reference" / "metrics.md"
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \|", page.read_text(), re.MULTILINE)
    documented = {name: (kind, set(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    want = {metric.name: (metric.kind, set(metric.labels)) for metric in served()}
    assert documented == want | {REQUESTS: ("counter", {"verb", "kind"})}
