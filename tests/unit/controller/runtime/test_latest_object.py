import pytest

from securebench.controller.context import SpecVersion, run_object
from securebench.controller.object_loop import LatestObject
from support.build import run_body


def run(generation, **spec):
    body = run_body(**spec)
    return run_object({**body, "metadata": {**body["metadata"], "generation": generation}})


def test_a_newer_spec_is_known_when_its_listeners_are_called():
    known, seen = LatestObject(run(1)), []
    with known.notifying(lambda: seen.append(known.object.desired)):
        assert known.object.desired.generation == 1
        known.update(run(2, parallelism=9))
    assert [(each.generation, each.spec.parallelism) for each in seen] == [(2, 9)]


def test_all_listeners_are_called_until_they_leave():
    known, seen = LatestObject(run(1)), []
    with known.notifying(lambda: seen.append("first")):
        with known.notifying(lambda: seen.append("second")):
            known.update(run(2))
        known.update(run(3))
    known.update(run(4))
    assert seen == ["first", "second", "first"]


@pytest.mark.parametrize("generation", [0, 1])
def test_an_older_spec_changes_nothing(generation):
    known = LatestObject(run(1))
    with known.notifying(lambda: pytest.fail("nothing changed")):
        known.update(run(generation, parallelism=9))
    assert (known.version.generation, known.object.desired.spec.parallelism) == (1, 4)


VERSIONS = {
    "a later generation": (SpecVersion(2), SpecVersion(1, "a"), True),
    "an earlier generation with another request": (SpecVersion(1, "b"), SpecVersion(2, "a"), False),
    "another request": (SpecVersion(1, "b"), SpecVersion(1, "a"), True),
    "a request that is withdrawn": (SpecVersion(1), SpecVersion(1, "a"), True),
    "the same": (SpecVersion(1, "a"), SpecVersion(1, "a"), False),
}


@pytest.mark.parametrize("name", VERSIONS)
def test_which_version_replaces_which(name):
    new, known, want = VERSIONS[name]
    assert new.replaces(known) is want
