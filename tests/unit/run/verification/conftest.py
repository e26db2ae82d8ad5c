import pytest

from securebench.run import layout
from securebench.run.verification import command
from support.pytest_place import Place


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A candidate's workspace beside the pack's evaluation files, as in a verifier Pod."""
    evaluator, workspace = tmp_path / "evaluator", tmp_path / "app"
    evaluator.mkdir()
    workspace.mkdir()
    monkeypatch.setattr(layout, "EVALUATOR", str(evaluator))
    monkeypatch.setattr(command, "COLLECTED", str(tmp_path / "collected.json"))
    return Place(evaluator, workspace)
