"""docs/architecture.md is a map of what is there, and the way of a row is that of a run."""

import re
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from support.operator_world import World, opened

ROOT = Path(__file__).parents[3]
MAP = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CHECKLISTS = (ROOT / "docs" / "checklists.md").read_text(encoding="utf-8")
WAY = MAP.split("## The way of one row")[1].split("## Where to change what")[0]
STEPS = WAY.split("| --- | --- |")[1].split("\n\n")[0]
ON_THE_WAY = re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", STEPS)
IN_GO = re.findall(r"`(images/supervise/\w+\.go)`", STEPS)
NAMED = sorted(set(re.findall(r"`([a-z_]+(?:\.[a-z_]+)+)`", MAP + CHECKLISTS)))
ELSEWHERE = "grading."
"""Package of what runs in Pods, and not in the operator of a test."""
BELOW_HANDLERS = "controller.process.handlers"
FILES = (".toml", ".md", ".py", ".go", ".json", ".jsonl", ".yaml", ".lock", ".sh", ".mod")


@pytest.mark.parametrize("name", [name for name in NAMED if not name.endswith(FILES)])
def test_every_module_is_there(name):
    assert name.startswith("settings.") or find_spec(f"securebench.{name}") is not None


def test_the_number_of_modules_is_right():
    packages = {name.partition(".")[0] for name in ON_THE_WAY}
    number = len(ON_THE_WAY) + len(IN_GO)
    count = f"These are {number} modules, {len(IN_GO)} of them in Go, in {len(packages)} packages"
    assert count in WAY
    assert len(set(ON_THE_WAY)) == len(ON_THE_WAY)
    assert all((ROOT / name).is_file() for name in IN_GO)


def test_a_row_passes_the_modules_of_its_way(tmp_path):
    passed = set()

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_name != "<module>":
            passed.add(frame.f_globals.get("__name__", ""))

    with opened(World, tmp_path) as world:
        sys.setprofile(note)
        uid = world.apply(taskSelector={"limit": 1})
        world.work(uid)
        sys.setprofile(None)
    assert world.condition()["reason"] == "Completed"
    expected = {name for name in ON_THE_WAY if not name.startswith(ELSEWHERE)} - {BELOW_HANDLERS}
    assert {name for name in expected if f"securebench.{name}" not in passed} == set()


def test_no_class_of_two_modules_has_one_name():
    """Decision 0046: a name leads to one class."""
    found = re.compile(r"^class ([A-Z]\w*)", re.MULTILINE)
    modules = (ROOT / "operator" / "securebench").rglob("*.py")
    names = [name for path in modules for name in found.findall(path.read_text(encoding="utf-8"))]
    assert [name for name, count in Counter(names).items() if count > 1] == []
