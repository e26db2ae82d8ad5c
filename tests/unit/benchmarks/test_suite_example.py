"""The repository of suites in ``benchmarks/suites``: its packs, its harnesses, its gates."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from securebench.audit.subject import load_subject
from securebench.benchmark.families.registry import text_verifier
from securebench.stats.paired import mcnemar_exact
from securebench.suite.api import BenchmarkSuiteSpec
from securebench.suite.planning import cells

SUITES = Path(__file__).parents[3] / "benchmarks" / "suites"
RIGHT = {"careful": 8, "hasty": 5}
PACKS = sorted(path.parent.name for path in (SUITES / "packs").glob("*/manifest.yaml"))


def nightly() -> BenchmarkSuiteSpec:
    """Return the suite."""
    suite = yaml.safe_load((SUITES / "nightly" / "suite.yaml").read_text(encoding="utf-8"))
    return BenchmarkSuiteSpec.parse(suite["spec"])


def test_its_packs_are_those_that_are_there() -> None:
    assert [pack.name for pack in nightly().matrix.packs] == PACKS


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize("harness", RIGHT)
def test_a_harness_gets_these_right(pack: str, harness: str, tmp_path: Path) -> None:
    folder = SUITES / "packs" / pack
    subject = load_subject(folder / "manifest.yaml", folder / "tasks.jsonl")
    (command,) = (
        each.harness.config["command"]
        for each in nightly().matrix.harnesses
        if each.name == harness
    )
    assert isinstance(command, list)
    verifier = text_verifier(subject.tasks[0].task_type)
    assert verifier is not None
    right = 0
    for task in subject.tasks:
        (tmp_path / "task.json").write_text(json.dumps(task.agent_payload()), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, *command[1:]], cwd=tmp_path, capture_output=True, check=True, text=True
        )
        right += verifier.verify(done.stdout, task.agent_payload(), task.hidden_payload()).passed
    assert right == RIGHT[harness]


def test_its_packs_are_large_enough_for_its_gates() -> None:
    spec = nightly()
    assert spec.gates is not None
    assert spec.gates.not_worse is not None
    level, number = float(spec.gates.not_worse.level), len(cells(spec))
    for pack in PACKS:
        tasks = (SUITES / "packs" / pack / "tasks.jsonl").read_text(encoding="utf-8").splitlines()
        assert number * mcnemar_exact(0, len(tasks)) <= level, f"{pack} can show no loss"
