import pytest

from securebench.benchmark.resources import REDACTED, Lane, Resource, ResourceBundle
from securebench.run.records.redaction import FEW, redact_verification, task_secrets


def redact(secrets, *, stdout="", stderr="", metadata=None, message=None):
    return redact_verification(secrets, stdout, stderr, metadata or {}, message)


TEXTS = {
    "long secret inside": (["Lake Superior"], "got lake, want Lake Superior",
                           f"got lake, want {REDACTED}"),
    "short secret inside stays": (["B"], "Best: B", "Best: B"),
    "equal after trimming": (["B"], "  B\n", REDACTED),
    "secret is trimmed too": ([" B "], "B", REDACTED),
    "longer first": (["Superior", "Lake Superior"], "Lake Superior", REDACTED),
    "longer first inside": (["Superior", "Lake Superior"], "x Lake Superior y", f"x {REDACTED} y"),
    "every occurrence": (["12345678"], "12345678,12345678", f"{REDACTED},{REDACTED}"),
    "overlapping secrets leave nothing": (
        ["abcdefgh", "efghijklmnop"], "-abcdefghijklmnop-", f"-{REDACTED}-"),
    "touching secrets": (["aaaaaaaa", "bbbbbbbb"], "aaaaaaaabbbbbbbb", REDACTED * 2),
    "a secret that is a word of the marker": (
        ["redacted", "password1"], "x password1 redacted", f"x {REDACTED} {REDACTED}"),
    "seven characters inside stay": (["1234567"], "x1234567", "x1234567"),
    "no secrets": ([], "text", "text"),
    "blank secret is none": ([" "], " ", " "),
}  # fmt: skip


OTHERS = [f"another secret {number}" for number in range(FEW + 1)]
"""So many that they are looked up by their beginnings."""


@pytest.mark.parametrize("others", [[], OTHERS], ids=["few", "many"])
@pytest.mark.parametrize("case", TEXTS)
def test_outputs(case, others):
    secrets, text, want = TEXTS[case]
    result = redact([*secrets, *others], stdout=text, stderr=text.encode())
    assert (result.stdout, result.stderr) in {(want, want.encode()), (want, want)}


def test_many_secrets_with_one_beginning():
    secrets = [f"secret-value-{number:04d}" for number in range(2000)]
    values = [f"is {secret}0, of {secret[:-1]}" for secret in secrets]
    found = redact(secrets, metadata={"values": values}).metadata["values"]
    assert found == [f"is {REDACTED}0, of {secret[:-1]}" for secret in secrets]


METADATA = {
    "whole value": ({"given": "B"}, {"given": REDACTED}),
    "not trimmed": ({"given": " B"}, {"given": " B"}),
    "any depth": ({"a": [{"b": ("B", "C")}]}, {"a": [{"b": [REDACTED, "C"]}]}),
    "keys stay": ({"B": 1}, {"B": 1}),
    "numbers and booleans stay": ({"index": 0, "ok": True, "none": None},
                                  {"index": 0, "ok": True, "none": None}),
    "expected answer of any type": ({"expected_answer": 3}, {"expected_answer": REDACTED}),
    "expected answer deep": ({"a": {"expected_answer": [1]}}, {"a": {"expected_answer": REDACTED}}),
    "framework word stays": ({"phase": "B", "failure_reason": "B"},
                             {"phase": "B", "failure_reason": "B"}),
    "framework word only at the top": ({"a": {"phase": "B"}}, {"a": {"phase": REDACTED}}),
    "argv": ({"command": ["B", "Lake Superior"]}, {"command": [REDACTED, REDACTED]}),
}  # fmt: skip


@pytest.mark.parametrize("case", METADATA)
def test_metadata(case):
    metadata, want = METADATA[case]
    assert redact(["B", "Lake Superior"], metadata=metadata).metadata == want


def test_failure_message():
    assert redact(["B"], message="B").failure_message == REDACTED
    assert redact(["B"], message=" B").failure_message == " B"
    assert redact(["B"]).failure_message is None


def bundle(lane, **values):
    return ResourceBundle(tuple(Resource(k, lane, "json", v) for k, v in values.items()))


SECRETS = {
    "public is none": (Lane.PUBLIC, {"question": "text"}, set()),
    "leaves": (Lane.HIDDEN, {"rubric": {"accepted_answers": ["a", "b"]}}, {"a", "b"}),
    "evaluation inputs": (Lane.EVALUATION_INPUTS, {"tests": {"code": "x = 1"}}, {"x = 1"}),
    "numbers": (Lane.HIDDEN, {"answer": 3, "other": [True]}, set()),
    "blank": (Lane.HIDDEN, {"answer": "  "}, set()),
    "commands are secrets": (
        Lane.EVALUATION_INPUTS,
        {"checker": {"command": ["pytest", "-q"], "workdir": "/app"}}, {"pytest", "-q"}),
    "structural keys": (
        Lane.EVALUATION_INPUTS,
        {"tests": {"source": "a", "type": "b", "workdir": "c", "mount": "d", "path": "e"}}, set()),
    "isolation of tests": (
        Lane.EVALUATION_INPUTS, {"tests": {"code": "x", "isolation": "separate"}}, {"x"}),
    "below a structural key": (Lane.HIDDEN, {"x": {"type": {"a": "secret"}}}, {"secret"}),
    "resource named like a key": (Lane.HIDDEN, {"path": "secret"}, {"secret"}),
    "needed commands": (Lane.EVALUATION_INPUTS, {"needed_commands": ["chroot"]}, set()),
    "policies": (
        Lane.EVALUATION_INPUTS,
        {"candidate_policy": {"allow_paths": ["src"]},
         "tests": {"candidate_policy": {"allow_paths": ["lib"]}}}, set()),
}  # fmt: skip


@pytest.mark.parametrize("case", SECRETS)
def test_task_secrets(case):
    lane, values, want = SECRETS[case]
    assert task_secrets(bundle(lane, **values)) == want
