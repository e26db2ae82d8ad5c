"""A new kind of candidate: a row of one table, here for as long as the test."""

from dataclasses import replace
from pathlib import Path

import pytest

from securebench.agents.harness import extraction_for, task_prompt
from securebench.agents.registry import harness_config
from securebench.benchmark.families.registry import FAMILIES
from securebench.protocol.candidate import KINDS, CandidateBounds, CandidateForm, Problem
from support.courier import SealingPlaces, seal

BOUNDS = CandidateBounds(text_bytes=1, patch_bytes=20)
NOTEBOOK = CandidateForm(
    path="answer.ipynb", hand_in="Leave the notebook in {path}.", bound="patch_bytes"
)


@pytest.fixture
def family(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a family whose candidates are notebooks."""
    monkeypatch.setitem(KINDS, "notebook", NOTEBOOK)
    known = replace(FAMILIES["short_answer"], name="notebooks", candidate_kind="notebook")
    monkeypatch.setitem(FAMILIES, "notebooks", known)
    return "notebooks"


@pytest.fixture
def places(tmp_path: Path) -> SealingPlaces:
    made = SealingPlaces(tmp_path / "workspace", tmp_path / "candidate", tmp_path / "output")
    for place in made:
        place.mkdir()
    return made


@pytest.mark.parametrize(("size", "problem"), [(20, None), (21, Problem.TOO_LARGE)])
def test_a_new_kind_is_asked_for_and_sealed(
    family: str, places: SealingPlaces, size: int, problem: Problem | None
) -> None:
    harness = harness_config("codex", {"model": "m"})
    extraction = extraction_for(family, harness)
    (places.workspace / "answer.ipynb").write_text("x" * size)

    sealed = seal(places, extraction, BOUNDS, (), None)

    assert "Leave the notebook in answer.ipynb." in task_prompt(extraction, "/w", "task.json")
    assert (extraction.kind, sealed.problem) == ("notebook", problem)
    assert problem is not None or (places.candidate / "candidate.txt").stat().st_size == size


def test_a_command_hands_a_new_kind_in_on_stdout(family: str) -> None:
    extraction = extraction_for(family, harness_config("command", {"command": "x"}))

    assert (extraction.mode, extraction.kind, extraction.path) == ("stdout", "notebook", None)
