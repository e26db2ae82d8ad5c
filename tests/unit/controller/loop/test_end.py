"""When a run has ended, and what its conditions keep on the way there."""

from unittest import mock

import pytest

from securebench.cluster.port import ObjectKind
from securebench.controller.publish import Publisher
from securebench.controller.run_loop import RunLoop


def transitions(world):
    conditions = world.run()["status"]["conditions"]
    return {item["type"]: item["lastTransitionTime"] for item in conditions}


def test_transition_times_survive_an_error_of_the_loop(world):
    uid = world.apply()
    before = transitions(world)
    world.wait(100)
    with mock.patch.object(RunLoop, "reconcile_once", side_effect=OSError(5, "Input/output error")):
        world.edit(parallelism=2)
        assert world.condition()["reason"] == "StorageUnavailable"
        assert transitions(world) == before
    world.wait(3)
    assert world.condition()["reason"] == "Starting"
    assert transitions(world) == before
    world.work(uid)
    assert world.condition()["reason"] == "Completed"


def test_transition_times_survive_another_process(world):
    world.apply()
    before = transitions(world)
    world.wait(100)
    world.restart()
    world.observe(None)
    assert world.condition()["reason"] == "Starting"
    assert transitions(world) == before


def test_conditions_that_nobody_can_read_are_made_anew(world):
    uid = world.apply()
    world.cluster.edit(
        ObjectKind.BENCHMARK_RUN, "nightly", {"status": {"conditions": [{"type": 7}]}}
    )
    world.restart()
    world.observe(None)
    world.work(uid)
    assert world.condition()["reason"] == "Completed"


ENDS = {
    "succeeded": ({}, "Completed", "True"),
    "cancelled": ({"cancel": "Immediate"}, "Cancelled", "False"),
    "refused": ({"nonsense": 1}, "InvalidSpec", "False"),
}


@pytest.mark.parametrize("name", ENDS)
def test_every_end_is_complete(name, world):
    spec, reason, succeeded = ENDS[name]
    uid = world.apply(**spec)
    world.work(uid)
    assert (world.condition()["status"], world.condition()["reason"]) == (succeeded, reason)
    complete = world.condition("Complete")
    assert (complete["status"], complete["reason"]) == ("True", reason)


def test_a_run_that_goes_on_is_not_complete(world):
    world.apply()
    assert world.condition("Complete")["status"] == "False"
    with mock.patch.object(RunLoop, "reconcile_once", side_effect=KeyError):
        world.edit(parallelism=2)
        assert world.condition()["reason"] == "Internal"
        assert world.condition("Complete")["status"] == "False"


@pytest.mark.parametrize("name", ENDS)
def test_observed_generation_follows_changes_of_a_finished_run(name, world):
    spec, reason, _ = ENDS[name]
    uid = world.apply(**spec)
    world.work(uid)
    before = world.run()["status"]
    generation = world.run()["metadata"]["generation"]
    for change in ({"parallelism": 5}, {"suspend": True}):
        world.edit(**change)
    status = world.run()["status"]
    assert status["observedGeneration"] == generation + 2
    assert {item["observedGeneration"] for item in status["conditions"]} == {generation + 2}
    assert (world.condition()["reason"], world.pods()) == (reason, [])
    assert status["tasks"] == before["tasks"] if "tasks" in before else "tasks" not in status
    assert world.supervisor.active == 0


def test_a_change_while_the_end_is_written_is_observed(world):
    uid = world.apply()
    real = Publisher.ended

    async def ended(self, *given):
        await real(self, *given)
        world.cluster.edit(ObjectKind.BENCHMARK_RUN, "nightly", {"spec": {"parallelism": 7}})
        world.supervisor.observe("MODIFIED", world.run())

    with mock.patch.object(Publisher, "ended", ended):
        world.work(uid)
    assert world.run()["status"]["observedGeneration"] == world.run()["metadata"]["generation"]


@pytest.fixture
def upgraded(world, monkeypatch):
    """Begin a run, and go on with an operator that reads it otherwise."""
    world.uid = world.apply()
    with monkeypatch.context() as patch:
        patch.setattr("securebench.run.plan.score_fields.VERIFIER_VERSION", "99")
        world.restart()
        world.observe(None)
        yield world


def test_a_run_of_another_version_waits_and_says_what_to_do(upgraded):
    said = upgraded.condition()
    assert (said["status"], said["reason"]) == ("Unknown", "Internal")
    assert "install that version again, or set spec.cancel" in said["message"]
    assert upgraded.pods() != []


STOPS = {
    "cancel": ({"cancel": "Immediate"}, 61, "Cancelled"),
    "graceful": ({"cancel": "Graceful"}, 61, "Cancelled"),
    "deadline": ({}, 24 * 3600 + 61, "DeadlineExceeded"),
}


@pytest.mark.parametrize("name", STOPS)
def test_a_run_of_another_version_can_be_ended(name, upgraded):
    spec, seconds, reason = STOPS[name]
    upgraded.edit(**spec)
    upgraded.wait(seconds)
    said = upgraded.condition()
    assert (said["status"], said["reason"]) == ("False", reason)
    assert "is not the one it was started with" in said["message"]
    assert upgraded.condition("Complete")["status"] == "True"
    assert upgraded.pods() == []


def test_a_run_goes_on_with_the_version_that_began_it(world, monkeypatch):
    uid = world.apply()
    with monkeypatch.context() as patch:
        patch.setattr("securebench.run.plan.score_fields.VERIFIER_VERSION", "99")
        world.restart()
        world.observe(None)
        world.wait(61)
    world.restart()
    world.observe(None)
    world.work(uid)
    assert world.condition()["reason"] == "Completed"
