from __future__ import annotations

import json

import pytest

from securebench.run.api.status import (
    END_STATES,
    MAX_FAILED_TASKS,
    MAX_LOSS_REASON,
    MAX_LOSSES,
    MAX_MESSAGE,
    MAX_REASONS,
    MAX_TASK_ID,
    BenchmarkRunStatus,
    Condition,
    ConditionStatus,
    ConditionType,
    ConditionUpdate,
    LaunchCount,
    PassRate,
    Reason,
    ReasonCount,
    Resolved,
    Results,
    Score,
    TaskCounts,
    derived_findings,
    end_state,
    get_condition,
    set_condition,
    set_conditions,
)

RUNNING = ConditionUpdate(
    ConditionType.SUCCEEDED, ConditionStatus.UNKNOWN, Reason.RUNNING, "1 of 2 done"
)
DONE = ConditionUpdate(
    ConditionType.SUCCEEDED, ConditionStatus.TRUE, Reason.COMPLETED, "2 of 2 done"
)
START, LATER = "1970-01-01T00:00:10Z", "1970-01-01T00:00:20Z"


def first(finding: ConditionUpdate = RUNNING) -> tuple[Condition, ...]:
    return set_condition((), finding, observed_generation=1, now=10)


def test_a_new_condition_is_added() -> None:
    (condition,) = first()
    assert condition.to_json() == {
        "type": "Succeeded",
        "status": "Unknown",
        "reason": "Running",
        "message": "1 of 2 done",
        "lastTransitionTime": START,
        "observedGeneration": 1,
    }


def test_the_time_stays_while_the_status_stays() -> None:
    other = ConditionUpdate(
        ConditionType.SUCCEEDED, ConditionStatus.UNKNOWN, Reason.CANCELLING, "ends"
    )
    (condition,) = set_condition(first(), other, observed_generation=2, now=20)
    assert condition.last_transition_time == START
    assert (condition.reason, condition.message) == ("Cancelling", "ends")
    assert condition.observed_generation == 2


def test_the_time_changes_with_the_status() -> None:
    (condition,) = set_condition(first(), DONE, observed_generation=1, now=20)
    assert condition.last_transition_time == LATER


def test_other_conditions_and_the_order_stay() -> None:
    sealed = ConditionUpdate(ConditionType.RESULTS_SEALED, ConditionStatus.TRUE, Reason.SEALED)
    both = set_conditions((), [RUNNING, sealed], observed_generation=1, now=10)
    after = set_condition(both, DONE, observed_generation=1, now=20)
    assert [item.type for item in after] == ["Succeeded", "ResultsSealed"]
    assert after[1] == both[1]
    assert get_condition(after, ConditionType.RESULTS_SEALED) == both[1]
    assert get_condition(after, ConditionType.SUSPENDED) is None


def test_a_long_message_is_cut() -> None:
    long = ConditionUpdate(ConditionType.READY, ConditionStatus.FALSE, Reason.INTERNAL, "x" * 5000)
    (condition,) = first(long)
    assert len(condition.message) == MAX_MESSAGE
    assert condition.message.endswith("x…")


@pytest.mark.parametrize(
    ("succeeded", "ready", "stalled"),
    [
        (RUNNING, ConditionStatus.FALSE, ConditionStatus.FALSE),
        (DONE, ConditionStatus.TRUE, ConditionStatus.FALSE),
        (
            ConditionUpdate(ConditionType.SUCCEEDED, ConditionStatus.FALSE, Reason.INCOMPLETE),
            ConditionStatus.FALSE,
            ConditionStatus.TRUE,
        ),
    ],
)
def test_kstatus(
    succeeded: ConditionUpdate, ready: ConditionStatus, stalled: ConditionStatus
) -> None:
    _, *found = derived_findings(succeeded)
    assert [item.type for item in found] == [ConditionType.READY, ConditionType.STALLED]
    assert [item.status for item in found] == [ready, stalled]
    assert {item.reason for item in found} == {succeeded.reason}


@pytest.mark.parametrize(
    ("reason", "succeeded", "exit_code"),
    [
        ("Completed", "True", 0),
        ("Incomplete", "False", 0),
        ("InvalidSpec", "False", 1),
        ("PackInvalid", "False", 1),
        ("IsolationNotVerified", "False", 1),
        ("DeadlineExceeded", "False", 1),
        ("BudgetExhausted", "False", 1),
        ("Cancelled", "False", 1),
        ("PodRefused", "False", 1),
        ("GatewayFailed", "False", 1),
    ],
)
def test_end_states(reason: str, succeeded: str, exit_code: int) -> None:
    state = end_state(reason)
    assert state is not None
    assert (state.succeeded.value, state.exit_code) == (succeeded, exit_code)
    assert len(END_STATES) == 10


GOES_ON = ["Running", "Starting", "Cancelling", "StorageUnavailable", "Internal", "Unheard"]


@pytest.mark.parametrize("reason", GOES_ON)
def test_a_run_that_goes_on_has_no_end_state(reason: str) -> None:
    assert end_state(reason) is None


OF_SUITES = {ConditionType.RECONCILING, ConditionType.GATES_PASSED}


def test_the_largest_status_stays_below_32_kib() -> None:
    big = 10**9
    conditions = tuple(
        Condition(
            type=kind.value,
            status=ConditionStatus.UNKNOWN,
            reason=Reason.ISOLATION_NOT_VERIFIED.value,
            message="m" * MAX_MESSAGE,
            last_transition_time=START,
            observed_generation=big,
        )
        for kind in set(ConditionType) - OF_SUITES
    )
    status = BenchmarkRunStatus(
        observed_generation=big,
        start_time=START,
        completion_time=LATER,
        resolved=Resolved(**dict.fromkeys(Resolved.model_fields, "d" * 256)),
        tasks=TaskCounts(**dict.fromkeys(TaskCounts.model_fields, big)),
        score=Score(
            passed=big,
            verified=big,
            score_sum="1" * 256,
            pass_rate=PassRate(value="1" * 256, low="1" * 256, high="1" * 256),
        ),
        results=Results(path="p" * 512, records=big, sha256="s" * 256),
        failed_tasks=("t" * MAX_TASK_ID,) * MAX_FAILED_TASKS,
        failure_reasons=(ReasonCount(reason="r" * 64, count=big),) * MAX_REASONS,
        lost_launches=(LaunchCount(reason="r" * MAX_LOSS_REASON, count=big),) * MAX_LOSSES,
        noisy_launches=big,
        conditions=conditions,
    )
    assert len(json.dumps(status.to_json()).encode()) < 32 * 1024
    assert BenchmarkRunStatus.parse(status.to_json()) == status
