"""F5: odd texts are refused, and hidden texts stay hidden."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest

from securebench.protocol.candidate import CandidateBounds, Extraction, Problem
from securebench.run.records.redaction import redact_verification
from support.courier import Output, SealingPlaces, seal
from support.supervise_build import Edit
from threats.honest import REPO_DEFAULTS, REPO_INPUT, REPO_ROW, assert_passed
from threats.kit.arena import Arena
from threats.kit.batch import Batch
from threats.kit.canaries import canary, hits

SECRETS = {name: canary() for name in ("accepted", "rejected", "first line", "second line")}
RUBRIC = {
    "rubric": {
        "accepted_answers": [f"the answer is {SECRETS['accepted']}"],
        "rejected_answers": [SECRETS["rejected"]],
    },
    "reference_answer": f"{SECRETS['first line']}\n{SECRETS['second line']}",
}
FREE = Batch("f5-free", "free_response")
EXPLAINED = FREE.task("explained", candidate="The answer is unknown.\n", grading=RUBRIC)
RIGHT = FREE.task(
    "right", candidate="forty two", grading={"rubric": {"accepted_answers": ["forty two"]}}
)


def published(arena: Arena) -> bytes:
    """Return everything about the run that others than its tester may see."""
    arena.run(FREE)
    release = arena.place(FREE).release
    parts = [
        release.kubectl("get", "benchmarkrun", FREE.name, "-o", "yaml"),
        release.kubectl("describe", "benchmarkrun", FREE.name),
        release.kubectl("get", "events", "-o", "json"),
        release.kubectl("logs", "securebench-0", "--all-containers"),
    ]
    return "\n".join(parts).encode() + arena.file(EXPLAINED, "summary.json")


@pytest.mark.short
@pytest.mark.trials(EXPLAINED)
def test_a_093_attack(arena: Arena) -> None:
    record = arena.record(EXPLAINED)
    assert record["passed"] is False
    restricted = json.dumps(record).encode()
    for name, secret in SECRETS.items():
        assert hits(published(arena), secret) == [], name
        assert hits(restricted, secret) == [], name


@pytest.mark.trials(EXPLAINED)
def test_a_093_attack_by_an_explanation(arena: Arena) -> None:
    """A scorer that quoted the rubric would be redacted."""
    del arena
    quoted = {"explanation": f"wanted {RUBRIC['rubric']}", "parts": [SECRETS["rejected"]]}
    secrets = [*RUBRIC["rubric"]["accepted_answers"], *RUBRIC["rubric"]["rejected_answers"]]
    redacted = redact_verification(secrets, str(quoted), str(quoted), quoted, str(quoted))
    for name in ("accepted", "rejected"):
        assert hits(repr(quoted).encode(), SECRETS[name])
        assert hits(repr(redacted).encode(), SECRETS[name]) == []


@pytest.mark.trials(EXPLAINED)
def test_a_093_twin(arena: Arena) -> None:
    """The search finds the canaries where the row lies in the open."""
    pack = arena.place(FREE).release.kubectl("get", "configmap", f"{FREE.name}-pack", "-o", "json")
    data = b"".join(map(base64.b64decode, json.loads(pack)["binaryData"].values()))
    assert all(hits(data, secret) for secret in SECRETS.values())


@pytest.mark.short
@pytest.mark.trials(RIGHT)
def test_a_093_honest(arena: Arena) -> None:
    assert_passed(arena, RIGHT)


ODD = {
    "nul": (b"4\0\n", "candidate_invalid"),
    "not-utf-8": (b"\xff4\n", "candidate_invalid"),
    "half-a-character": (b"4\xe2\x82", "candidate_invalid"),
    "surrogate": (b"\xed\xa0\x804", "candidate_invalid"),
    "directions": ("4\u202e2\u2066\u2069\n".encode(), None),
    "lines": ("4\u20282\u2029\x85\x0b\x1b[2J\r\n".encode(), None),
    "ten-megabytes": (b"42 " * 3_500_000, "candidate_too_large"),
}
GRADING = {"accepted_answers": ["42"]}
FAMILIES = {
    "text": (Batch("f5-odd-text", "short_answer"), {"grading": GRADING}),
    "choice": (
        Batch("f5-odd-choice", "multiple_choice"),
        {"given": {"choices": ["3", "4"]}, "grading": {"answer": "A"}},
    ),
    "code": (
        Batch("f5-odd-code", "code_completion"),
        {"grading": {"tests": {"source": "inline", "code": "assert odd() == 1\n"}}},
    ),
    "repo": (
        Batch("f5-odd-repo", "repo_patch", defaults=REPO_DEFAULTS),
        {"given": REPO_INPUT, "grading": REPO_ROW["eval"]},
    ),
}


def agent(content: bytes) -> str:
    unit = content[:3] if len(content) > 10_000 else content
    return f"import sys\nsys.stdout.buffer.write({unit!r} * {len(content) // len(unit)})\n"


TRIALS = {
    f"{family} {name}": (batch.task(name, agent=agent(content), **row), content, reason)
    for family, (batch, row) in FAMILIES.items()
    for name, (content, reason) in ODD.items()
}
SHORT = ("text nul", "text directions")


@pytest.mark.parametrize(
    ("trial", "content", "reason"),
    [
        pytest.param(
            *case,
            marks=[pytest.mark.trials(case[0]), *([pytest.mark.short] if name in SHORT else [])],
            id=name,
        )
        for name, case in TRIALS.items()
    ],
)
def test_a_099_attack(arena: Arena, trial, content, reason) -> None:
    record = arena.record(trial)
    assert record["passed"] is False
    assert record["outcome"] in ("agent", "scored")
    if reason is not None and not (reason == "candidate_too_large" and "repo" in trial.batch.name):
        assert (record["outcome"], record["failure_reason"]) == ("agent", reason)
        assert record["candidate_text"] is None
    elif reason is None and "repo" not in trial.batch.name:
        assert record["candidate_text"] == content.decode()
    lines = arena.file(trial, "candidates.jsonl").split(b"\n")
    assert lines.pop() == b""
    assert {json.loads(line)["run_id"] for line in lines} == {record["run_id"]}


@pytest.mark.short
@pytest.mark.trials(TRIALS["text nul"][0])
def test_a_099_attack_on_the_operator(arena: Arena) -> None:
    batch = TRIALS["text nul"][0].batch
    run = arena.run(batch)
    assert run["status"]["tasks"]["total"] == run["status"]["tasks"]["done"]
    release = arena.place(batch).release
    pod = release.get("pod", "securebench-0")
    (operator,) = pod["status"]["containerStatuses"]
    assert (operator["ready"], operator["restartCount"]) == (True, 0)


LIMITS = CandidateBounds()
PRINTED = Extraction("stdout", "text")


def sealed(folder: Path, content: bytes, *edits: Edit) -> Problem | None:
    folder.mkdir()
    return seal(
        SealingPlaces(folder, folder, folder),
        PRINTED,
        LIMITS,
        [],
        Output(content, b"", len(content)),
        *edits,
    ).problem


BAD = [name for name, (_, reason) in ODD.items() if reason == "candidate_invalid"]


@pytest.mark.parametrize("name", BAD)
def test_a_099_twin(tmp_path, name):
    """Without its check the courier seals what no record can hold as it is."""
    content, reason = ODD[name]
    assert sealed(tmp_path / "a", content) == Problem(reason)
    without_check = Edit("courier/seal.go", "return check.end(name)", "_ = name\n\t\treturn nil")
    assert sealed(tmp_path / "b", content, without_check) is None
