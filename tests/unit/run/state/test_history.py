from dataclasses import replace

import pytest

from securebench.errors import InvariantViolationError
from securebench.run.api.field_types import Outcome
from securebench.run.plan.model import AttemptKey, LaunchKey, Role
from securebench.run.state.attempts import Finish, FinishedState, Usage
from securebench.run.state.entries import (
    Finished,
    IsolationResult,
    Kept,
    LaunchBegun,
    LaunchLost,
    Opened,
    Produced,
    RunBound,
    RunEnded,
    Verified,
)
from securebench.run.state.history import LaunchEnd, run_history, whole_history
from support.build import (
    HARNESS,
    KEY,
    NOW,
    VERIFIER,
    history_of,
    lost_launch,
    many_tasks,
    plan_of,
    production,
    verification,
)

SHA = "a" * 64
FINISH = Finish(KEY, Outcome.SCORED, passed=True)
SECOND = LaunchKey(0, 1, Role.HARNESS, 2)
PRODUCTION = production(launch=2)
VERIFICATION = verification()
WHOLE = (
    RunBound("uid", "sha256:plan"),
    Opened(1, NOW),
    IsolationResult(verified=True, user_namespaces=False, message="closed: dns"),
    LaunchBegun(HARNESS, NOW + 1),
    LaunchLost(lost_launch()),
    Opened(2, NOW + 5),
    LaunchBegun(SECOND, NOW + 6),
    Produced(KEY, PRODUCTION),
    LaunchBegun(VERIFIER, NOW + 8),
    Verified(KEY, VERIFICATION),
    Finished(FINISH, SHA, NOW + 9),
    RunEnded("Completed", "1 of 1 passed", NOW + 10),
)


def folded(*entries, tasks=1, attempts=1):
    return run_history(plan_of(*many_tasks(tasks), attempts=attempts), entries)


def test_what_a_launch_asked_that_was_cut_is_counted():
    asked, cut = Usage(requests=1, input_tokens=5), Usage(requests=2, input_tokens=7)
    history = folded(
        LaunchBegun(HARNESS, NOW),
        LaunchLost(replace(lost_launch(), usage=asked)),
        LaunchBegun(SECOND, NOW + 5),
        Finished(Finish(KEY, Outcome.CANCELLED, "cancelled"), SHA, NOW + 9, cut),
    )
    attempt = history.attempts[KEY]
    assert attempt.usage == asked + cut
    assert attempt.state == FinishedState(Finish(KEY, Outcome.CANCELLED, "cancelled"), SHA, NOW + 9)


def test_a_whole_run():
    history = folded(*WHOLE)
    assert (history.bound, history.isolation, history.ended) == (WHOLE[0], WHOLE[2], WHOLE[-1])
    assert (history.epoch, history.started_at) == (2, NOW)
    assert history.attempts[KEY] == history_of(
        launches=1,
        retries=(Role.HARNESS,),
        last_lost=lost_launch(),
        finish=FINISH,
        record_sha256=SHA,
        started_at=NOW + 1,
        finished_at=NOW + 9,
    )


STATES = {
    "begun": ((WHOLE[3],), {"live": HARNESS, "live_since": NOW + 1, "launches": 1}),
    "lost": (
        WHOLE[3:5],
        {
            "launches": 1,
            "retries": (Role.HARNESS,),
            "last_lost": lost_launch(),
        },
    ),
    "produced": (
        (WHOLE[3], Produced(KEY, PRODUCTION)),
        {"launches": 1, "production": PRODUCTION},
    ),
}


@pytest.mark.parametrize("name", STATES)
def test_states_of_an_attempt(name):
    entries, want = STATES[name]
    assert folded(*entries).attempts[KEY] == history_of(started_at=NOW + 1, **want)


def test_a_reader_without_a_plan_knows_the_launches_and_what_was_handed_in():
    whole, own = whole_history(WHOLE), folded(*WHOLE)
    assert [(each.key, each.end) for each in whole.launches[KEY]] == [
        (HARNESS, LaunchEnd.LOST),
        (SECOND, LaunchEnd.CAPTURED),
        (VERIFIER, LaunchEnd.CAPTURED),
    ]
    assert [each.result for each in whole.launches[KEY]] == [None, PRODUCTION, VERIFICATION]
    assert whole.attempts[KEY].production == PRODUCTION
    assert (own.launches, own.attempts[KEY].production) == ({}, None)
    assert (whole.losses, whole.ended, whole.finished[0].finish) == (own.losses, WHOLE[-1], FINISH)


def test_a_reader_has_attempts_in_pack_order():
    keys = [AttemptKey(2, 1), AttemptKey(0, 2), AttemptKey(10, 1), AttemptKey(0, 1)]
    found = whole_history(LaunchBegun(LaunchKey(*key, Role.HARNESS, 1), NOW) for key in keys)
    assert list(found.attempts) == sorted(keys)


def test_a_reader_is_told_of_entries_that_contradict_each_other():
    with pytest.raises(InvariantViolationError, match="without a candidate"):
        whole_history([LaunchBegun(HARNESS, NOW), Verified(KEY, VERIFICATION)])


def test_every_attempt_is_there_from_the_start_in_pack_order():
    history = folded(tasks=2, attempts=2)
    assert list(history.attempts) == [(0, 1), (0, 2), (1, 1), (1, 2)]
    assert history.attempts.open == 4


def test_a_kept_record_is_final_without_a_launch():
    history = folded(Kept(FINISH, SHA, "earlier"))
    assert history.attempts[KEY].state == FinishedState(FINISH, SHA, kept_of="earlier")
    assert history.attempts.open == 0


AFTER_THE_END = {
    "finished": Finished(FINISH, SHA, NOW),
    "kept": Kept(FINISH, SHA, "earlier"),
    "begun": LaunchBegun(HARNESS, NOW),
    "lost": LaunchLost(lost_launch()),
    "produced": Produced(KEY, PRODUCTION),
    "verified": Verified(KEY, VERIFICATION),
}


@pytest.mark.parametrize("first", ["finished", "kept"])
@pytest.mark.parametrize("name", AFTER_THE_END)
def test_a_finished_attempt_never_changes(first, name):
    with pytest.raises(InvariantViolationError, match="is finished and cannot change"):
        folded(AFTER_THE_END[first], AFTER_THE_END[name])


def test_an_attempt_has_one_live_launch():
    with pytest.raises(InvariantViolationError, match="has a live launch already"):
        folded(LaunchBegun(HARNESS, NOW), LaunchBegun(SECOND, NOW))


CONTRADICTIONS = {
    "judged, and nothing produced": (Verified(KEY, VERIFICATION),),
    "launched after its judgement": (
        Produced(KEY, PRODUCTION),
        Verified(KEY, VERIFICATION),
        LaunchBegun(SECOND, NOW),
    ),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_a_journal_that_contradicts_itself(name):
    with pytest.raises(InvariantViolationError, match="judged"):
        folded(*CONTRADICTIONS[name])


def test_an_attempt_that_is_not_planned():
    foreign = LaunchKey(5, 1, Role.HARNESS, 1)
    with pytest.raises(InvariantViolationError, match="not in the plan"):
        folded(LaunchBegun(foreign, NOW))


def test_launches_of_two_roles_are_counted_by_their_numbers():
    attempt = folded(*WHOLE[:8]).attempts[AttemptKey(0, 1)]
    assert (attempt.launches, attempt.retries) == (2, (Role.HARNESS,))
