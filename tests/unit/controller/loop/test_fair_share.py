"""Two runs below one bound: who is served, and what the other one says."""

import pytest

from securebench.cluster.port import ObjectKind
from securebench.run.observe.pods import pod_view
from support.build import UNSCHEDULABLE, pod_status, running
from support.operator_world import World, opened

BIG = 40
"""Attempts for each of the pack's two tasks."""


@pytest.fixture
def limited(tmp_path, request):
    with opened(World, tmp_path, creation=request.param) as world:
        yield world


def pods_of(world, uid):
    """Return the names of a run's Pods that have not ended."""
    views = (pod_view(raw) for raw in world.cluster.objects(ObjectKind.POD).values())
    short = uid.replace("-", "")[:12]
    return [
        each.name for each in views if each.name.startswith(f"sb-{short}-") and not each.is_terminal
    ]


def start(world, names):
    """Let the main containers of Pods begin."""
    for name in names:
        view = pod_view(world.cluster.objects(ObjectKind.POD)[name])
        world.cluster.set_pod_status(name, pod_status("Running", running(view.role.value)))
    world.wait(0.1)


def evict(world, names):
    """Let the cluster end Pods."""
    for name in names:
        status = pod_status("Failed", reason="Evicted", conditions=[DISRUPTED])
        world.cluster.set_pod_status(name, status)
    world.wait(0.1)


def finish(world, uid):
    """Let the Pods of one run end well."""
    for name in pods_of(world, uid):
        view = pod_view(world.cluster.objects(ObjectKind.POD)[name])
        world.cluster.set_pod_status(name, world.ending(uid, view.launch))
    world.wait(5)


DISRUPTED = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}


def message(world, name):
    return world.condition(name=name)["message"]


@pytest.mark.parametrize("limited", [{"maxPods": 8}], indirect=True)
def test_a_small_run_has_the_next_places_of_a_big_one(limited):
    big = limited.apply("big", attempts=BIG, parallelism=60)
    assert len(pods_of(limited, big)) == 8
    small = limited.apply("small", parallelism=2)
    assert pods_of(limited, small) == []
    assert message(limited, "small") == (
        "waiting for a turn: the runs of this operator have 8 Pods in flight, and "
        "settings.creation.maxPods allows no more"
    )
    evict(limited, pods_of(limited, big)[:2])
    assert (len(pods_of(limited, big)), len(pods_of(limited, small))) == (6, 2)
    assert message(limited, "small") == "waiting for a node"
    for _ in range(6):
        finish(limited, small)
        assert len(pods_of(limited, big)) + len(pods_of(limited, small)) <= 8
    assert limited.condition(name="small")["reason"] == "Completed"
    assert limited.condition(name="big")["status"] == "Unknown"


@pytest.mark.parametrize("limited", [{"maxPods": 8}], indirect=True)
def test_a_run_that_ends_or_goes_leaves_its_places_to_others(limited):
    big = limited.apply("big", attempts=BIG, parallelism=60)
    small = limited.apply("small", parallelism=2)
    for name in pods_of(limited, big):
        limited.cluster.remove(ObjectKind.POD, name)
    limited.observe("DELETED", "big")
    limited.wait(0.1)
    assert len(pods_of(limited, small)) == 2


@pytest.mark.parametrize("limited", [{"maxStartingPerRun": 3, "firstPulls": 100}], indirect=True)
def test_a_run_begins_more_when_its_pods_have_started(limited):
    uid = limited.apply(attempts=BIG, parallelism=60)
    assert len(pods_of(limited, uid)) == 3
    limited.wait(6)
    assert message(limited, "nightly") == (
        "waiting for a node; also waiting until Pods have started: 3 of this run are starting, "
        "and settings.creation.maxStartingPerRun allows no more"
    )
    start(limited, pods_of(limited, uid))
    assert len(pods_of(limited, uid)) == 6
    start(limited, pods_of(limited, uid)[:5])
    limited.wait(6)
    assert len(pods_of(limited, uid)) == 8
    assert message(limited, "nightly").startswith("task #0: waiting for a node; also ")


@pytest.mark.parametrize(
    "limited", [{"maxStarting": 4, "maxStartingPerRun": 3, "maxUnschedulable": 9}], indirect=True
)
def test_pods_that_no_node_takes_leave_the_window_to_other_runs(limited):
    stuck = limited.apply("stuck", attempts=BIG, parallelism=60)
    assert len(pods_of(limited, stuck)) == 3
    other = limited.apply("other", attempts=BIG, parallelism=60)
    assert len(pods_of(limited, other)) == 1
    for name in pods_of(limited, stuck):
        limited.cluster.set_pod_status(name, pod_status("Pending", conditions=[UNSCHEDULABLE]))
    limited.wait(0.1)
    assert (len(pods_of(limited, stuck)), len(pods_of(limited, other))) == (3, 3)


@pytest.mark.parametrize("limited", [{"firstPulls": 2}], indirect=True)
def test_a_new_image_is_pulled_a_few_times_at_first(limited):
    first = limited.apply("first", attempts=BIG, parallelism=20)
    assert len(pods_of(limited, first)) == 2
    second = limited.apply("second", attempts=BIG, parallelism=20)
    assert len(pods_of(limited, second)) == 1
    limited.wait(6)
    assert message(limited, "second") == (
        "waiting for a node; also "
        "waiting until the first Pod with image python:3.11-slim has started: 2 or more are "
        "starting, and settings.creation.firstPulls allows no more before"
    )
    start(limited, pods_of(limited, first)[:1])
    assert (len(pods_of(limited, first)), len(pods_of(limited, second))) == (20, 20)


@pytest.mark.parametrize("limited", [{"firstPulls": 2}], indirect=True)
def test_a_run_whose_pods_never_start_holds_up_no_other(limited):
    broken = limited.apply("broken", attempts=BIG, parallelism=20)
    for _ in range(3):  # what it loses it begins again at once, with other tasks
        evict(limited, pods_of(limited, broken))
        assert len(pods_of(limited, broken)) == 2
    small = limited.apply("small", attempts=2, parallelism=4)
    assert (len(pods_of(limited, broken)), len(pods_of(limited, small))) == (2, 1)
    evict(limited, pods_of(limited, broken))
    assert (len(pods_of(limited, broken)), len(pods_of(limited, small))) == (1, 1)
    start(limited, pods_of(limited, small))
    assert len(pods_of(limited, small)) == 4
    for _ in range(6):
        finish(limited, small)
    assert limited.condition(name="small")["reason"] == "Completed"


@pytest.mark.parametrize("limited", [{"firstPulls": 2}], indirect=True)
def test_a_first_pull_of_each_run_is_all_that_is_beyond_the_bound(limited):
    runs = [limited.apply(f"run-{number}", attempts=BIG, parallelism=20) for number in range(4)]
    assert [len(pods_of(limited, uid)) for uid in runs] == [2, 1, 1, 1]
    evict(limited, pods_of(limited, runs[0]))
    evict(limited, pods_of(limited, runs[1]))
    assert all(len(pods_of(limited, uid)) <= 2 for uid in runs)
    assert sum(len(pods_of(limited, uid)) for uid in runs) <= 2 + len(runs) - 1


def test_nodes_of_another_kind_pull_for_themselves(tmp_path):
    rules = {"node_selector_keys": ["pool"]}
    with opened(World, tmp_path, creation={"firstPulls": 1}, pod_template=rules) as world:
        here = world.apply("here", attempts=BIG, parallelism=20)
        there = world.apply("there", parallelism=2, podTemplate={"nodeSelector": {"pool": "gpu"}})
        assert (len(pods_of(world, here)), len(pods_of(world, there))) == (1, 1)
        start(world, pods_of(world, here))
        assert (len(pods_of(world, here)), len(pods_of(world, there))) == (20, 1)


def test_without_bounds_in_the_way_nothing_is_held_back(world):
    uid = world.apply(attempts=4, parallelism=8)
    assert len(pods_of(world, uid)) == 8
    other = world.apply("other", parallelism=2)
    start(world, pods_of(world, uid))
    assert len(pods_of(world, other)) == 2
    assert {message(world, name) for name in ("nightly", "other")} <= {"", "waiting for a node"}
