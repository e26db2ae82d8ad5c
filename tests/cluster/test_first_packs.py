"""The packs that README and docs write, from audit to grade, as they stand there."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from cluster.shell import Shell
from support.readme_pack import write_readme_pack
from support.release import ROOT, Record, Release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]


def audited(place: Release, folder: Path) -> list[Record]:
    """Audit a pack, run it and return its records."""
    shell = Shell(folder, place.namespace, Path(os.environ["KUBECONFIG"]))
    audit = shell("audit", ".")
    assert audit.code == 0, audit.stdout
    assert "runs of this pack say labels.pack_audit=passed from now on" in audit.stdout
    run = shell.start("run", "--config", "tester.yaml")
    assert run.end().code == 0, run.stderr
    resolved = place.get("benchmarkrun", run.run)["status"]["resolved"]
    assert resolved["packAudit"] == "passed"
    lines = (folder / "results/candidates.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_the_pack_of_the_readme(place: Release, tmp_path: Path) -> None:
    write_readme_pack(tmp_path)
    records = audited(place, tmp_path)

    verdicts = {record["task_id"]: record["passed"] for record in records}
    assert verdicts == {"km-to-m": True, "h-to-min": True, "lb-to-g": False}
    assert {record["labels"]["pack_audit"] for record in records} == {"passed"}


def test_the_repository_task_of_the_docs(place: Release, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "docs/examples/slugs", tmp_path, dirs_exist_ok=True)
    (record,) = audited(place, tmp_path)

    assert (record["outcome"], record["passed"]) == ("scored", True), record
    assert record["candidate_patch"].startswith("diff --git a/slugs.py b/slugs.py\n")
    assert record["producer_stdout"].startswith("slug() in slugs.py keeps signs")
    producer = record["producer_metadata"]
    assert (producer["candidate_extraction"], producer["repo_patch_baseline"]) == (
        "git_diff",
        "clean",
    )
    assert record["labels"]["pack_audit"] == "passed"
