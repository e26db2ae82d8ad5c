from dataclasses import replace

import pytest

from securebench.controller.runtime.desired_state import DesiredState
from securebench.run.api.conditions import Reason
from securebench.run.decide.run_decision import Controls, Halt
from securebench.run.decide.verdict import EndReason
from support.build import NOW, run_body


def desired(**spec):
    return DesiredState(run_body(**spec)["spec"], 1)


LATE = NOW + 60
GRACEFUL = EndReason(Reason.CANCELLED, "spec.cancel is Graceful")
IMMEDIATE = EndReason(Reason.CANCELLED, "spec.cancel is Immediate")
TOO_LONG = EndReason(Reason.DEADLINE_EXCEEDED, "the run took longer than 60 seconds")
CONTROLS = {
    "nothing special": ({}, NOW, Controls(4)),
    "parallelism": ({"parallelism": 7}, NOW, Controls(7)),
    "suspended": ({"suspend": True}, NOW, Controls(4, Halt.SUSPENDED)),
    "graceful": (
        {"cancel": "Graceful"},
        NOW,
        Controls(4, Halt.DRAINING, GRACEFUL),
    ),
    "immediate": (
        {"cancel": "Immediate"},
        NOW,
        Controls(4, Halt.STOPPED, IMMEDIATE),
    ),
    "cancel comes before suspend": (
        {"cancel": "Graceful", "suspend": True},
        NOW,
        Controls(4, Halt.DRAINING, GRACEFUL),
    ),
    "just before the deadline": ({}, LATE - 1, Controls(4)),
    "deadline": ({}, LATE, Controls(4, Halt.STOPPED, TOO_LONG)),
    "deadline of a suspended run": (
        {"suspend": True},
        LATE,
        Controls(4, Halt.STOPPED, TOO_LONG),
    ),
    "deadline of a run that drains": (
        {"cancel": "Graceful"},
        LATE,
        Controls(4, Halt.STOPPED, GRACEFUL),
    ),
}


@pytest.mark.parametrize("name", CONTROLS)
def test_controls(name):
    spec, now, want = CONTROLS[name]
    known = desired(activeDeadlineSeconds=60, **spec)
    assert known.controls(NOW, now) == replace(want, deadline=LATE)


def test_a_run_that_has_not_started_has_no_deadline():
    known = desired(activeDeadlineSeconds=60)
    assert known.deadline(None) is None
    assert known.controls(None, NOW + 1e9) == Controls(4)


def test_reasons_of_a_stop():
    assert desired().stop_reason(NOW, NOW) is None
    assert desired(cancel="Immediate").stop_reason(NOW, NOW) == (
        Reason.CANCELLED,
        "spec.cancel is Immediate",
    )
    assert desired(activeDeadlineSeconds=5).stop_reason(NOW, NOW + 5) == (
        Reason.DEADLINE_EXCEEDED,
        "the run took longer than 5 seconds",
    )


def test_a_newer_spec_wakes_the_loop():
    known = desired()
    woken = []
    known.on_change = lambda: woken.append(known.controls(None, NOW))
    known.update(run_body(parallelism=9)["spec"], 2)
    assert woken == [Controls(9)]


@pytest.mark.parametrize("generation", [0, 1])
def test_an_older_spec_changes_nothing(generation):
    known = desired()
    known.on_change = lambda: pytest.fail("nothing changed")
    known.update(run_body(parallelism=9)["spec"], generation)
    assert known.controls(None, NOW) == Controls(4)


def test_isolation_may_be_declared():
    assert desired().is_isolation_declared
    assert not desired(isolation={"require": "Verified"}).is_isolation_declared


def test_the_node_may_be_allowed():
    assert desired(isolation={"allow": ["Node"]}).is_node_allowed
    assert not desired().is_node_allowed


def test_suspension_is_known_of_a_spec_that_does_not_hold():
    assert DesiredState({"suspend": True, "nonsense": 1}, 1).is_suspended
    assert not DesiredState({"suspend": "true"}, 1).is_suspended
