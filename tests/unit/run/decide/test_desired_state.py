from dataclasses import replace

import pytest

from securebench.errors import InvalidInputError
from securebench.run.api.status import Reason
from securebench.run.decide.controls import EndReason, desired_state
from securebench.run.decide.reconcile import Controls, Halt
from support.build import NOW, run_body


def desired(**spec):
    return desired_state(run_body(**spec)["spec"], 1)


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


def test_isolation_may_be_declared():
    assert desired().is_isolation_declared
    assert not desired(isolation={"require": "Verified"}).is_isolation_declared


def test_a_run_whose_turn_is_over_starts_nothing():
    controls = desired().controls(NOW, NOW, is_turn_over=True)
    assert (controls.halt, controls.is_yielding) == (Halt.SUSPENDED, True)
    suspended = desired(suspend=True).controls(NOW, NOW, is_turn_over=True)
    assert (suspended.halt, suspended.is_yielding) == (Halt.SUSPENDED, False)
    cancelled = desired(cancel="Graceful").controls(NOW, NOW, is_turn_over=True)
    assert (cancelled.halt, cancelled.is_yielding) == (Halt.DRAINING, False)


@pytest.mark.parametrize(("value", "want"), [(True, True), ("true", False)])
def test_suspension_is_known_of_an_invalid_spec(value, want):
    known = desired_state({"suspend": value, "nonsense": 1}, 1)
    assert known.is_suspended is want
    assert known.is_ending(None, NOW)


def test_an_invalid_spec_controls_nothing():
    known = desired_state({"nonsense": 1}, 1)
    with pytest.raises(InvalidInputError, match="nonsense"):
        known.controls(None, NOW)
