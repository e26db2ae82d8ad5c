from dataclasses import replace

import pytest

from securebench.controller.volume.registers import MAX_FAULT, RunIndex, RunStarts, start_of
from unit.controller.volume.test_index import FIRST

PATH = "runs/starts.jsonl"


def add(root, number):
    """Start a run as the controller does: its line first, then the index."""
    entry = replace(FIRST, uid=f"uid-{number}", run=f"run-{number}")
    found = RunStarts(root).add(start_of(entry))
    RunIndex(root).add(replace(entry, start=found))
    return found


def told(root):
    found = RunStarts(root).read()
    return [(line.start["run"], line.start["fault"]) for line in found.lines]


def test_each_start_has_a_line(tmp_path):
    assert [add(tmp_path, number) for number in range(3)] == [1, 2, 3]
    assert told(tmp_path) == [(f"run-{number}", "") for number in range(3)]
    assert RunStarts(tmp_path).read().faults == []


def test_a_start_that_is_repeated_keeps_its_line(tmp_path):
    add(tmp_path, 0)
    add(tmp_path, 1)
    before = (tmp_path / PATH).read_bytes()
    assert add(tmp_path, 0) == 1
    assert (tmp_path / PATH).read_bytes() == before


def test_runs_older_than_the_list_are_taken_over_once(tmp_path):
    for number in range(2):
        RunIndex(tmp_path).add(replace(FIRST, uid=f"old-{number}", run=f"old-{number}"))
    assert add(tmp_path, 0) == 3
    lines = RunStarts(tmp_path).read().lines
    found = [(line.start["run"], line.start["is_imported"], line.start["fault"]) for line in lines]
    assert found == [("old-0", True, ""), ("old-1", True, ""), ("run-0", False, "")]


def edit(path):
    path.write_bytes(path.read_bytes().replace(b"run-0", b"run-x"))


def cut(path):
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def tear(path):
    path.write_bytes(path.read_bytes()[:-10])


@pytest.mark.parametrize(
    ("damage", "want"),
    [
        (edit, "line 1 is damaged; line 1 with run run-0 is missing"),
        (cut, "line 2 with run run-1 is missing"),
        (tear, "line 2 is damaged; line 2 with run run-1 is missing"),
        (lambda path: path.unlink(), "line 1 with run run-0 is missing; line 2 with run run-1"),
    ],
)
def test_a_list_that_was_changed_is_told_by_the_next_line_and_holds_up_nothing(
    tmp_path, damage, want
):
    add(tmp_path, 0)
    add(tmp_path, 1)
    damage(tmp_path / PATH)
    add(tmp_path, 2)
    add(tmp_path, 3)
    faults = [fault for _, fault in told(tmp_path) if fault]
    assert faults[0].startswith(want)
    assert len(faults) <= 2
    assert {"run-0", "run-1", "run-2", "run-3"} <= {name for name, _ in told(tmp_path)}


def test_what_a_line_tells_is_bounded(tmp_path):
    for number in range(30):
        add(tmp_path, number)
    (tmp_path / PATH).unlink()
    add(tmp_path, 30)
    assert max(len(fault) for _, fault in told(tmp_path)) == MAX_FAULT
