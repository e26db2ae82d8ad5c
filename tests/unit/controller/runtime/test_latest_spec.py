import pytest

from securebench.controller.loop_tasks import LatestSpec
from support.build import run_body


def latest(**spec):
    return LatestSpec(run_body(**spec)["spec"], 1)


def test_a_newer_spec_is_known_when_its_listeners_are_called():
    known, seen = latest(), []
    with known.notifying(lambda: seen.append(known.desired)):
        assert known.desired.generation == 1
        known.update(run_body(parallelism=9)["spec"], 2)
    assert [(each.generation, each.spec.parallelism) for each in seen] == [(2, 9)]


def test_all_listeners_are_called_until_they_leave():
    known, seen = latest(), []
    with known.notifying(lambda: seen.append("first")):
        with known.notifying(lambda: seen.append("second")):
            known.update(run_body()["spec"], 2)
        known.update(run_body()["spec"], 3)
    known.update(run_body()["spec"], 4)
    assert seen == ["first", "second", "first"]


@pytest.mark.parametrize("generation", [0, 1])
def test_an_older_spec_changes_nothing(generation):
    known = latest()
    with known.notifying(lambda: pytest.fail("nothing changed")):
        known.update(run_body(parallelism=9)["spec"], generation)
    assert (known.generation, known.desired.spec.parallelism) == (1, 4)
