"""``securebench journal`` on a volume that an operator left behind when it was killed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.begun_run import begin_run
from support.cli_shell import Outcome, Shell
from support.operator_world import World, opened

UID = "00000001-0000-4000-8000-000000000000"


@pytest.fixture
def volume(tmp_path: Path) -> Path:
    root = tmp_path / "volume"
    with opened(World, root) as world:
        begin_run(world)
    return root


def _journal(shell: Shell, volume: Path, *arguments: str) -> Outcome:
    return shell("journal", *arguments, "--data-root", str(volume))


@pytest.mark.parametrize("name", ["nightly", UID])
def test_a_run_is_found_by_its_name_and_its_uid(shell: Shell, volume: Path, name: str) -> None:
    shown = _journal(shell, volume, name)

    assert (shown.code, "12 entries, intact" in shown.stderr) == (0, True)
    lines = shown.stdout.splitlines()
    assert lines[0].split() == ["LINE", "TIME", "ENTRY", "ATTEMPT", "LAUNCH", "DETAILS"]
    assert lines[7].split()[:6] == [
        "7",
        "2026-01-01T00:00:05Z",
        "LaunchBegun",
        "0/1",
        "verifier",
        "1",
    ]


def test_a_folder_that_is_no_volume(shell: Shell, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "absent"):
        shown = _journal(shell, place, "nightly")
        want = f"securebench: error: {place} is no results volume; see --data-root\n"
        assert (shown.code, shown.stdout) == (1, want)


def test_json_has_every_field_of_one_task(shell: Shell, volume: Path) -> None:
    shown = _journal(shell, volume, "nightly", "--task", "0", "-o", "json")

    entries = [json.loads(line) for line in shown.stdout.splitlines()]
    kinds = [entry["type"] for entry in entries]
    assert kinds == ["LaunchBegun", "Produced", "LaunchBegun", "Verified", "Finished"]
    assert entries[-1]["entry"]["finish"]["key"] == [0, 1]
    assert entries[-1]["line"] == 10


def test_a_cut_last_line_is_told_and_left_alone(shell: Shell, volume: Path) -> None:
    journal = volume / "runs" / UID / "journal.jsonl"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b"00000000 0000")

    shown = _journal(shell, volume, "nightly")

    assert shown.code == 0
    assert "12 entries, intact; 13 bytes of a cut last line follow" in shown.stderr
    assert journal.read_bytes() == whole + b"00000000 0000"


def test_of_a_damaged_journal_what_holds_is_shown(shell: Shell, volume: Path) -> None:
    journal = volume / "runs" / UID / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    lines[4] = lines[4].replace(b"harness", b"hornest")
    journal.write_bytes(b"".join(lines))

    shown = _journal(shell, volume, "nightly")

    assert shown.code == 1
    assert "damaged: line 5 of the journal is damaged" in shown.stderr
    assert [line.split()[0] for line in shown.stdout.splitlines()[1:6]] == ["1", "2", "3", "4", "6"]


def test_what_is_not_there_is_one_line(shell: Shell, volume: Path) -> None:
    unknown = _journal(shell, volume, "nobody")
    (volume / "runs" / UID / "journal.jsonl").unlink()
    without = _journal(shell, volume, "nightly")

    assert unknown.last.endswith("no run 'nobody' on the volume; runs/index.jsonl lists all 1")
    assert without.last.endswith("it never began, or its results were removed")
    assert (unknown.code, without.code) == (1, 1)
