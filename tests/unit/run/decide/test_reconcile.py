from dataclasses import replace
from typing import Any

import pytest

from securebench.run.api.field_types import Outcome
from securebench.run.api.status import Reason
from securebench.run.decide.attempt import Capture
from securebench.run.decide.capacity import CapacityUse
from securebench.run.decide.controls import Controls, EndReason, Halt
from securebench.run.decide.network import NetworkState
from securebench.run.decide.reconcile import (
    LIST_SECONDS,
    Deletion,
    ObservedState,
    RunDecision,
    reconcile,
)
from securebench.run.decide.waits import ObservedWrites
from securebench.run.observe.pods import pod_view
from securebench.run.observe.stage import Ended
from securebench.run.plan.model import AttemptKey, LaunchKey, Refusal, Role
from securebench.run.state.attempts import Finish, Lost
from securebench.run.state.history import AttemptIndex
from support.build import (
    HARNESS,
    KEY,
    NOW,
    PROVEN_NETWORK,
    UNSCHEDULABLE,
    VERIFIER,
    harness_done,
    history_of,
    live,
    lost_launch,
    many_tasks,
    plan_of,
    pod_status,
    production,
    raw_pod,
    relayed,
    running,
    view_of,
    waiting,
)
from support.manifest_samples import text_task

RUNNING = pod_status("Running", running("courier"), running("harness"))
NAME = "sb-3f2a9c1e5b7d-0-1h1"
ENDED = EndReason(Reason.COMPLETED, "1 of 1 passed")
STOP = EndReason(Reason.CANCELLED, "spec.cancel is set")
DONE = Finish(KEY, Outcome.SCORED, passed=True)


def harness(task: int, launch: int = 1) -> LaunchKey:
    return LaunchKey(task, 1, Role.HARNESS, launch)


def verifier(task: int) -> LaunchKey:
    return LaunchKey(task, 1, Role.VERIFIER, 1)


def decide(*histories: Any, **given: Any) -> RunDecision:
    """Reconcile a run with these attempts, one of each task."""
    policy = given.pop("policy", {})
    tasks = given.pop("tasks", None) or many_tasks(len(histories))
    controls = Controls(
        parallelism=given.pop("parallelism", 4),
        halt=given.pop("halt", Halt.NONE),
        stop=given.pop("stop", None),
        deadline=given.pop("deadline", None),
        max_unschedulable=given.pop("max_unschedulable", 4),
        is_yielding=given.pop("is_yielding", False),
    )
    views = given.pop("views", ())
    situation = ObservedState(
        plan=replace(
            plan_of(*tasks, **policy),
            egress=given.pop("egress", None),
            regrade=given.pop("regrade", None),
        ),
        history=AttemptIndex(histories),
        network=given.pop("network", PROVEN_NETWORK),
        pods={view.name: view for view in views},
        pending=given.pop("pending", frozenset()),
        vanished=given.pop("vanished", frozenset()),
        now=given.pop("now", NOW),
        writes=given.pop("writes", ObservedWrites()),
        plan_mismatch=given.pop("plan_mismatch", ""),
    )
    assert not given
    return reconcile(situation, controls)


def does(decision: RunDecision) -> RunDecision:
    """Return a decision without what it only says."""
    return replace(decision, halt=Halt.NONE, wait_reason=None, usage=CapacityUse())


def fresh(task: int):
    return history_of(AttemptKey(task, 1))


def made(task: int):
    return history_of(AttemptKey(task, 1), production=production())


def finished(task: int, **changes: Any):
    key = AttemptKey(task, 1)
    return history_of(key, finish=Finish(key, Outcome.SCORED, passed=True), **changes)


# Slots


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_no_more_begins_than_parallelism(parallelism):
    decision = decide(fresh(0), fresh(1), fresh(2), parallelism=parallelism)
    assert decision.begin == tuple(harness(task) for task in range(parallelism))


def test_live_launches_take_slots_even_unseen():
    decision = decide(live(harness(0)), fresh(1), fresh(2), parallelism=2)
    assert decision.begin == (harness(1),)


def test_a_lowered_parallelism_begins_nothing_and_ends_nothing():
    decision = decide(live(harness(0)), live(harness(1)), fresh(2), parallelism=1)
    assert does(decision) == RunDecision()


def test_verifiers_come_before_new_attempts():
    decision = decide(fresh(0), fresh(1), made(2), parallelism=2)
    assert decision.begin == (verifier(2), harness(0))


def test_attempts_of_one_task_are_independent():
    histories = [history_of(AttemptKey(0, number)) for number in (1, 2)]
    decision = decide(*histories, tasks=(text_task(),), policy={"attempts": 2})
    assert decision.begin == (HARNESS, LaunchKey(0, 2, Role.HARNESS, 1))


def stuck_view(task: int):
    return view_of(harness(task), pod_status("Pending", conditions=[UNSCHEDULABLE]))


def test_nothing_begins_while_too_many_pods_do_not_fit():
    histories = (live(harness(0)), live(harness(1)), fresh(2))
    views = (stuck_view(0), stuck_view(1))
    assert decide(*histories, views=views, max_unschedulable=2).begin == ()
    assert decide(*histories, views=views, max_unschedulable=3).begin == (harness(2),)


# Halt


def test_suspended_lets_running_launches_end():
    view = view_of(harness(0), harness_done())
    decision = decide(live(harness(0)), fresh(1), made(2), views=[view], halt=Halt.SUSPENDED)
    assert does(decision) == RunDecision(captures=(Capture(harness(0), view, Ended(0)),))


def test_suspended_repeats_creates_that_were_begun():
    decision = decide(live(HARNESS), pending={NAME}, halt=Halt.SUSPENDED)
    assert decision.repeat == (HARNESS,)


def cancelled(key: AttemptKey, phase: str) -> Finish:
    return Finish(key, Outcome.CANCELLED, "cancelled", phase, "spec.cancel is set")


def test_draining_ends_what_is_queued_and_finishes_what_is_under_way():
    lost = history_of(
        AttemptKey(3, 1), retries=(Role.HARNESS,), launches=1, last_lost=lost_launch(harness(3))
    )
    decision = decide(
        live(harness(0)),
        fresh(1),
        made(2),
        lost,
        views=[view_of(harness(0), RUNNING)],
        halt=Halt.DRAINING,
        stop=STOP,
    )
    assert decision.finishes == (
        cancelled(AttemptKey(1, 1), "queued"),
        cancelled(AttemptKey(3, 1), "queued"),
    )
    assert decision.begin == (verifier(2),)
    assert decision.deletions == ()


def test_stopped_ends_everything_that_has_no_record():
    view = view_of(harness(0), harness_done())
    decision = decide(
        live(harness(0)),
        live(verifier(1), production=production()),
        made(2),
        fresh(3),
        finished(4),
        views=[view],
        halt=Halt.STOPPED,
        stop=STOP,
    )
    assert does(decision) == RunDecision(
        finishes=(
            cancelled(AttemptKey(0, 1), "producer"),
            cancelled(AttemptKey(1, 1), "verification"),
            cancelled(AttemptKey(2, 1), "queued"),
            cancelled(AttemptKey(3, 1), "queued"),
        )
    )


def test_pods_of_cancelled_attempts_are_deleted_at_once():
    view = view_of(HARNESS, RUNNING)
    history = history_of(finish=cancelled(KEY, "producer"), launches=1)
    decision = decide(history, views=[view], halt=Halt.STOPPED)
    gone = Deletion(NAME, f"uid-of-{NAME}", at_once=True)
    assert does(decision) == RunDecision(deletions=(gone,))


# Pods that are not seen


def test_a_create_without_an_answer_is_repeated():
    assert does(decide(live(HARNESS), pending={NAME})) == RunDecision(repeat=(HARNESS,))


def test_a_seen_pod_is_not_created_again():
    decision = decide(live(HARNESS), views=[view_of(HARNESS, RUNNING)], pending={NAME})
    assert does(decision) == RunDecision()


def test_a_launch_that_is_on_its_way_waits():
    assert does(decide(live(HARNESS))) == RunDecision()


def test_a_vanished_pod_is_lost_whatever_else_is_known():
    decision = decide(live(HARNESS), vanished={NAME}, pending={NAME})
    message = f"Pod {NAME} disappeared before it gave a result"
    assert does(decision) == RunDecision(lost=(Lost(HARNESS, "pod_lost", message, NOW),))


def test_a_vanished_pod_of_an_earlier_launch_means_nothing():
    second = live(harness(0, 2), retries=(Role.HARNESS,), last_lost=lost_launch())
    assert does(decide(second, vanished={NAME})) == RunDecision()


# What an attempt's step becomes


IMAGE_WAIT = 60.0
"""Seconds after which a launch is given up whose container waits; its image may come as late."""


def listed(seconds: float, *, now: float) -> NetworkState:
    """Return the network's state with the latest list begun so many seconds after the launch."""
    return replace(PROVEN_NETWORK, monotonic=500.0, listed_at=500.0 - (now - NOW) + seconds)


@pytest.mark.parametrize("reason", ["CreateContainerError", "ErrImagePull"])
def test_a_launch_is_given_up_after_a_list_that_still_shows_it_waiting(reason):
    """Its container may run by now: an event may be lost, the API server may not answer."""
    view = view_of(HARNESS, pod_status("Pending", waiting("harness", reason)))
    now, listed_before = NOW + IMAGE_WAIT + 1, IMAGE_WAIT - 1
    early = decide(live(HARNESS), views=[view], now=now, network=listed(listed_before, now=now))
    assert does(early) == RunDecision(wake_at=NOW + listed_before + LIST_SECONDS)
    late = NOW + IMAGE_WAIT + LIST_SECONDS
    due = decide(live(HARNESS), views=[view], now=late, network=listed(listed_before, now=late))
    assert does(due) == RunDecision(needs_list=True, wake_at=late + LIST_SECONDS)
    after = decide(live(HARNESS), views=[view], now=now, network=listed(IMAGE_WAIT, now=now))
    assert [lost.at for lost in after.lost] == [now]
    assert not after.needs_list


@pytest.mark.parametrize(
    "status",
    [
        pod_status("Failed", reason="NodeLost"),
        pod_status("Pending", waiting("harness", "InvalidImageName")),
    ],
)
def test_what_no_time_decides_needs_no_list(status):
    network = listed(0.0, now=NOW + 100)
    decision = decide(
        live(HARNESS), views=[view_of(HARNESS, status)], now=NOW + 100, network=network
    )
    assert decision.lost or decision.finishes
    assert not decision.needs_list


def test_an_interrupted_pod_is_lost_and_begins_nothing_in_the_same_pass():
    view = view_of(HARNESS, pod_status("Failed", reason="NodeLost"))
    decision = decide(live(HARNESS), views=[view])
    assert [lost.reason for lost in decision.lost] == ["node_lost"]
    assert decision.begin == ()


def test_the_earliest_wake_counts():
    slow = view_of(harness(1), pod_status("Pending", waiting("harness", "ErrImagePull")))
    lost = history_of(KEY, retries=(Role.HARNESS,), launches=1, last_lost=lost_launch(at=NOW))
    decision = decide(lost, live(harness(1)), views=[slow])
    assert does(decision) == RunDecision(wake_at=NOW + 5)


def test_a_refused_task_ends_at_once():
    refusal = Refusal("verifier", "verifier_configuration", "verification", "no answers", {})
    decision = decide(fresh(0), tasks=(text_task(refusal=refusal),))
    assert [finish.outcome for finish in decision.finishes] == [Outcome.VERIFIER]


# Deletion and retention


@pytest.mark.parametrize("keep", ["None", "Failed"])
def test_a_pod_goes_when_its_result_is_in_the_journal(keep):
    decision = decide(made(0), views=[view_of(HARNESS, harness_done())], policy={"keep_pods": keep})
    assert decision.deletions == (Deletion(NAME, f"uid-of-{NAME}"),)


def test_a_pod_whose_result_is_not_in_the_journal_stays():
    assert decide(live(HARNESS), views=[view_of(HARNESS, RUNNING)]).deletions == ()


def ended_with(outcome: Outcome):
    return history_of(finish=Finish(KEY, outcome), launches=1)


KEPT = {
    ("All", Outcome.SCORED): True,
    ("All", Outcome.INFRASTRUCTURE): True,
    ("Failed", Outcome.SCORED): False,
    ("Failed", Outcome.AGENT): False,
    ("Failed", Outcome.CANCELLED): False,
    ("Failed", Outcome.INFRASTRUCTURE): True,
    ("Failed", Outcome.VERIFIER): True,
    ("None", Outcome.INFRASTRUCTURE): False,
}


@pytest.mark.parametrize(("keep", "outcome"), KEPT)
def test_retention_of_pods(keep, outcome):
    decision = decide(
        ended_with(outcome), views=[view_of(HARNESS, harness_done())], policy={"keep_pods": keep}
    )
    assert (decision.deletions == ()) is KEPT[keep, outcome]
    assert (decision.end is not None) is KEPT[keep, outcome]


def test_a_pod_that_still_runs_is_never_kept():
    view = view_of(HARNESS, RUNNING)
    decision = decide(ended_with(Outcome.INFRASTRUCTURE), views=[view], policy={"keep_pods": "All"})
    assert decision.deletions == (Deletion(NAME, f"uid-of-{NAME}", at_once=True),)


@pytest.mark.parametrize(("keep", "want"), [("All", ()), ("None", (NAME,))])
def test_a_pod_whose_phase_comes_later_counts_as_ended(keep, want):
    """The kubelet reports the end of the last container first."""
    view = view_of(HARNESS, {**harness_done(), "phase": "Running"})
    decision = decide(ended_with(Outcome.SCORED), views=[view], policy={"keep_pods": keep})
    assert decision.deletions == tuple(Deletion(name, f"uid-of-{name}") for name in want)


def test_the_pod_of_a_lost_launch_is_kept_as_failed():
    history = history_of(
        retries=(Role.HARNESS,), launches=1, last_lost=lost_launch(), production=None
    )
    view = view_of(HARNESS, pod_status("Failed", reason="NodeLost"))
    assert decide(history, views=[view]).deletions == ()


def test_a_pod_that_is_being_deleted_is_left_alone():
    view = view_of(HARNESS, RUNNING, deleting_at=NOW)
    decision = decide(finished(0), views=[view])
    assert (decision.deletions, decision.end) == ((), ENDED)


def test_pods_that_are_no_launch_of_this_plan_are_left_alone():
    foreign = view_of(LaunchKey(9, 9, Role.HARNESS, 1), harness_done())
    decision = decide(finished(0), views=[foreign])
    assert (decision.deletions, decision.end) == ((), ENDED)


def test_an_old_pod_goes_although_a_later_launch_lives():
    history = live(harness(0, 2), retries=(Role.HARNESS,), last_lost=lost_launch())
    first = view_of(harness(0), RUNNING)
    second = view_of(harness(0, 2), RUNNING)
    decision = decide(history, views=[first, second])
    assert decision.deletions == (Deletion(NAME, f"uid-of-{NAME}", at_once=True),)


def test_a_verifier_shares_no_time_with_its_harness():
    history = live(VERIFIER, production=production())
    decision = decide(
        history, views=[view_of(HARNESS, harness_done())], policy={"keep_pods": "None"}
    )
    assert decision.deletions == (Deletion(NAME, f"uid-of-{NAME}"),)


# The end


def test_complete_means_all_records_and_no_deletion_left():
    end = EndReason(Reason.COMPLETED, "2 of 2 passed")
    assert decide(finished(0), finished(1)) == RunDecision(end=end)
    assert decide(finished(0), fresh(1)).end is None
    assert decide(finished(0), views=[view_of(HARNESS, RUNNING)]).end is None
    assert decide(finished(0), writes=ObservedWrites(is_idle=False)).end is None


def test_deciding_twice_decides_the_same():
    view = raw_pod(HARNESS, harness_done())
    histories = (live(HARNESS), fresh(1), made(2))
    first = decide(*histories, views=[pod_view(view)])
    assert first == decide(*histories, views=[pod_view(view)])


def lost_to(reason: str, at: float) -> Any:
    lost = Lost(HARNESS, reason, "why", at)
    return history_of(launches=1, provider_retries=1, last_lost=lost)


@pytest.mark.parametrize("reason", ["provider_quota", "provider_auth", "provider_unavailable"])
def test_no_attempt_begins_while_the_provider_fails_those_that_have_begun(reason):
    new = [history_of(AttemptKey(task, 1)) for task in range(1, 3)]
    assert decide(lost_to(reason, NOW), *new).begin == ()
    assert decide(lost_to(reason, NOW - 1000), *new).begin == (harness(0, 2),)
    begun = harness(1), harness(2)
    assert decide(lost_to("pod_lost", NOW), *new).begin == begun
    done = history_of(AttemptKey(0, 1), finish=DONE)
    other = lost_to(reason, NOW)._replace(key=AttemptKey(1, 1))
    assert decide(done, other, history_of(AttemptKey(2, 1))).begin == (harness(2),)


def test_more_held_attempts_than_are_ever_refused_hide_no_repeated_one():
    new = [history_of(AttemptKey(task, 1)) for task in range(200)]
    late = lost_to("provider_quota", NOW - 1000)._replace(key=AttemptKey(200, 1))
    assert decide(*new, late).begin == (harness(200, 2),)


def test_an_outage_that_is_found_in_this_pass_holds_new_attempts_too():
    report = replace(relayed(failure="provider_auth", failures=4), unanswered="its answer was 401")
    ended = history_of(launches=1, production=production(egress=report))
    found = decide(ended, history_of(AttemptKey(1, 1)))
    assert [each.reason for each in found.lost] == ["provider_auth"]
    assert found.begin == ()
