"""What a script leaves as its reward, and what becomes of it."""

import base64
import json
from dataclasses import replace

import pytest

from securebench.benchmark.families.base import RewardRequest, WantedArtifact
from securebench.protocol.grading import REWARD_FILE, Grading
from securebench.protocol.messages import Code
from securebench.run.observe.stage import Ended, Interrupted
from securebench.run.observe.termination import BadMessageError
from securebench.run.verification.reward import (
    MOST_BYTES,
    REWARD_JSON,
    REWARD_TEXT,
    RewardError,
    RewardVerification,
    read_reward,
)
from support.build import VERIFIER, ended, pod_status, view_of
from support.left import LeftIn
from support.records import VERIFICATION

EMPTY, MISSING, INVALID, AMBIGUOUS = (
    f"reward_{word}" for word in ("empty", "missing", "invalid", "ambiguous")
)

TEXTS = {
    "0": 0.0,
    "1\n": 1.0,
    " \t0.37 \r\n": 0.37,
    "-1": -1.0,
    "+42": 42.0,
    "1e-3": 0.001,
    "1_0": 10.0,
    ".5": 0.5,
    "5e-324": 5e-324,
    "\u0661": 1.0,
    "": EMPTY,
    " \n": INVALID,
    "one": INVALID,
    "1 2": INVALID,
    "1\n2\n": INVALID,
    "1,5": INVALID,
    "1\0": INVALID,
    "\ufeff1": INVALID,
    "0x10": INVALID,
    "true": INVALID,
    "[1]": INVALID,
    "nan": INVALID,
    "-NaN": INVALID,
    "inf": INVALID,
    "-Infinity": INVALID,
    "1e309": INVALID,
    "9" * 400: INVALID,
}

OBJECTS = {
    '{"reward": 0.5}': ({"reward": 0.5}, 0.5),
    '{"accuracy": 1}': ({"accuracy": 1.0}, 1.0),
    '{"reward": -2, "speed": 7.5}': ({"reward": -2.0, "speed": 7.5}, -2.0),
    '{"speed": 1, "reward": 0}': ({"speed": 1.0, "reward": 0.0}, 0.0),
    '{"passed": true}': ({"passed": 1.0}, 1.0),
    '{"reward": 0, "reward": 1}': ({"reward": 1.0}, 1.0),
    ' {"reward": 1e-3}\n': ({"reward": 0.001}, 0.001),
    '{"": 3}': ({"": 3.0}, 3.0),
    "": EMPTY,
    "{}": MISSING,
    '{"a": 1, "b": 2}': AMBIGUOUS,
    '{"Reward": 1, "b": 2}': AMBIGUOUS,
    " ": INVALID,
    "0.5": INVALID,
    "true": INVALID,
    "null": INVALID,
    "[1]": INVALID,
    '"1"': INVALID,
    '{"reward": "1"}': INVALID,
    '{"reward": null}': INVALID,
    '{"reward": [1]}': INVALID,
    '{"reward": {"a": 1}}': INVALID,
    '{"reward": 1} {}': INVALID,
    '{"reward": 1,}': INVALID,
    "{'reward': 1}": INVALID,
    '{"reward": NaN}': INVALID,
    '{"reward": 1, "other": Infinity}': INVALID,
    '{"reward": 1e309}': INVALID,
    '{"reward": 1' + "0" * 400 + "}": INVALID,
    '{"reward": ' + "1" * 5000 + "}": INVALID,
    '{"\\ud800": 1}': INVALID,
    '\ufeff{"reward": 1}': INVALID,
    "[" * 30_000: INVALID,
    '{"a":' * 10_000: INVALID,
}


def outcome(name, content):
    try:
        found = read_reward(name, content)
    except RewardError as error:
        return error.reason
    return dict(found.rewards), found.score


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: repr(text[:20]))
def test_a_text_is_one_number(text):
    want = TEXTS[text]
    assert outcome(REWARD_TEXT, text.encode()) == (
        want if isinstance(want, str) else ({"reward": want}, want)
    )


@pytest.mark.parametrize("text", OBJECTS, ids=lambda text: repr(text[:30]))
def test_an_object_has_numbers_by_name(text):
    assert outcome(REWARD_JSON, text.encode()) == OBJECTS[text]


@pytest.mark.parametrize("name", [REWARD_TEXT, REWARD_JSON])
@pytest.mark.parametrize("content", [b"\xff1", b"1\xff", "1".encode("utf-16")])
def test_what_is_not_utf_8_is_no_reward(name, content):
    assert outcome(name, content) == INVALID


PLAIN = RewardVerification(RewardRequest(script="test.sh", threshold=0.8), changes_root=False)
COLLECTED = json.dumps({"v": 1, "stdout": {}, "stderr": {}, "kernel": "6.1"})
KNOWN = replace(VERIFICATION, passed=False, metadata={})


def report(name=REWARD_TEXT, content=b"", problem="", message="", **more):
    text = base64.b64encode(content).decode()
    fields = {"v": 1, "name": name, "problem": problem, "message": message, "content": text}
    return json.dumps({**fields, **more}).encode()


def verdict(folder, left, code=0, message=None, verification=PLAIN):
    if left is not None:
        (folder / REWARD_FILE).write_bytes(left)
    said = json.dumps({"v": 1, "phase": "tests", **(message or {})})
    status = pod_status("Failed" if code else "Succeeded", ended("check", code, message=said))
    known = LeftIn(folder, code, {"courier": COLLECTED}, view=view_of(VERIFIER, status))
    return verification.verdict(KNOWN, known)


LEFT = {
    "a reward": (report(content=b"0.9"), 0, (True, 0.9, "")),
    "a reward at the threshold": (report(content=b"0.8"), 0, (True, 0.8, "")),
    "a reward below the threshold": (report(content=b"0.5"), 0, (False, 0.5, "")),
    "the exit code says nothing": (report(content=b"1"), 1, (True, 1.0, "")),
    "a reward before the time limit": (
        report(content=b"1"),
        124,
        (False, None, "verifier_timeout"),
    ),
    "no file": (report(problem="candidate_missing"), 0, (False, None, MISSING)),
    "a link": (report(problem="candidate_invalid", message="a link"), 0, (False, None, INVALID)),
    "a gigabyte": (report(problem="candidate_too_large", message="m"), 0, (False, None, INVALID)),
    "no number": (report(content=b"yes"), 0, (False, None, INVALID)),
    "a script that is not there": (None, 95, (False, None, "verifier_configuration")),
}

MAY_NOT = "user 1000 of the verifier's container may not write /out: let the verifier run as root"


@pytest.mark.parametrize("name", LEFT)
def test_a_reward_becomes_a_score(name, tmp_path):
    left, code, want = LEFT[name]
    found = verdict(tmp_path, left, code)
    assert (found.passed, found.score, found.problem) == want
    assert bool(found.message) == bool(found.problem)


BLAMED = {
    "want of rights": (95, "rights", Ended(95)),
    "a damaged archive": (90, "candidate", "suspect"),
    "a disk": (90, "", "lost"),
}


@pytest.mark.parametrize("name", BLAMED)
def test_only_what_the_candidate_causes_is_suspect(name, tmp_path):
    code, phase, want = BLAMED[name]
    message = {"phase": phase, "error": MAY_NOT}
    status = pod_status("Failed", ended("check", code, message=json.dumps({"v": 1, **message})))
    view = view_of(VERIFIER, status)
    end = PLAIN.ended(view, view.containers["check"].terminated)
    if isinstance(end, Interrupted):
        end = "suspect" if end.is_suspect else "lost"
    assert end == want
    if code == Code.UNFIT:
        found = verdict(tmp_path, None, code, message)
        assert (found.problem, found.message) == ("verifier_configuration", f"rights: {MAY_NOT}")


def test_all_rewards_are_in_the_record(tmp_path):
    content = b'{"reward": 1, "speed": -3}'
    found = verdict(tmp_path, report(REWARD_JSON, content))
    assert found.metadata == {"rewards": {"reward": 1.0, "speed": -3.0}}


def test_tests_that_lost_a_process_to_the_memory_limit_and_left_nothing_are_not_the_verifiers(
    tmp_path,
):
    missing = report(problem="candidate_missing")
    found = verdict(tmp_path, missing, message={"memory_kills": 1})
    assert (found.problem, found.score) == ("oom_killed", None)
    assert verdict(tmp_path, report(content=b"0"), message={"memory_kills": 1}).score == 0


BROKEN = {
    "no report": b"",
    "no object": b"[]",
    "another version": report(v=2),
    "another file": report("other.txt", b"1"),
    "no base64": report(content=b"1")[:-2] + b'!"}',
    "too long": report(content=b"1" * (MOST_BYTES + 1)),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_report_that_supervise_never_writes_is_no_verdict(name, tmp_path):
    with pytest.raises(BadMessageError):
        verdict(tmp_path, BROKEN[name])


def test_a_report_that_is_not_there_is_no_verdict(tmp_path):
    with pytest.raises(FileNotFoundError):
        verdict(tmp_path, None)


def test_the_label_says_how_near_the_candidate_came():
    assert PLAIN.grading(KNOWN) is Grading.REWARD_FILE
    assert replace(PLAIN, changes_root=True).grading(KNOWN) is Grading.REWARD_FILE_ROOT
    separate = replace(PLAIN.request, artifacts=(WantedArtifact("/out"),))
    apart = replace(PLAIN, changes_root=True, request=separate)
    assert apart.grading(KNOWN) is Grading.REWARD_FILE_ARTIFACTS
    own = replace(separate, environment={"image": "judge:1"})
    assert [each.runs_in_task_image for each in (apart, replace(apart, request=own))] == [
        True,
        False,
    ]
