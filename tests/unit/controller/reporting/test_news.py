"""When the status is written: conditions at once, the rest for news, never without."""

import pytest

from securebench.cluster.port import ObjectKind
from securebench.controller.publish import (
    MAX_DEFERRED_INTERVALS,
    SIGNIFICANT_SHARE,
)
from securebench.errors import TransientClusterError
from support.build import pod_status, question, running, write_pack
from support.operator_world import World, opened

INTERVAL = 2.0
TASKS = 20
NEWS = int(TASKS * SIGNIFICANT_SHARE)


@pytest.fixture
def run(world, monkeypatch):
    """A run of many tasks whose Pods all run; the last write is long ago."""
    monkeypatch.setattr("securebench.run.decide.attempt.MAX_WAIT_SECONDS", 0.0)
    write_pack(world.root / "packs/many", [question(f"q{n}") for n in range(TASKS)])
    world.uid = world.apply(pack={"volume": {"path": "many"}}, parallelism=TASKS)
    for _ in range(2):  # the first of an image begin before the others
        for name in world.pods():
            world.cluster.set_pod_status(name, pod_status("Running", running("harness")))
        world.wait(3 * MAX_DEFERRED_INTERVALS * INTERVAL)
    assert len(world.pods()) == TASKS
    assert world.condition()["reason"] == "Running"
    return world


def writes(world):
    return world.cluster.requests["patch_status", ObjectKind.BENCHMARK_RUN]


def done(world):
    return world.run()["status"]["tasks"]["done"]


def finish(world, tasks):
    """Let attempts of these tasks end, verifiers included, in less than a tenth of a second."""
    for _ in range(6):
        for name in world.pods():
            if world.launch(name).task in tasks and not is_over(world, name):
                world.cluster.set_pod_status(name, world.ending(world.uid, world.launch(name)))
        world.wait(0.01)


def is_over(world, name):
    return world.cluster.objects(ObjectKind.POD)[name]["status"]["phase"] == "Succeeded"


def test_nothing_new_is_nothing_written(run):
    before = writes(run)
    run.wait(100)
    assert writes(run) == before


def test_the_first_news_after_a_quiet_time_is_told_at_once_if_there_is_enough(run):
    finish(run, range(NEWS))
    assert done(run) == NEWS


def test_a_change_of_the_spec_is_told_without_other_news(run):
    run.edit(parallelism=TASKS + 1)
    run.wait(INTERVAL)
    found = run.run()
    assert found["status"]["observedGeneration"] == found["metadata"]["generation"]


def test_enough_news_waits_for_the_interval(run):
    finish(run, range(NEWS))
    before = writes(run)
    finish(run, range(NEWS, 2 * NEWS))
    assert done(run) == NEWS
    run.wait(INTERVAL)
    assert done(run) == 2 * NEWS
    assert writes(run) == before + 1


def test_less_news_waits_longer_and_is_told_together(run):
    finish(run, range(NEWS))
    before = writes(run)
    for task in range(NEWS, 2 * NEWS - 1):
        finish(run, [task])
        run.wait(1)
    assert done(run) == NEWS
    run.wait(MAX_DEFERRED_INTERVALS * INTERVAL - NEWS + 1)
    assert done(run) == 2 * NEWS - 1
    assert writes(run) == before + 1


def test_a_condition_waits_for_nothing(run):
    finish(run, range(NEWS))
    run.edit(suspend=True)
    assert run.condition("Suspended")["status"] == "True"


def test_what_was_not_written_is_owed(run):
    """Without an answer a write is repeated, also where nothing new comes after it."""
    run.cluster.fail_next("patch_status", TransientClusterError("no answer"))
    finish(run, range(NEWS))
    assert done(run) == 0
    run.wait(INTERVAL)
    assert done(run) == NEWS


def test_a_launch_that_was_lost_is_told_within_the_patience(tmp_path):
    settings = {"launch": {"retryBackoffSeconds": 300.0}, "creation": {"firstPulls": TASKS}}
    with opened(World, tmp_path, **settings) as world:
        write_pack(world.root / "packs/many", [question(f"q{n}") for n in range(TASKS)])
        world.apply(pack={"volume": {"path": "many"}}, parallelism=TASKS)
        world.wait(3 * MAX_DEFERRED_INTERVALS * INTERVAL)
        world.cluster.remove(ObjectKind.POD, world.pods()[0])
        world.wait(MAX_DEFERRED_INTERVALS * INTERVAL + INTERVAL)
        assert world.run()["status"]["tasks"]["active"] == TASKS - 1
