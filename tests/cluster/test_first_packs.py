"""The packs that README and docs write, from audit to grade, as they stand there."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from cluster.shell import Command, Shell
from support.readme_pack import write_readme_pack
from support.release import ROOT, Record, Release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]


@pytest.fixture(scope="module")
def audits(
    place: Release, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Shell, Command]]:
    """Begin the audits of both packs, by terminal."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("readme", "slugs")}
    write_readme_pack(folders["readme"])
    shutil.copytree(ROOT / "docs/examples/slugs", folders["slugs"], dirs_exist_ok=True)
    administrator = Path(os.environ["KUBECONFIG"])
    shells = {name: Shell(path, place.namespace, administrator) for name, path in folders.items()}
    return {name: (shell, shell.start("audit", ".")) for name, shell in shells.items()}


def audited(place: Release, shell: Shell, audit: Command) -> list[Record]:
    """Wait for the audit of a pack, run it and return its records."""
    end = audit.end()
    assert end.code == 0, end.stdout
    assert "runs of this pack say labels.pack_audit=passed from now on" in end.stdout
    run = shell.start("run", "--config", "tester.yaml")
    assert run.end().code == 0, run.stderr
    resolved = place.get("benchmarkrun", run.run)["status"]["resolved"]
    assert resolved["packAudit"] == "passed"
    lines = (shell.folder / "results/candidates.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_the_pack_of_the_readme(place: Release, audits: dict[str, tuple[Shell, Command]]) -> None:
    records = audited(place, *audits["readme"])

    verdicts = {record["task_id"]: record["passed"] for record in records}
    assert verdicts == {"km-to-m": True, "h-to-min": True, "lb-to-g": False}
    assert {record["labels"]["pack_audit"] for record in records} == {"passed"}


def test_the_repository_task_of_the_docs(
    place: Release, audits: dict[str, tuple[Shell, Command]]
) -> None:
    (record,) = audited(place, *audits["slugs"])

    assert (record["outcome"], record["passed"]) == ("scored", True), record
    assert record["candidate_patch"].startswith("diff --git a/slugs.py b/slugs.py\n")
    assert record["producer_stdout"].startswith("slug() in slugs.py keeps signs")
    producer = record["producer_metadata"]
    assert (producer["candidate_extraction"], producer["repo_patch_baseline"]) == (
        "git_diff",
        "clean",
    )
    assert record["labels"]["pack_audit"] == "passed"
