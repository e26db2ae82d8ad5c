"""Tests that go on beside the others are run once, at the same time, and judged in their turn."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import support.beside

HOOKS = """\
def pytest_configure(config):
    config.pluginmanager.import_plugin("support.beside")
"""
STORIES = """\
import threading
import pytest

MET = threading.Barrier(3)
TOLD = []

@pytest.mark.beside
@pytest.mark.parametrize("number", [1, 2])
def test_two(number):
    TOLD.append(number)
    MET.wait(20)

def test_another():
    MET.wait(20)

def test_each_once():
    assert sorted(TOLD) == [1, 2]

@pytest.mark.beside
def test_wrong():
    assert TOLD == "nothing"
"""


def run(folder: Path, text: str, *words: str) -> tuple[int, str]:
    """Run pytest on a module and return its exit code and output."""
    (folder / "conftest.py").write_text(HOOKS)
    (folder / "test_stories.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = beside\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:randomly", *words, str(folder)]
    tests = str(Path(support.beside.__file__).parents[1])
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": tests}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_they_go_on_together_and_fail_in_their_turn(tmp_path: Path) -> None:
    code, out = run(tmp_path, STORIES)

    assert (code, "1 failed, 4 passed" in out) == (1, True), out
    assert "::test_wrong\n" in out


def test_only_the_chosen_ones_go_on(tmp_path: Path) -> None:
    code, out = run(tmp_path, STORIES, "-k", "wrong")

    assert (code, "1 failed, 4 deselected" in out) == (1, True), out


def test_a_fixture_is_refused(tmp_path: Path) -> None:
    text = "import pytest\n@pytest.mark.beside\ndef test_it(tmp_path):\n    pass\n"

    code, out = run(tmp_path, text)

    assert (code, "without fixtures: {'tmp_path'}" in out) == (3, True), out
