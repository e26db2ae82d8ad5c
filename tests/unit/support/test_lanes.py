"""Tests of one lane share a process, in which they go one after the other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import support.lanes

TESTS = """\
import os
import pathlib
import pytest

@pytest.mark.parametrize("number", range(4))
def test_it(number):
    worker = os.environ["PYTEST_XDIST_WORKER"]
    pathlib.Path(__file__).with_suffix(".workers").open("a").write(worker + " ")
"""
HOOKS = """\
from support.lanes import LaneScheduling

def pytest_xdist_make_scheduler(config, log):
    return LaneScheduling(config, log)
"""
FILES = ("test_kills", "test_failover", "test_egress", "test_packs")


def test_each_lane_is_one_process(tmp_path: Path) -> None:
    for name in FILES:
        (tmp_path / f"{name}.py").write_text(TESTS)
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "conftest.py").write_text(HOOKS)

    words = ["-q", "-n", "3", "--import-mode=importlib", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *words],
        env=os.environ | {"PYTHONPATH": str(Path(support.lanes.__file__).parents[1])},
        cwd=tmp_path,
        capture_output=True,
        check=False,
        text=True,
    )

    assert done.returncode == 0, done.stdout
    kills, failover, egress, packs = (
        (tmp_path / f"{name}.workers").read_text().split() for name in FILES
    )
    assert kills == failover
    assert {len(set(each)) for each in (kills, egress, packs)} == {1}
    assert len({kills[0], egress[0], packs[0]}) == 3


def test_every_file_of_the_table_is_there() -> None:
    tests = Path(support.lanes.__file__).parents[1]
    found = {path.name for tier in ("cluster", "e2e") for path in (tests / tier).glob("test_*.py")}
    assert support.lanes.LANES.keys() <= found
