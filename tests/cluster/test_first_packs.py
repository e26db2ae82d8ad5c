"""Packs that the documentation and `securebench init` write, from audit to grade."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from cluster.shell import Command, Shell, kubeconfig
from securebench.audit.trials import Trial, run_trial
from securebench.benchmark.families.registry import FAMILIES
from securebench.client.packs.starter import init
from securebench.client.volume.connection import ClusterTarget
from support.documented import follow
from support.release import ROOT, Record, Release

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(420)]

Followed = tuple[Path, Future[list[str]]]
"""Where the reader is, and what the commands print."""

TUTORIAL = "tutorial.md"


@pytest.fixture(scope="module", autouse=True)
def tutorial(place: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    """Begin to follow the tutorial."""
    folder = tmp_path_factory.mktemp("tutorial")
    config = kubeconfig(folder / "kubeconfig", namespace=place.namespace)
    variables = {"KUBECONFIG": str(config), "HOME": str(folder)}
    with ThreadPoolExecutor() as reader:
        yield folder, reader.submit(follow, TUTORIAL, folder, variables, 240)


@pytest.fixture(scope="module", autouse=True)
def slugs(place: Release, tmp_path_factory: pytest.TempPathFactory) -> tuple[Shell, Command]:
    """Begin the audit of the repository task."""
    folder = tmp_path_factory.mktemp("slugs")
    shutil.copytree(ROOT / "docs/examples/slugs", folder, dirs_exist_ok=True)
    shell = Shell(folder, place.namespace, Path(os.environ["KUBECONFIG"]))
    return shell, shell.start("audit", ".")


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


def verdicts(results: Path) -> dict[str, bool]:
    lines = (results / "candidates.jsonl").read_text(encoding="utf-8").splitlines()
    return {record["task_id"]: record["passed"] for record in map(json.loads, lines)}


def test_the_tutorial_does_what_it_says(tutorial: Followed) -> None:
    folder, commands = tutorial
    checked, seen, compared, fetched = commands.result()

    assert "runs of this pack say labels.pack_audit=passed from now on" in checked
    assert "run_id=unit-conversion total=3 verification=complete verified=3 passed=2" in checked
    assert '"passed": false' in seen
    assert "lb-to-g" in (folder / "unit-conversion/report.html").read_text(encoding="utf-8")
    assert "passed=3" in compared
    assert "lb-to-g  0/1     1/1" in compared
    assert "unit-conversion-1" in fetched
    before = {"km-to-m": True, "h-to-min": True, "lb-to-g": False}
    assert verdicts(folder / "unit-conversion/results") == before
    for results in ("results-better", "fetched"):
        assert set(verdicts(folder / "unit-conversion" / results).values()) == {True}


def test_the_repository_task_of_the_docs(place: Release, slugs: tuple[Shell, Command]) -> None:
    (record,) = audited(place, *slugs)

    assert (record["outcome"], record["passed"]) == ("scored", True), record
    assert record["candidate_patch"].startswith("diff --git a/slugs.py b/slugs.py\n")
    assert record["producer_stdout"].startswith("slug() in slugs.py keeps signs")
    producer = record["producer_metadata"]
    assert (producer["candidate_extraction"], producer["repo_patch_baseline"]) == (
        "git_diff",
        "clean",
    )
    assert record["labels"]["pack_audit"] == "passed"


def test_the_packs_of_init_accept_their_reference_answers(place: Release, tmp_path: Path) -> None:
    folders = {name: tmp_path / name.replace("_", "-") for name in FAMILIES}
    # The name of the docs' example, whose image the node has.
    folders["repo_patch"] = tmp_path / "slugs"
    for family, folder in folders.items():
        assert init(folder, family, "command") == 0

    async def trials() -> list[Trial]:
        target = ClusterTarget(place.namespace)
        packs = folders.values()
        return await asyncio.gather(*(run_trial(target, pack, "oracle") for pack in packs))

    ended = asyncio.run(trials())
    assert {each.pack_id: each.score for each in ended} == {
        folder.name: 1.0 for folder in folders.values()
    }
