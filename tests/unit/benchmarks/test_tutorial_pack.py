"""The pack that the tutorial writes, as it stands there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from securebench.audit.subject import load_subject
from securebench.benchmark.families.registry import text_verifier
from securebench.cli.main import app
from securebench.run.api.models import BenchmarkRunSpec
from support.documented import write_files


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    write_files("tutorial.md", tmp_path)
    return tmp_path / "unit-conversion"


def invoke(*words: object) -> list[str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 0, done.stdout
    return done.stdout.splitlines()


def test_lint_has_no_error(pack: Path) -> None:
    lines = invoke("pack", "lint", "--config", pack / "tester.yaml")
    assert lines[-1] == "securebench: pack lint errors=0 warnings=1"


def test_an_audit_finds_nothing(pack: Path, tmp_path: Path) -> None:
    invoke("audit", pack, "--static", "--output-dir", tmp_path / "o")
    report = json.loads((tmp_path / "o/audit-report.json").read_text())
    assert {each["outcome"] for each in report["findings"]} == {"passed", "not_checked"}


def test_its_reference_answers_pass(pack: Path) -> None:
    subject = load_subject(pack / "manifest.yaml", pack / "tasks.jsonl")
    verifier = text_verifier("short_answer")
    assert verifier is not None
    assert len(subject.tasks) == len(subject.answers)
    for task in subject.tasks:
        shown, hidden = task.agent_payload(), task.hidden_payload()
        assert verifier.verify(subject.answers[task.id].text, shown, hidden).passed, task.id


def test_its_run_is_one(pack: Path) -> None:
    run = yaml.safe_load((pack / "run.yaml").read_text())
    assert BenchmarkRunSpec.parse(run["spec"]).harness.type == "command"
