"""F1: what messages say of a hidden value that is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import jsonschema
import pytest

from securebench.benchmark.families.registry import FAMILIES
from securebench.benchmark.files.load import load_tasks
from securebench.errors import ConfigErrors
from support.release import Raw, condition
from threats import honest
from threats.kit.arena import Arena
from threats.kit.batch import IMAGE, Batch
from threats.kit.canaries import canary, hits
from threats.kit.published import published

HIDDEN = canary()
BROKEN: Mapping[str, tuple[str, Raw]] = {
    "accepted_answers": ("short_answer", {"accepted_answers": {"right": HIDDEN}}),
    "tolerance": ("short_answer", {"accepted_answers": ["4"], "tolerance": HIDDEN}),
    "answer": ("multiple_choice", {"answer": {"right": HIDDEN}}),
    "rubric": ("free_response", {"rubric": [HIDDEN]}),
    "reference_answer": ("free_response", {"rubric": "x", "reference_answer": [HIDDEN]}),
    "tests": ("code_completion", {"tests": HIDDEN}),
    "checker": ("terminal_task", {"checker": {"command": {"run": HIDDEN}}}),
    "gold_patch": ("repo_patch", {"tests": {"source": HIDDEN}, "gold_patch": [HIDDEN]}),
}
INPUT = {"question": "?", "prompt": "?", "instructions": "?", "choices": ["3", "4"], "repo": "x/y"}


def broken_row(field: str) -> str:
    family, grading = BROKEN[field]
    known = {item.name for item in FAMILIES[family].input.fields}
    given = {key: value for key, value in INPUT.items() if key in known}
    if family == "repo_patch":
        given["base_commit"] = "0" * 40
    return json.dumps({"id": field, "family": family, "input": given, "eval": grading})


CUT = f'{{"id": "cut", "family": "short_answer", "eval": {{"accepted_answers": ["{HIDDEN}"'
ROWS = "".join(f"{line}\n" for line in (*map(broken_row, BROKEN), CUT)).encode()
BROKEN_PACK = Batch("f1-broken", "short_answer", files={"tasks.jsonl": ROWS}, ended="False").task(
    "broken"
)
LATE = Batch("f1-late", "code_completion", ended="False")
LATE_TESTS = LATE.task(
    "late",
    candidate=honest.RIGHT_CODE,
    grading={"tests": {"source": "inline", "code": f"assert ({HIDDEN!r}\n"}},
)


def messages(folder: Path) -> Sequence[str]:
    """Return what loading the broken pack says."""
    (folder / "manifest.yaml").write_text(
        f"id: x\nversion: 1\ndefaults: {{environment: {{image: {IMAGE}}}}}\n"
    )
    (folder / "tasks.jsonl").write_bytes(ROWS)
    with pytest.raises(ConfigErrors) as caught:
        load_tasks(folder / "manifest.yaml", folder / "tasks.jsonl")
    return [str(error) for error in caught.value.errors]


@pytest.mark.trials(BROKEN_PACK, LATE_TESTS)
def test_a_017_attack(arena: Arena) -> None:
    release = arena.place(LATE).release

    assert condition(arena.run(BROKEN_PACK.batch))["reason"] == "PackInvalid"
    late = arena.record(LATE_TESTS)
    assert (late["outcome"], late.get("passed")) == ("verifier", None), late["failure_message"]
    for batch in (BROKEN_PACK.batch, LATE):
        assert hits(published(release, batch.name), HIDDEN) == []


@pytest.mark.short
def test_a_017_attack_of_the_loader(tmp_path: Path) -> None:
    assert [line for line in messages(tmp_path) if hits(line.encode(), HIDDEN)] == []


def test_a_017_twin() -> None:
    for field, (family, grading) in BROKEN.items():
        validator = jsonschema.Draft202012Validator(FAMILIES[family].eval.schema)
        said = "\n".join(error.message for error in validator.iter_errors(grading))
        assert hits(said.encode(), HIDDEN), field


@pytest.mark.short
def test_a_017_honest(tmp_path: Path) -> None:
    said = messages(tmp_path)

    for line, field in enumerate(BROKEN, start=1):
        assert any(f"tasks.jsonl:{line}: " in item and field in item for item in said), field
