import json

import pytest

from bench.product import ProductRun
from bench.spread import Spread
from bench.steps import Seen, Step, between, reached, run_steps, run_times, summary, task_steps

UID = "3f2a9c1e-5b7d-4e80-9a6c-2d1f0e4b8c77"
JOURNAL = [
    ("RunBound", {}),
    ("Opened", {"at": 10.2}),
    ("LaunchBegun", {"launch": [0, 1, "harness", 1], "at": 12.0}),
    ("Produced", {"key": [0, 1]}),
    ("LaunchBegun", {"launch": [0, 1, "verifier", 1], "at": 13.0}),
    ("LaunchBegun", {"launch": [1, 1, "harness", 1], "at": 14.0}),
    ("Finished", {"finish": {"key": [0, 1]}, "at": 14.5}),
    ("Finished", {"finish": {"key": [1, 1]}, "at": 16.0}),
]


def journal():
    lines = (json.dumps({"type": kind, "entry": entry}) for kind, entry in JOURNAL)
    return "".join(f"00000000 00000000 {line}\n" for line in lines)


def raw(name, role, task="0", **status):
    return {
        "metadata": {
            "name": name,
            "labels": {"securebench.dev/run-uid": UID, "securebench.dev/role": role},
            "annotations": {"securebench.dev/task-index": task} if role != "canary" else {},
        },
        "status": status,
    }


def conditions(*kinds):
    return [{"type": kind, "status": "True"} for kind in kinds]


WAITING, RUNNING, ENDED = ({"state": {word: {}}} for word in ("waiting", "running", "terminated"))
STATUSES = {
    "new": ({}, ["created"]),
    "scheduled": ({"conditions": conditions("PodScheduled")}, ["created", "scheduled"]),
    "not scheduled": (
        {"conditions": [{"type": "PodScheduled", "status": "False"}]},
        ["created"],
    ),
    "sidecar": (
        {"initContainerStatuses": [RUNNING], "containerStatuses": [WAITING]},
        ["created", "beside"],
    ),
    "main": (
        {"initContainerStatuses": [RUNNING], "containerStatuses": [RUNNING]},
        ["created", "beside", "main"],
    ),
    "ended": (
        {
            "conditions": conditions("PodScheduled", "PodReadyToStartContainers"),
            "containerStatuses": [ENDED],
        },
        ["created", "scheduled", "sandbox", "main", "main ended", "ended"],
    ),
    "sidecar goes on": (
        {"initContainerStatuses": [RUNNING], "containerStatuses": [ENDED]},
        ["created", "beside", "main", "main ended"],
    ),
    "phase alone": ({"phase": "Succeeded"}, ["created"]),
}


@pytest.mark.parametrize("case", STATUSES)
def test_a_status_says_what_was_reached(case):
    status, want_marks = STATUSES[case]
    assert list(reached(raw("p", "harness", **status))) == want_marks


def test_the_first_sight_of_a_mark_counts():
    seen = Seen()
    seen.pod(raw("p", "harness"), 5.0)
    seen.pod(raw("p", "harness", containerStatuses=[ENDED]), 7.0)
    assert seen.of(UID, 0, "harness") == {
        "created": 5.0,
        "main": 7.0,
        "main ended": 7.0,
        "ended": 7.0,
    }
    assert seen.of(UID, 1, "harness") == {}
    assert seen.of("another", 0, "harness") == {}


def started(name, path, reason="Started"):
    return {"reason": reason, "regarding": {"name": name, "fieldPath": path}}


def test_events_tell_of_containers_that_lived_between_two_looks():
    seen = Seen()
    seen.event(started("p", "spec.initContainers{courier}"), 6.0)
    seen.event(started("p", "spec.containers{harness}"), 6.5)
    seen.event(started("p", "spec.containers{harness}", reason="Pulled"), 1.0)
    seen.event(started("p", "spec"), 1.0)
    seen.pod(raw("p", "harness", containerStatuses=[RUNNING]), 9.0)
    assert seen.of(UID, 0, "harness") == {"beside": 6.0, "main": 6.5, "created": 9.0}


def test_steps_are_the_times_between_neighbours():
    steps = between([("a", 1.0), ("b", 1.25), ("c", 1.2), ("d", 1.5)])
    assert steps == [Step("b", 250.0), Step("c", 0.0), Step("d", 250.0)]


def test_a_task_goes_from_its_launch_to_its_record():
    seen = Seen()
    seen.pod(raw("h", "harness"), 12.25)
    seen.pod(raw("h", "harness", containerStatuses=[ENDED]), 12.75)
    seen.pod(raw("v", "verifier"), 13.25)
    seen.pod(raw("other", "harness", task="1"), 13.4)
    seen.pod(raw("v", "verifier", containerStatuses=[ENDED]), 14.25)
    assert task_steps(journal(), seen, UID, 0) == [
        Step("harness: Pod created", 250.0),
        Step("harness: main container runs", 500.0),
        Step("harness: main container has ended", 0.0),
        Step("harness: every container has ended", 0.0),
        Step("verifier: candidate sealed, begun in the journal", 250.0),
        Step("verifier: Pod created", 250.0),
        Step("verifier: main container runs", 1000.0),
        Step("verifier: main container has ended", 0.0),
        Step("verifier: every container has ended", 0.0),
        Step("record written", 250.0),
    ]


def test_a_run_has_steps_before_its_first_task_and_after_its_last():
    seen = Seen()
    seen.pod(raw("c", "canary"), 10.5)
    seen.pod(raw("c", "canary", containerStatuses=[ENDED]), 11.5)
    run = ProductRun("bench-1", UID, 10.0, 16.25)
    found = [(step.reached, round(step.milliseconds)) for step in run_steps(journal(), seen, run)]
    assert found == [
        ("run: journal opened", 200),
        ("canary: Pod created", 300),
        ("canary: main container runs", 1000),
        ("canary: main container has ended", 0),
        ("canary: every container has ended", 0),
        ("run: first launch in the journal", 500),
        ("run: Succeeded in the status", 250),
    ]
    assert run.seconds == 6.25


def test_an_operator_that_opened_the_journal_again_is_no_start():
    text = journal() + '0 0 {"type":"Opened","entry":{"at":99.0}}\n'
    assert run_times(text) == {"opened": 10.2, "begun": 12.0, "finished": 16.0}


def test_a_summary_has_every_step_and_the_whole():
    tasks = [[Step("a", 10.0), Step("b", 1.0)], [Step("a", 20.0), Step("b", 3.0)]]
    assert summary(tasks) == [
        ("a", Spread(15.0, 10.0, 20.0)),
        ("b", Spread(2.0, 1.0, 3.0)),
        ("all", Spread(17.0, 11.0, 23.0)),
    ]
