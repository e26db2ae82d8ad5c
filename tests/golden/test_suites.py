"""The runs of suites compared with their golden files; ``SECUREBENCH_UPDATE_GOLDEN=1`` writes them.

A changed name in a diff is a cell that runs again for everybody who upgrades.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from securebench.digests import content_digest
from securebench.run.plan.model import TaskLimits
from securebench.run.plan.score_fields import ScoreSettings
from securebench.suite.api import BenchmarkSuiteSpec, Unavailable
from securebench.suite.planning import (
    PackContent,
    SuiteIdentity,
    Trigger,
    cells,
    plan_runs,
    run_manifest,
)

FOLDER = Path(__file__).parent / "suites"
SUITES = sorted(path for path in FOLDER.glob("*.yaml") if ".runs" not in path.name)
INSTALLATION = ScoreSettings(
    TaskLimits(1, 2, 3, 4, 5, 6), {"codex": {"0.98.0": "codex:0.98.0", "latest": "0.98.0"}}
)


def rendered(path: Path) -> str:
    spec = BenchmarkSuiteSpec.parse(yaml.safe_load(path.read_text(encoding="utf-8")))
    packs: dict[str, PackContent | Unavailable] = {
        pack.name: PackContent(content_digest(pack.name.encode()))
        for pack in spec.matrix.packs
        if pack.name != "lost"
    }
    suite = SuiteIdentity(path.stem, "11111111-0000-4000-8000-000000000000", "queue")
    packs.setdefault("lost", Unavailable("pack 'lost': there is no such folder"))
    plan = plan_runs(suite, spec, cells(spec), packs, INSTALLATION, Trigger())
    documents = [*(run_manifest(suite, run) for run in plan.runs), {"invalid": plan.invalid}]
    return yaml.safe_dump_all(documents, sort_keys=False, width=100)


@pytest.mark.parametrize("path", SUITES, ids=lambda path: path.stem)
def test_runs_are_as_reviewed(path: Path) -> None:
    golden = path.with_suffix(".runs.yaml")
    found = rendered(path)
    if os.environ.get("SECUREBENCH_UPDATE_GOLDEN"):
        golden.write_text(found, encoding="utf-8")
    assert golden.read_text(encoding="utf-8") == found
