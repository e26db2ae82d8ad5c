from __future__ import annotations

import json
from pathlib import Path

import pytest

from securebench.core.digests import content_digest
from securebench.files.tree_digest import tree_digest
from securebench.grading import verify_text


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    (tmp_path / "hidden/public").mkdir(parents=True)
    (tmp_path / "hidden/answer.json").write_text('"B"\n')
    (tmp_path / "hidden/public/choices.json").write_text('["red", "green", "blue"]\n')
    (tmp_path / "candidate.txt").write_text("Answer: B\n")
    return tmp_path


def spec(inputs: Path, **changes: object) -> str:
    candidate, hidden = inputs / "candidate.txt", inputs / "hidden"
    return json.dumps(
        {
            "version": 1,
            "family": "multiple_choice",
            "candidate": {
                "path": str(candidate),
                "digest": content_digest(candidate.read_bytes()),
            },
            "hidden": {"path": str(hidden), "digest": tree_digest(hidden)},
            **changes,
        }
    )


def run(inputs: Path, text: str) -> tuple[int, dict[str, object]]:
    log = inputs / "log"
    log.write_text("old " * 2000)
    code = verify_text.main(["--spec", text], log=log)
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
