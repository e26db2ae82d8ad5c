import json

import pytest

from securebench.attestation.statement import (
    attempt_list,
    course_fields,
    decode_attempt,
    encode_attempts,
)
from securebench.clock import rfc3339
from securebench.run.api.field_types import Outcome
from securebench.run.plan.model import AttemptKey, LaunchKey, Role
from securebench.run.state.attempts import Finish
from securebench.run.state.entries import (
    Finished,
    IsolationResult,
    Kept,
    LaunchBegun,
    LaunchLost,
    Opened,
    Produced,
    RunEnded,
    Verified,
)
from securebench.run.state.history import whole_history
from support.build import (
    HARNESS,
    IMAGE_ID,
    KEY,
    NOW,
    VERIFIER,
    lost_launch,
    production,
    verification,
)

AGAIN = LaunchKey(0, 1, Role.HARNESS, 2)
PROVEN = IsolationResult(verified=True, user_namespaces=True, message="closed: dns")
DONE = Finished(Finish(KEY, Outcome.SCORED, passed=True), "a" * 64, NOW)


def facts(*entries):
    return attempt_list(whole_history(entries))


def lines(*entries):
    return [json.loads(line) for line in encode_attempts(facts(*entries))]


def launch(role="harness", number=1, **changes):
    known = {"role": role, "launch": number, "begun_at": NOW}
    return known | {"end": "captured", "reason": "", "image": ""} | changes


def test_an_attempt_with_its_launches():
    (found,) = lines(
        Opened(1, NOW),
        LaunchBegun(HARNESS, NOW),
        LaunchLost(lost_launch()),
        LaunchBegun(AGAIN, NOW),
        Produced(KEY, production(launch=2)),
        LaunchBegun(VERIFIER, NOW),
        Verified(KEY, verification()),
        DONE,
    )
    assert found == {
        "task": 0,
        "attempt": 1,
        "record_sha256": "a" * 64,
        "outcome": "scored",
        "reason": "",
        "passed": True,
        "kept_of": "",
        "launches": [
            launch(end="lost", reason=lost_launch().reason),
            launch(number=2, image=IMAGE_ID),
            launch(role="verifier", image=IMAGE_ID),
        ],
    }


@pytest.mark.parametrize(
    ("entries", "want"),
    [([LaunchBegun(HARNESS, NOW)], "running"), ([LaunchBegun(HARNESS, NOW), DONE], "ended")],
)
def test_a_launch_that_gave_nothing(entries, want):
    (found,) = lines(*entries)
    assert [each["end"] for each in found["launches"]] == [want]


def test_a_record_of_an_earlier_run():
    (found,) = lines(Kept(Finish(KEY, Outcome.AGENT, "r", passed=False), "b" * 64, "earlier"))
    assert (found["kept_of"], found["launches"], found["passed"]) == ("earlier", [], False)


def test_attempts_are_in_the_order_of_the_pack():
    keys = [AttemptKey(2, 1), AttemptKey(0, 2), AttemptKey(10, 1), AttemptKey(0, 1)]
    found = lines(*(LaunchBegun(LaunchKey(*key, Role.HARNESS, 1), NOW) for key in keys))
    assert [(each["task"], each["attempt"]) for each in found] == sorted(keys)


def test_findings_of_the_isolation_check_are_told_once():
    found = course_fields(whole_history([PROVEN, PROVEN, RunEnded("Completed", "1 of 1", NOW)]))
    assert [each["message"] for each in found["isolation"]] == ["closed: dns"]
    assert found["end"] == {"reason": "Completed", "message": "1 of 1"}
    assert found["evaluatedAt"] == rfc3339(NOW)


def test_a_line_is_read_back():
    entries = [LaunchBegun(HARNESS, NOW), Produced(KEY, production()), DONE]
    (line,) = encode_attempts(facts(*entries))
    assert [decode_attempt(line)] == facts(*entries)


@pytest.mark.parametrize(
    "change",
    [
        {"task": "0"},
        {"attempt": True},
        {"launches": [{}]},
        {"launches": [1]},
        {"launches": None},
        {"record_sha256": 5},
        {"passed": "yes"},
        {"more": 1},
    ],
)
def test_a_line_of_another_form_is_refused(change):
    (line,) = encode_attempts(facts(LaunchBegun(HARNESS, NOW), DONE))
    odd = json.dumps(json.loads(line) | change, sort_keys=True).encode() + b"\n"
    with pytest.raises(ValueError, match="not as the operator writes"):
        decode_attempt(odd)
