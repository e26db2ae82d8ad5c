from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from securebench.digests import content_digest
from securebench.files import tree_digest
from securebench.grading import verify_text
from securebench.protocol.grading import decode_verdicts


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    (tmp_path / "hidden/public").mkdir(parents=True)
    (tmp_path / "hidden/answer.json").write_text('"B"\n')
    (tmp_path / "hidden/public/choices.json").write_text('["red", "green", "blue"]\n')
    (tmp_path / "candidate.txt").write_text("Answer: B\n")
    return tmp_path


def spec(inputs: Path, **changes: object) -> str:
    return json.dumps(
        {
            "version": changes.pop("version", 1),
            "members": [member(inputs, **changes)],
        }
    )


def member(inputs: Path, **changes: object) -> dict[str, object]:
    candidate, hidden = inputs / "candidate.txt", inputs / "hidden"
    return {
        "name": "0-1-1",
        "family": "multiple_choice",
        "candidate": {
            "path": str(candidate),
            "digest": content_digest(candidate.read_bytes()),
        },
        "hidden": {"path": str(hidden), "digest": tree_digest(hidden)},
        **changes,
    }


def run(inputs: Path, text: str) -> tuple[int, dict[str, object]]:
    log = inputs / "log"
    log.write_text("old " * 2000)
    code = verify_text.main(["--spec", text], log=log, verdicts=inputs, cgroup=inputs / "cgroup")
    content = log.read_bytes()
    assert len(content) <= 4096
    message = json.loads(content)
    assert isinstance(message, dict)
    return code, message


def test_a_right_answer_passes(inputs: Path) -> None:
    code, message = run(inputs, spec(inputs))
    assert code == 0
    assert (message["v"], message["passed"], message["score"]) == (1, True, 1.0)
    metadata = message["metadata"]
    assert isinstance(metadata, dict)
    assert metadata["verifier"] == "multiple_choice"
    assert not {"candidate_answer", "expected_answer"} & set(metadata)


@pytest.mark.parametrize("answer", ["A", "", "{}", "green or red"])
def test_a_wrong_answer_fails_with_a_verdict(inputs: Path, answer: str) -> None:
    (inputs / "candidate.txt").write_text(answer)
    code, message = run(inputs, spec(inputs))
    assert (code, message["passed"], message["score"]) == (0, False, 0.0)


@pytest.mark.parametrize(
    ("changes", "want"),
    [
        pytest.param({"family": "terminal_task"}, "SpecError", id="no text family"),
        pytest.param({"version": 2}, "SpecError", id="another version"),
        pytest.param({"extra": 1}, "SpecError", id="an unknown field"),
        pytest.param({"candidate": {"path": "/x"}}, "SpecError", id="no digest"),
        pytest.param(
            {"candidate": {"path": "/nowhere", "digest": "x"}}, "FileNotFoundError", id="no file"
        ),
    ],
)
def test_no_verdict_without_sound_inputs(
    inputs: Path, changes: dict[str, object], want: str
) -> None:
    assert run(inputs, spec(inputs, **changes)) == (90, {"v": 1, "error": want})


def test_changed_inputs_are_not_judged(inputs: Path) -> None:
    text = spec(inputs)
    (inputs / "candidate.txt").write_text("Answer: C\n")
    assert run(inputs, text) == (90, {"v": 1, "error": "DigestMismatchError"})
    text = spec(inputs)
    (inputs / "hidden/answer.json").write_text('"C"\n')
    assert run(inputs, text) == (90, {"v": 1, "error": "DigestMismatchError"})


def test_a_row_that_cannot_be_judged_names_no_hidden_value(inputs: Path) -> None:
    (inputs / "hidden/answer.json").write_text('{"canary-7f3a": 1}')
    code, message = run(inputs, spec(inputs))
    assert (code, message) == (90, {"v": 1, "error": "VerifierConfigurationError"})


def test_broken_json_in_the_hidden_lane_gives_no_verdict(inputs: Path) -> None:
    (inputs / "hidden/answer.json").write_text("{")
    assert run(inputs, spec(inputs)) == (90, {"v": 1, "error": "JSONDecodeError"})


@pytest.mark.parametrize("members", [1, 2])
def test_the_message_says_what_the_container_took(inputs: Path, members: int) -> None:
    (inputs / "cgroup").mkdir()
    (inputs / "cgroup/memory.peak").write_text("5000\n")
    names = [member(inputs, name=str(number)) for number in range(members)]
    code, message = run(inputs, json.dumps({"version": 1, "members": names}))
    assert (code, message["memory_peak_bytes"]) == (0, 5000)
    assert run(inputs, "{}")[1] == {"v": 1, "error": "SpecError", "memory_peak_bytes": 5000}


def test_metadata_is_cut_and_the_verdict_is_not() -> None:
    facts = {f"fact {number}": "\u20ac" * number * 100 for number in range(20)}
    message = verify_text.verdict_message(passed=True, score=1.0, metadata=facts)
    assert len(message) <= 4096
    kept = json.loads(message)
    assert (kept["passed"], kept["score"]) == (True, 1.0)
    assert kept["metadata"]["metadata_truncated"] is True
    assert kept["metadata"]["fact 1"] == facts["fact 1"]
    assert "fact 19" not in kept["metadata"]


def test_a_name_that_alone_is_too_long_is_cut_too() -> None:
    message = verify_text.verdict_message(passed=False, score=0.0, metadata={"x" * 5000: 1})
    assert json.loads(message)["metadata"] == {"metadata_truncated": True}


def test_a_lane_without_public_values_still_judges(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "accepted_answers.json").write_text('["green"]')
    (tmp_path / "candidate.txt").write_text("It is green.")
    code, message = run(tmp_path, spec(tmp_path, family="short_answer"))
    assert (code, message["passed"]) == (0, True)


def batch(inputs: Path, *members: dict[str, object]) -> tuple[dict[str, object], dict[str, object]]:
    """Judge a batch; return the termination message and each member's message."""
    code, message = run(inputs, json.dumps({"version": 1, "members": list(members)}))
    assert code == 0
    content = (inputs / "verdicts.json").read_bytes()
    assert message == {"v": 1, "verdicts": content_digest(content)}
    verdicts = {name: json.loads(text) for name, text in decode_verdicts(content).items()}
    return message, verdicts


def bad(family: str) -> Callable[[str, object, object], object]:
    """Return a scorer that does to its process what a hostile text might."""

    def verify(text: str, public: object, hidden: object) -> object:
        if family == "memory":
            return bytearray(1 << 30)
        if family == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if family == "file":
            Path("verdicts.json").write_text("forged")
        if family == "recursion":
            return verify(text, public, hidden)
        while family == "time":
            pass
        raise ValueError("canary-7f3a")

    return verify


ERRORS = {
    "memory": "MemoryError",
    "crash": "ChildProcessError",
    "time": "TimeoutError",
    "recursion": "RecursionError",
    "file": "OSError",
    "words": "ValueError",
}


@pytest.mark.parametrize("what", ERRORS)
def test_one_member_changes_no_other(
    inputs: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    real = verify_text.text_verifier
    monkeypatch.setattr(verify_text, "MEMBER_SECONDS", 0.5)
    monkeypatch.chdir(inputs)
    monkeypatch.setattr(
        verify_text,
        "text_verifier",
        lambda name: SimpleNamespace(verify=bad(name)) if name in ERRORS else real(name),
    )
    members = [
        member(inputs, name="first"),
        member(inputs, name="bad", family=what),
        member(inputs, name="last"),
    ]
    _, verdicts = batch(inputs, *members)
    assert verdicts["bad"] == {"v": 1, "error": ERRORS[what]}
    assert verdicts["first"] == verdicts["last"]
    assert verdicts["last"]["passed"] is True


def test_a_member_says_in_a_batch_what_it_says_alone(inputs: Path) -> None:
    _, alone = run(inputs, spec(inputs))
    _, verdicts = batch(inputs, member(inputs, name="a"), member(inputs, name="b"))
    assert verdicts == {"a": alone, "b": alone}


def test_a_member_whose_input_was_changed_is_not_judged(inputs: Path) -> None:
    changed = member(inputs, name="changed", hidden={"path": str(inputs), "digest": "sha256:0"})
    _, verdicts = batch(inputs, changed, member(inputs, name="other"))
    assert verdicts["changed"] == {"v": 1, "error": "DigestMismatchError"}
    assert verdicts["other"]["passed"] is True


@pytest.mark.parametrize("members", [[], {}, ["a"], None])
def test_no_batch_without_members(inputs: Path, members: object) -> None:
    text = json.dumps({"version": 1, "members": members})
    assert run(inputs, text) == (90, {"v": 1, "error": "SpecError"})


def test_two_members_have_two_names(inputs: Path) -> None:
    text = json.dumps({"version": 1, "members": [member(inputs), member(inputs)]})
    assert run(inputs, text) == (90, {"v": 1, "error": "SpecError"})
