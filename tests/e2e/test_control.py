"""What a user changes while a run goes: suspend, cancel, deadline, an edit, resume."""

from __future__ import annotations

import pytest

from securebench.run.plan.model import Role
from securebench.run.state.entries import LaunchBegun
from support.release import (
    CommandError,
    Raw,
    Release,
    condition,
)
from support.runs import NO_IMAGE, STUCK, begin, is_running, outcomes, row, rows, tasks

pytestmark = pytest.mark.e2e

SLOW = "sleep 2; echo 4"


def test_a_suspended_run_begins_nothing_until_it_goes_on(shared: Release) -> None:
    run = begin(shared, rows(4), SLOW, parallelism=1)
    shared.wait(run, lambda seen: tasks(seen).get("done", 0) >= 1)
    shared.patch(run, {"suspend": True})
    held = shared.wait(run, lambda seen: condition(seen, "Suspended")["status"] == "True")
    idle = shared.wait(run, lambda seen: tasks(seen)["active"] == 0)
    begun = begun_launches(shared, run)
    assert tasks(held)["done"] < 4
    assert condition(idle)["status"] == "Unknown"
    shared.patch(run, {"suspend": False, "parallelism": 4})
    ended = shared.wait_ended(run)
    assert condition(ended)["reason"] == "Completed"
    assert condition(ended, "Suspended")["status"] == "False"
    assert outcomes(shared, run) == ["scored"] * 4
    assert begun_launches(shared, run) > begun


def begun_launches(release: Release, run: str) -> int:
    return sum(isinstance(entry, LaunchBegun) for entry in release.entries(run))


def test_a_run_that_is_created_suspended_launches_nothing(shared: Release) -> None:
    run = begin(shared, rows(1), SLOW, suspend=True)
    shared.wait(run, lambda seen: condition(seen, "Suspended")["status"] == "True")
    held = shared.wait(run, lambda seen: condition(seen)["reason"] == "Suspended")
    assert condition(held)["status"] == "Unknown"
    assert shared.pods(run) == []
    shared.patch(run, {"suspend": False})
    assert condition(shared.wait_ended(run))["reason"] == "Completed"


def test_a_graceful_cancel_lets_what_runs_finish(shared: Release) -> None:
    run = begin(shared, rows(3), "sleep 5; echo 4", parallelism=1)
    shared.wait(run, lambda _: is_running(shared, run))
    shared.patch(run, {"cancel": "Graceful"})
    ended = shared.wait_ended(run)
    assert condition(ended)["status"] == "False"
    assert condition(ended)["reason"] == "Cancelled"
    assert outcomes(shared, run) == ["scored", "cancelled", "cancelled"]
    assert [record.get("failure_phase") for record in shared.records(run)[1:]] == ["queued"] * 2


def test_an_immediate_cancel_ends_everything_at_once(shared: Release) -> None:
    run = begin(shared, rows(3), STUCK, parallelism=2)
    shared.wait(run, lambda _: is_running(shared, run))
    shared.patch(run, {"cancel": "Immediate"})
    ended = shared.wait_ended(run)
    assert condition(ended)["reason"] == "Cancelled"
    assert outcomes(shared, run) == ["cancelled"] * 3
    shared.wait(run, lambda _: not is_running(shared, run))


def test_a_cancel_cannot_be_taken_back(shared: Release) -> None:
    run = begin(shared, rows(1), SLOW, cancel="Graceful")
    with pytest.raises(CommandError, match="cancel cannot be taken back"):
        shared.patch(run, {"cancel": ""})
    assert condition(shared.wait_ended(run))["reason"] == "Cancelled"


def test_a_run_ends_at_its_deadline(shared: Release) -> None:
    run = begin(shared, rows(2), STUCK, activeDeadlineSeconds=10)
    ended = shared.wait_ended(run)
    assert condition(ended)["reason"] == "DeadlineExceeded"
    assert "10 seconds" in condition(ended)["message"]
    assert outcomes(shared, run) == ["cancelled"] * 2


EDITS: list[Raw] = [
    {"attempts": 2},
    {"runId": "another"},
    {"harness": {"config": {"command": "echo 5"}}},
    {"taskSelector": {"limit": 1}},
]


def test_an_edit_of_a_started_run_is_refused(shared: Release) -> None:
    run = begin(shared, rows(1), SLOW)
    for change in EDITS:
        (name,) = change
        message = f"{name} is fixed once the run exists: create a new BenchmarkRun instead"
        with pytest.raises(CommandError, match=message):
            shared.patch(run, change)
    assert condition(shared.wait_ended(run))["reason"] == "Completed"


def test_a_run_resumes_only_what_an_earlier_one_did_not_score(shared: Release) -> None:
    given = [row("good"), row("late", environment={"image": NO_IMAGE}), row("wrong")]
    command = "echo 4"
    first = begin(shared, given, command, infrastructureRetries=0, runId="resumed")
    ended = shared.wait_ended(first)
    assert condition(ended)["reason"] == "Incomplete"
    assert outcomes(shared, first) == ["scored", "infrastructure", "scored"]
    again = {"runId": "resumed", "resumeFrom": {"run": first}, "infrastructureRetries": 0}
    second = begin(shared, given, command, **again)
    shared.wait_ended(second)
    assert {entry.launch.task for entry in launches(shared, second)} == {1}
    before, after = shared.records(first), shared.records(second)
    assert [after[0], after[2]] == [before[0], before[2]]
    assert (before[1]["resume_generation"], after[1]["resume_generation"]) == (0, 1)
    grade_again(shared, given, first)


def grade_again(shared: Release, given: list[Raw], first: str) -> None:
    """Grade the first run again with one changed answer: that one flips, and no agent runs."""
    changed = [*given[:2], row("wrong", eval={"accepted_answers": ["5"]})]
    run = begin(shared, changed, "echo 4", regrade={"run": first})
    ended = shared.wait_ended(run)
    assert condition(ended)["reason"] == "Incomplete"
    assert {entry.launch.role for entry in launches(shared, run)} == {Role.VERIFIER}
    graded = shared.records(run)
    assert [record.get("passed") for record in graded] == [True, None, False]
    assert [record["regrade"]["graded_again"] for record in graded] == [True, False, True]
    assert {record["regrade"]["run"] for record in graded} == {first}


def launches(release: Release, run: str) -> list[LaunchBegun]:
    return [entry for entry in release.entries(run) if isinstance(entry, LaunchBegun)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"runId": "different"}, "run_id differs"),
        ({"command": "echo 5"}, "harness_digest differs"),
        ({"rows": 2}, "pack_digest differs"),
        ({"resumeFrom": {"run": "nobody"}}, "there is no run 'nobody' on this volume"),
    ],
    ids=["run-id", "harness", "pack", "unknown"],
)
def test_a_resume_that_does_not_fit_is_refused(
    shared: Release, finished: str, change: Raw, message: str
) -> None:
    fields = {"runId": "finished", "resumeFrom": {"run": finished}, **change}
    count, command = fields.pop("rows", 1), fields.pop("command", "echo 4")
    run = begin(shared, rows(count), command, **fields)
    seen = condition(shared.wait_ended(run))
    assert (seen["status"], seen["reason"]) == ("False", "InvalidSpec")
    assert message in seen["message"]


@pytest.fixture(scope="module")
def finished(shared: Release) -> str:
    """A run that has ended."""
    run = begin(shared, rows(1), "echo 4", runId="finished")
    shared.wait_ended(run)
    return run
