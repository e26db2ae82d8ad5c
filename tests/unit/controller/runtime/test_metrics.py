"""What Prometheus learns of runs."""

from prometheus_client import REGISTRY

from securebench.cluster.port import ObjectKind
from securebench.core.errors import TransientClusterError
from support.operator_world import World, opened


class Counts:
    """How much counters have risen since this was made."""

    def __init__(self):
        self._before = dict(self._samples())

    def __getitem__(self, key):
        name, *labels = key if isinstance(key, tuple) else (key,)
        found = (f"securebench_{name}_total", tuple(labels))
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
