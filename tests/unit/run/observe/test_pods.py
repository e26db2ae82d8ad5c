from datetime import UTC, datetime

import pytest

from securebench.run.observe.pods import ContainerView, Terminated, pod_view
from securebench.run.plan.model import LaunchKey, Role
from securebench.run.state.attempts import PodFacts
from support.build import (
    DISRUPTED,
    HARNESS,
    IMAGE_ID,
    NOW,
    UNSCHEDULABLE,
    ended,
    pod_status,
    raw_pod,
    running,
    view_of,
    waiting,
)


def test_a_whole_pod():
    status = pod_status(
        "Failed",
        ended("courier", 0, message="sealed"),
        ended("harness", 91),
        reason="Evicted",
        message="disk",
        conditions=[DISRUPTED],
    )
    launch = LaunchKey(12, 3, Role.HARNESS, 2)
    view = view_of(
        launch,
        status,
        deleting_at=NOW + 30,
        nodeName="node-1",
        runtimeClassName="gvisor",
        hostUsers=False,
    )
    assert view.name == "sb-3f2a9c1e5b7d-12-3h2"
    assert view.uid == "uid-of-sb-3f2a9c1e5b7d-12-3h2"
    assert view.launch == launch
    assert (view.phase, view.reason, view.message) == ("Failed", "Evicted", "disk")
    assert view.deleting_since == NOW + 30
    assert view.created_at == NOW
    assert view.disrupted
    assert view.is_terminal
    assert view.containers["courier"].terminated == Terminated(
        0, "Completed", "sealed", NOW + 1, NOW + 3
    )
    assert view.facts == PodFacts(
        image_id=IMAGE_ID,
        node="node-1",
        runtime_class="gvisor",
        user_namespace=True,
        started_at=NOW + 1,
        finished_at=NOW + 3,
    )


def test_a_new_pod_has_hardly_anything():
    view = pod_view({"metadata": {"labels": {"securebench.dev/role": "harness"}}})
    assert view is not None
    assert (view.name, view.uid, view.launch, view.phase) == ("", "", None, "Pending")
    assert (view.created_at, view.deleting_since, view.facts) == (0.0, None, PodFacts())
    assert not view.disrupted
    assert not view.unschedulable
    assert not view.is_terminal
    assert not view.containers


def test_containers_of_both_kinds():
    status = pod_status(
        "Pending", running("courier", restarts=1), waiting("harness", "ErrImagePull", "no")
    )
    assert view_of(HARNESS, status).containers == {
        "courier": ContainerView(
            name="courier",
            waiting_reason="",
            waiting_message="",
            running=True,
            terminated=None,
            restarts=1,
            image_id=IMAGE_ID,
            started_at=NOW,
        ),
        "harness": ContainerView(
            name="harness",
            waiting_reason="ErrImagePull",
            waiting_message="no",
            running=False,
            terminated=None,
            restarts=0,
            image_id="",
        ),
    }


@pytest.mark.parametrize(
    ("phase", "deleting_at", "want"),
    [
        ("Pending", None, True),
        ("Running", None, True),
        ("Unknown", None, True),
        ("Succeeded", None, False),
        ("Failed", None, False),
        ("Running", NOW + 30, False),
    ],
)
def test_a_pod_lives_until_it_has_ended_or_is_deleted(phase, deleting_at, want):
    assert view_of(HARNESS, pod_status(phase), deleting_at=deleting_at).is_living is want


@pytest.mark.parametrize(
    ("containers_ready", "ready", "want"),
    [("True", "True", False), ("True", "False", True), ("False", "False", False)],
)
def test_a_node_is_silent_where_ready_was_taken_from_containers_that_are(
    containers_ready, ready, want
):
    conditions = [
        {"type": "ContainersReady", "status": containers_ready},
        {"type": "Ready", "status": ready},
    ]
    status = pod_status("Running", running("harness"), conditions=conditions)
    assert view_of(HARNESS, status).has_silent_node is want
    assert not view_of(HARNESS, pod_status("Running")).has_silent_node


@pytest.mark.parametrize("labels", [{}, {"securebench.dev/role": "other"}, {"app": "x"}, None])
def test_a_foreign_pod_has_no_view(labels):
    assert pod_view({"metadata": {"labels": labels}}) is None


def test_probing_pods_have_no_launch():
    view = pod_view({"metadata": {"labels": {"securebench.dev/role": "canary"}}})
    assert view is not None
    assert (view.role, view.launch) == (Role.CANARY, None)


@pytest.mark.parametrize("missing", ["task-index", "attempt", "launch"])
def test_a_launch_needs_all_its_numbers(missing):
    raw = raw_pod(HARNESS)
    raw["metadata"]["annotations"][f"securebench.dev/{missing}"] = "-1"
    view = pod_view(raw)
    assert view is not None
    assert view.launch is None


def test_only_the_scheduler_makes_a_pod_unschedulable():
    stuck = view_of(HARNESS, pod_status("Pending", conditions=[UNSCHEDULABLE]))
    gated = view_of(
        HARNESS, pod_status("Pending", conditions=[UNSCHEDULABLE | {"reason": "SchedulingGated"}])
    )
    assert stuck.unschedulable == "0/1 nodes are available: 1 Insufficient cpu."
    assert gated.unschedulable == ""


def test_a_disruption_that_did_not_happen():
    status = pod_status("Running", conditions=[DISRUPTED | {"status": "False"}])
    assert not view_of(HARNESS, status).disrupted


def test_odd_types_are_as_good_as_missing():
    raw = raw_pod(HARNESS, {"phase": 3, "conditions": None, "containerStatuses": ["x", {}]})
    view = pod_view(raw)
    assert view is not None
    assert view.phase == "Pending"
    assert list(view.containers) == [""]


def test_times_are_utc():
    assert datetime.fromtimestamp(view_of().created_at, tz=UTC).isoformat() == (
        "2026-01-01T00:00:00+00:00"
    )
