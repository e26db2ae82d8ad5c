"""docs/reference/repository-tasks.md: its files are those of the example, and the example holds."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from securebench.benchmark.files.load import check_pack
from securebench.benchmark.lint import lint_graders

DOCS = Path(__file__).parents[3] / "docs"
PAGE = (DOCS / "reference/repository-tasks.md").read_text(encoding="utf-8")
EXAMPLE = DOCS / "examples/slugs"
SHOWN = dict(re.findall(r"<!-- (\S+) -->\n```\w+\n(.*?)```", PAGE, re.DOTALL))
(ROW,) = map(json.loads, (EXAMPLE / "tasks.jsonl").read_text().splitlines())
(ANSWER,) = map(json.loads, (EXAMPLE / "oracle/answers.jsonl").read_text().splitlines())
TESTS = ROW["eval"]["tests"]


def test_the_page_shows_every_file_as_it_is() -> None:
    files = {path.relative_to(EXAMPLE).as_posix() for path in EXAMPLE.rglob("*") if path.is_file()}
    assert set(SHOWN) == {name for name in files if (EXAMPLE / name).read_text()}
    for name, content in SHOWN.items():
        assert content == (EXAMPLE / name).read_text(), name


def test_the_pack_has_no_error() -> None:
    checked = check_pack(EXAMPLE / "manifest.yaml", EXAMPLE / "tasks.jsonl")
    assert checked.errors == ()
    assert lint_graders(checked) == ()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Make the repository as the Dockerfile does."""
    shutil.copytree(EXAMPLE / "images/slugify/repo", tmp_path / "testbed")
    script = re.search(
        r"^RUN (git init.*?)\s+\\\n\s+&& rm",
        SHOWN["images/slugify/Dockerfile"],
        re.DOTALL | re.MULTILINE,
    )
    assert script is not None
    run(tmp_path / "testbed", "sh", "-c", script[1])
    return tmp_path / "testbed"


def run(folder: Path, *words: str, stdin: str = "") -> tuple[int, str]:
    done = subprocess.run(
        words, cwd=folder, input=stdin, capture_output=True, text=True, check=False, env=os.environ
    )
    return done.returncode, done.stdout.strip()


def graded(folder: Path, *patches: str) -> int:
    for patch in patches:
        assert run(folder, "git", "apply", "-", stdin=patch)[0] == 0
    return run(folder, sys.executable, *TESTS["command"][1:])[0]


def test_the_commit_is_that_of_the_row(repository: Path) -> None:
    assert run(repository, "git", "rev-parse", "HEAD") == (0, ROW["input"]["base_commit"])


@pytest.mark.parametrize(
    ("patches", "passes"),
    [
        ([TESTS["test_patch"]], False),
        ([ANSWER["candidate"], TESTS["test_patch"]], True),
        ([ANSWER["candidate"], TESTS["test_patch"], TESTS["control"]], False),
    ],
)
def test_the_tests_tell_right_from_wrong(
    repository: Path,
    patches: list[str],
    passes: bool,  # noqa: FBT001 - what must come out
) -> None:
    assert (graded(repository, *patches) == 0) is passes
