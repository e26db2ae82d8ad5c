"""``kubectl apply -k`` for every pack of this repository, and what kubectl then shows."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from support.release import ROOT, Release, condition
from support.waiting import KUBECTL_TIMEOUT

pytestmark = pytest.mark.e2e

FOR_PROVIDERS = ("swe-bench-verified-codex-smoke",)
"""Need the image of an agent and a model provider: see `make run-agents`."""
PACKS = [
    path.parent
    for path in sorted((ROOT / "benchmarks").glob("*/kustomization.yaml"))
    if path.parent.name not in FOR_PROVIDERS
]
ROWS = 2
"""Of each pack: its harness solves one of them. `make packs` takes whole packs."""
CHOSEN = {
    "humaneval-mini": ["humaneval-0", "humaneval-2"],
    "real-bugs-mini": ["markupsafe-striptags-space", "pathspec-match-file-none"],
    "terminal-bench-first10": ["repair-xmltodict", "request-id-regex"],
}
"""Of packs whose harness solves none of the first rows."""
COLUMNS = ["NAME", "SUCCEEDED", "REASON", "DONE", "TOTAL", "PASSED", "INFRA", "AGE"]


@pytest.fixture(scope="module")
def overlays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an overlay for each pack, which takes a few of its rows."""
    root = tmp_path_factory.mktemp("overlays")
    for pack in PACKS:
        chosen = {"include": CHOSEN[pack.name]} if pack.name in CHOSEN else {"limit": ROWS}
        selected = [{"op": "add", "path": "/spec/taskSelector", "value": chosen}]
        body = {
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [os.path.relpath(pack, root.resolve() / pack.name)],
            "patches": [{"target": {"kind": "BenchmarkRun"}, "patch": json.dumps(selected)}],
        }
        (root / pack.name).mkdir()
        (root / pack.name / "kustomization.yaml").write_text(yaml.safe_dump(body), "utf-8")
    return root


@pytest.fixture(scope="module")
def applied(shared: Release, overlays: Path) -> Release:
    """The shared release with all packs applied."""
    for pack in PACKS:
        shared.kubectl("apply", "-k", str(overlays / pack.name))
    return shared


@pytest.mark.parametrize("pack", PACKS, ids=lambda pack: pack.name)
def test_a_pack_is_applied_and_ends_with_a_score(pack: Path, applied: Release) -> None:
    applied.kubectl("wait", "--for=condition=Complete", f"brun/{pack.name}", KUBECTL_TIMEOUT)
    rows = min(ROWS, len((pack / "tasks.jsonl").read_text(encoding="utf-8").splitlines()))
    run = applied.get("brun", pack.name)
    passed = run["status"]["score"]["passed"]
    header, line = (row.split() for row in applied.kubectl("get", "brun", pack.name).splitlines())
    assert header == COLUMNS
    assert line[:7] == [pack.name, "True", "Completed", str(rows), str(rows), str(passed), "0"]
    assert passed > 0, "the pack's own harness answers nothing right"
    assert len(applied.records(pack.name)) == rows
    assert condition(run, "ResultsSealed")["status"] == "True"


@pytest.mark.parametrize("pack", PACKS, ids=lambda pack: pack.name)
def test_applying_a_pack_again_changes_nothing(
    pack: Path, applied: Release, overlays: Path
) -> None:
    before = applied.get("brun", pack.name)["metadata"]
    applied.kubectl("apply", "-k", str(overlays / pack.name))
    after = applied.get("brun", pack.name)["metadata"]
    assert (after["uid"], after["generation"]) == (before["uid"], before["generation"])


def test_the_wide_columns_name_pack_harness_and_results(applied: Release) -> None:
    name = "multiple-choice-smoke"
    applied.wait_ended(name)
    run = json.loads(applied.kubectl("get", "brun", name, "-o", "json"))
    header, line = applied.kubectl("get", "brun", name, "-o", "wide").splitlines()
    shown = line.split()
    wide = ["PASSRATE", "MEANREWARD", "PARALLELISM", "PACK", "HARNESS", "RESULTS"]
    assert header.split()[8:] == wide
    assert shown[9:] == ["4", name, "command", f"runs/{run['metadata']['uid']}/candidates.jsonl"]
    assert 0 < float(shown[8]) <= 1
