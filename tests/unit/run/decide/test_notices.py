"""What a run tells by Events."""

import pytest

from securebench.run.api.status import (
    ConditionStatus,
    ConditionType,
    ConditionUpdate,
    Reason,
    set_conditions,
)
from securebench.run.decide.notices import changes, losses, started
from securebench.run.decide.waits import joined
from securebench.run.observe.waiting import WaitReason
from support.build import NOW, lost_launch, many_tasks, plan_of

UNKNOWN, TRUE, FALSE = ConditionStatus.UNKNOWN, ConditionStatus.TRUE, ConditionStatus.FALSE


def said(status, reason, message="", isolation=None):
    """Return the conditions of a run; isolation is status and message of the canary's finding."""
    findings = [ConditionUpdate(ConditionType.SUCCEEDED, status, reason, message)]
    if isolation is not None:
        kind = ConditionType.ISOLATION_VERIFIED
        findings.append(ConditionUpdate(kind, isolation[0], Reason.VERIFIED, isolation[1]))
    return set_conditions((), findings, observed_generation=1, now=NOW)


CLOSED = (TRUE, "closed: api-server")
IMAGE = "pulling python:3.11 for 20 s"

WANT = {
    "work goes on": (said(UNKNOWN, Reason.RUNNING), []),
    "a wait for a Pod": (
        said(UNKNOWN, Reason.STARTING, "waiting for a node"),
        [("Waiting", "waiting for a node", False)],
    ),
    "the age of a wait": (
        said(UNKNOWN, Reason.STARTING, IMAGE),
        [("Waiting", "pulling python:3.11", False)],
    ),
    "a wait after a loss": (
        said(UNKNOWN, Reason.RUNNING, "waiting for a node; the launch before ended with x: y"),
        [("Waiting", "waiting for a node", False)],
    ),
    "a back-off": (said(UNKNOWN, Reason.RUNNING, "is launched again after pod_lost: gone"), []),
    "a place": (said(UNKNOWN, Reason.QUEUED, "full"), [("Queued", "full", False)]),
    "no room": (
        said(UNKNOWN, Reason.UNSCHEDULABLE, "0/1 nodes"),
        [("Unschedulable", "0/1 nodes", True)],
    ),
    "several waits": (
        said(
            UNKNOWN,
            Reason.QUOTA_EXCEEDED,
            "pods: 10; also Unschedulable: 0/1 nodes; also task #3: cannot pull x:1: ErrImagePull",
        ),
        [
            ("QuotaExceeded", "pods: 10", True),
            ("Unschedulable", "0/1 nodes", True),
            ("Waiting", "cannot pull x:1: ErrImagePull", False),
        ],
    ),
    "trouble": (said(UNKNOWN, Reason.INTERNAL, "see log"), [("Internal", "see log", True)]),
    "isolation proven": (
        said(UNKNOWN, Reason.RUNNING, isolation=CLOSED),
        [("IsolationVerified", CLOSED[1], False)],
    ),
    "isolation declared": (
        said(UNKNOWN, Reason.RUNNING, isolation=(UNKNOWN, "no canary ran")),
        [("IsolationDeclared", "no canary ran", False)],
    ),
    "isolation not proven": (
        said(UNKNOWN, Reason.RUNNING, isolation=(FALSE, "reached: dns")),
        [("IsolationNotVerified", "reached: dns", True)],
    ),
    "a good end": (said(TRUE, Reason.COMPLETED, "2 of 2"), [("Completed", "2 of 2", False)]),
    "a bad end": (said(FALSE, Reason.INVALID_SPEC, "no"), [("InvalidSpec", "no", True)]),
}


@pytest.mark.parametrize("name", WANT)
def test_what_conditions_tell(name):
    after, want = WANT[name]
    seen = [(notice.reason, notice.note, notice.is_warning) for notice in changes((), after)]
    assert seen == want
    assert list(changes(after, after)) == []


def test_only_what_is_new_is_told():
    before = said(UNKNOWN, Reason.STARTING, IMAGE, CLOSED)
    later = said(UNKNOWN, Reason.STARTING, "pulling python:3.11 for 3 min", CLOSED)
    assert list(changes(before, later)) == []
    (notice,) = changes(before, said(TRUE, Reason.COMPLETED, "1 of 1", CLOSED))
    assert notice.reason == "Completed"


def test_a_wait_that_comes_again_is_told_again():
    wait = said(UNKNOWN, Reason.UNSCHEDULABLE, "0/1 nodes")
    first = list(changes((), wait))
    again = list(changes(said(UNKNOWN, Reason.RUNNING), wait))
    assert again == first


def test_a_wait_that_moves_in_the_message_is_no_news():
    image = "cannot pull x:1: ErrImagePull"
    before = said(UNKNOWN, Reason.QUOTA_EXCEEDED, f"pods: 10; also task #3: {image}")
    after = said(UNKNOWN, Reason.RUNNING, f"task #4: {image}")
    assert list(changes(before, after)) == []
    (notice,) = changes(after, before)
    assert notice.reason == "QuotaExceeded"


def test_the_words_of_a_long_wait_have_one_key_wherever_they_stand():
    image = "cannot pull x:1: " + "no " * 500
    waits = [WaitReason(Reason.RUNNING, f"task #1: {image}")]
    alone = joined(waits)
    beside = joined([WaitReason(Reason.QUOTA_EXCEEDED, "pods: 10"), *waits])
    (first,) = changes((), said(UNKNOWN, *alone[:2]))
    _, second = changes((), said(UNKNOWN, *beside[:2]))
    assert first.key == second.key


def test_a_run_that_is_not_isolated_tells_finding_and_end():
    after = said(FALSE, Reason.ISOLATION_NOT_VERIFIED, "reached: dns", (FALSE, "reached: dns"))
    assert [notice.action for notice in changes((), after)] == ["Isolate", "End"]


def test_losses_of_one_cause_have_one_key():
    lost = [lost_launch(), lost_launch(at=NOW + 1), lost_launch(reason="image_pull_failed")]
    told = list(losses(lost))
    assert [notice.key for notice in told] == ["pod_lost", "pod_lost", "image_pull_failed"]
    assert told[0].note == "pod_lost: Pod was evicted (task 0 attempt 1 harness launch 1)"
    assert {notice.reason for notice in told} == {"LaunchLost"}


KINDS = {
    "pulling x:1": "pulling ",
    "pulling x:1 for 20 s": "pulling ",
    "task #1: cannot pull x:1: ErrImagePull": "cannot pull",
    "cannot start container harness: no secret": "cannot start",
    "Waiting: 3 Pods in queue gpu": "Waiting: ",
    "waiting for the model provider x, which answers 429: since 1": (
        "waiting for the model provider "
    ),
    "waiting for a node": "",
}


@pytest.mark.parametrize("message", KINDS)
def test_waits_for_one_of_many_have_a_kind(message):
    (notice,) = changes((), said(UNKNOWN, Reason.RUNNING, message))
    assert notice.kind == KINDS[message]


def test_the_start_names_the_pack_and_its_size():
    plan = plan_of(*many_tasks(3), attempts=2)
    note = started(plan).note
    assert plan.pack_digest in note
    assert note.endswith("6 attempts")
