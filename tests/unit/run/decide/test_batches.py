"""Which candidates are judged in one Pod, and when that begins."""

from dataclasses import replace

import pytest

from securebench.run.decide.attempt import (
    MAX_BATCH_MEMBERS,
    MAX_WAIT_SECONDS,
    MIN_BATCH_SLOTS,
    BatchableLaunch,
    Capture,
    attempt_step,
    form_batches,
)
from securebench.run.decide.controls import Controls
from securebench.run.decide.reconcile import ObservedState, reconcile
from securebench.run.plan.model import AttemptKey, LaunchKey, Role, pod_name
from securebench.run.state.attempts import Lost
from securebench.run.state.entries import LaunchBegun, LaunchLost
from securebench.run.state.history import AttemptIndex, RunHistory
from support.build import (
    NOW,
    PROVEN_NETWORK,
    RUN_UID,
    Status,
    ended,
    history_of,
    live,
    many_tasks,
    plan_of,
    pod_status,
    production,
    view_of,
)

OOM: Status = pod_status("Failed", ended("verifier", 137, "OOMKilled"))
BROKEN: Status = pod_status("Failed", ended("verifier", 1))
DONE: Status = pod_status("Succeeded", ended("verifier", 0, message="{}"))


def verifier(task, launch=1):
    return LaunchKey(task, 1, Role.VERIFIER, launch)


def sealed(count, since=NOW):
    return [BatchableLaunch(verifier(task), since) for task in range(count)]


def produced(task, at=NOW, **changes):
    return history_of(AttemptKey(task, 1), production=production(), produced_at=at, **changes)


def decide(*histories, now=NOW, parallelism=8, pods=(), vanished=()):
    plan = plan_of(*many_tasks(len(histories)))
    observed = ObservedState(
        plan=plan,
        history=AttemptIndex(histories),
        network=PROVEN_NETWORK,
        pods={view.name: view for view in pods},
        pending=(),
        vanished=vanished,
        now=now,
    )
    return reconcile(observed, Controls(parallelism))


def test_the_last_ones_wait_for_nobody():
    ready, due_at = form_batches(sealed(3), NOW, may_grow=False)
    assert ready == (tuple(verifier(task) for task in range(3)),)
    assert due_at is None


def test_company_is_waited_for_and_not_for_long():
    assert form_batches(sealed(3), NOW + 1, may_grow=True) == ((), NOW + MAX_WAIT_SECONDS)
    late = form_batches(sealed(3), NOW + MAX_WAIT_SECONDS, may_grow=True)
    assert [len(pod) for pod in late.ready] == [3]


@pytest.mark.parametrize("since", [0.0, NOW + 3600])
def test_a_time_that_says_nothing_is_no_reason_to_wait(since):
    assert form_batches(sealed(1, since), NOW, may_grow=True).ready == ((verifier(0),),)


def test_a_full_batch_waits_for_nothing():
    ready, due_at = form_batches(sealed(MAX_BATCH_MEMBERS + 1), NOW, may_grow=True)
    assert [len(pod) for pod in ready] == [MAX_BATCH_MEMBERS]
    assert due_at == NOW + MAX_WAIT_SECONDS


def test_nobody_to_judge_is_no_batch():
    assert form_batches([], NOW, may_grow=True) == ((), None)


def test_those_that_wait_hold_one_place():
    running = live(LaunchKey(2, 1, Role.HARNESS, 1))
    new = [history_of(AttemptKey(task, 1)) for task in range(3, 9)]
    waits = decide(produced(0), produced(1), running, *new, parallelism=4)
    assert (waits.batches, waits.wake_at) == ((), NOW + MAX_WAIT_SECONDS)
    assert [launch.task for launch in waits.begin] == [3, 4]


def test_those_that_have_waited_begin_before_new_ones():
    busy = [live(LaunchKey(task, 1, Role.HARNESS, 1)) for task in (2, 3, 4)]
    new = history_of(AttemptKey(5, 1))
    waited = NOW + MAX_WAIT_SECONDS
    due = decide(produced(0), produced(1), *busy, new, now=waited, parallelism=4)
    assert (due.batches, due.begin) == (((verifier(0), verifier(1)),), ())


def test_with_few_places_nobody_waits():
    running = live(LaunchKey(1, 1, Role.HARNESS, 1))
    few = MIN_BATCH_SLOTS - 1
    assert decide(produced(0), running, parallelism=few).begin == (verifier(0),)
    alone = decide(produced(0), history_of(AttemptKey(1, 1)), parallelism=1)
    assert alone.begin == (verifier(0),)


def test_a_batch_holds_one_place():
    shared = live(verifier(0), production=production(), batch=verifier(0))
    other = live(verifier(1), production=production(), batch=verifier(0))
    next_one = decide(shared, other, history_of(AttemptKey(2, 1)), parallelism=2)
    assert [launch.task for launch in next_one.begin] == [2]


def test_one_that_is_left_alone_is_no_batch():
    decision = decide(produced(0))
    assert (decision.begin, decision.batches) == ((verifier(0),), ())


def test_a_batch_begins_and_its_launches_know_it():
    assert decide(produced(0), produced(1)).batches == ((verifier(0), verifier(1)),)
    history = RunHistory(AttemptIndex([produced(1)]))
    history.apply(LaunchBegun(verifier(1), NOW, verifier(0)))
    assert history.attempts[AttemptKey(1, 1)].pod == verifier(0)


@pytest.mark.parametrize("status", [OOM, BROKEN], ids=["memory", "crash"])
def test_what_ends_a_batch_is_held_against_nobody(status):
    plan = plan_of(*many_tasks(2))
    member = live(verifier(1), production=production(), batch=verifier(0))
    step = attempt_step(plan, member, view_of(verifier(0), status), NOW)
    assert isinstance(step, Lost)
    assert (step.launch, step.is_shared, step.is_suspect) == (verifier(1), True, False)
    history = RunHistory(AttemptIndex([member]))
    history.apply(LaunchLost(step))
    known = history.attempts[member.key]
    assert (known.retries, known.suspect, known.shared) == ((), (), 1)


def test_who_was_lost_with_a_batch_is_judged_alone():
    lost = Lost(verifier(0), "pod_lost", "gone", NOW - 100, is_shared=True)
    decision = decide(produced(0, last_lost=lost, shared=1), produced(1), produced(2))
    assert decision.begin == (verifier(0, 2),)
    assert decision.batches == ((verifier(1), verifier(2)),)


def test_a_batch_that_vanished_is_lost_for_each_of_its_members():
    members = [live(verifier(n), production=production(), batch=verifier(0)) for n in (0, 1)]
    decision = decide(*members, vanished={pod_name(RUN_UID, verifier(0))})
    assert [(lost.launch.task, lost.is_shared) for lost in decision.lost] == [(0, True), (1, True)]


def test_each_member_is_captured_and_the_pod_stays_until_then():
    batch = (verifier(0), verifier(1))
    view = replace(view_of(verifier(0), DONE), members=batch)
    member = live(verifier(1), production=production(), batch=verifier(0))
    first = produced(0)
    decision = decide(first, member, pods=[view])
    assert decision.captures == (Capture(verifier(1), view, decision.captures[0].ended, batch[0]),)
    assert decision.deletions == ()
    assert [each.name for each in decide(first, produced(1), pods=[view]).deletions] == [view.name]
