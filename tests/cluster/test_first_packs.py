"""Packs that the documentation and `securebench init` write, from audit to grade."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from cluster.shell import kubeconfig
from securebench.client.starter import init
from support.documented import Reader, write_files
from support.release import ROOT, Record, Release

pytestmark = pytest.mark.cluster

Followed = tuple[Path, Future[list[str]]]
"""Where the reader is, and what the commands print."""

TUTORIAL = "tutorial.md"


@pytest.fixture(scope="module", autouse=True)
def tutorial(place: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    """Begin to follow the tutorial."""
    folder = tmp_path_factory.mktemp("tutorial")
    write_files(TUTORIAL, folder)
    with ThreadPoolExecutor() as reader:
        page = Reader(TUTORIAL, folder, variables(place, folder))
        yield folder, reader.submit(page.run_all)


@pytest.fixture(scope="module", autouse=True)
def slugs(place: Release, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    """Begin to follow the page on repository tasks, whose image the node has."""
    folder = tmp_path_factory.mktemp("slugs")
    shutil.copytree(ROOT / "docs/examples/slugs", folder, dirs_exist_ok=True)
    page = Reader("reference/repository-tasks.md", folder, variables(place, folder))
    page.skip("docker build")
    with ThreadPoolExecutor() as reader:
        yield folder, reader.submit(page.run_all)


def variables(place: Release, folder: Path) -> dict[str, str]:
    """Return the environment of a reader whose context has the release's namespace."""
    config = kubeconfig(folder / "kubeconfig", namespace=place.namespace)
    return {"KUBECONFIG": str(config), "HOME": str(folder)}


def records(results: Path) -> list[Record]:
    lines = (results / "candidates.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def verdicts(results: Path) -> dict[str, bool]:
    return {record["task_id"]: record["passed"] for record in records(results)}


def test_the_tutorial_does_what_it_says(tutorial: Followed) -> None:
    folder, commands = tutorial
    checked, seen, compared, fetched = commands.result()

    assert "runs of this pack say labels.pack_audit=passed from now on" in checked
    assert "run_id=unit-conversion total=3 verification=complete verified=3 passed=2" in checked
    assert 'lb-to-g attempt 1: not passed: wrong_answer: the answer was "Answer: 3.0"' in seen
    assert "==> producer/stdout <==\nAnswer: 3.0" in seen
    assert "lb-to-g" in (folder / "unit-conversion/report.html").read_text(encoding="utf-8")
    assert "passed=3" in compared
    assert "lb-to-g  0/1     1/1" in compared
    assert "unit-conversion-1" in fetched
    before = {"km-to-m": True, "h-to-min": True, "lb-to-g": False}
    assert verdicts(folder / "unit-conversion/results") == before
    for results in ("results-better", "fetched"):
        assert set(verdicts(folder / "unit-conversion" / results).values()) == {True}


def test_the_repository_task_of_the_docs(place: Release, slugs: Followed) -> None:
    folder, commands = slugs
    (told,) = commands.result()

    assert "runs of this pack say labels.pack_audit=passed from now on" in told
    (run,) = re.findall(r"started BenchmarkRun (\S+)", told)
    assert place.get("benchmarkrun", run)["status"]["resolved"]["packAudit"] == "passed"
    (record,) = records(folder / "results")
    assert (record["outcome"], record["passed"]) == ("scored", True), record
    assert record["candidate_patch"].startswith("diff --git a/slugs.py b/slugs.py\n")
    assert record["producer_stdout"].startswith("slug() in slugs.py keeps signs")
    producer = record["producer_metadata"]
    assert (producer["candidate_extraction"], producer["repo_patch_baseline"]) == (
        "git_diff",
        "clean",
    )
    assert record["labels"]["pack_audit"] == "passed"


def test_the_commands_of_the_reference(place: Release, tmp_path: Path) -> None:
    assert init(tmp_path / "piped", "short_answer", "command") == 0
    # The agent of a new pack solves half of it.
    own = {"--config tester.yaml": "--config piped/tester.yaml", "0.8": "0.5"}
    page = Reader("reference/cli.md", tmp_path, variables(place, tmp_path), own)

    piped, checked = page.run_all()

    assert "verification=complete verified=2 passed=1" in piped
    assert (tmp_path / "my-first-pack/tester.yaml").is_file(), checked
