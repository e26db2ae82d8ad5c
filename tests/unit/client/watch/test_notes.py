from __future__ import annotations

import pytest

from securebench.client.follow import NoteFilter, run_state


def test_a_note_that_differs_in_numbers_only_is_told_every_half_minute() -> None:
    now = [100.0]
    notes = NoteFilter(lambda: now[0])
    told = []
    for second in range(70):
        now[0] = 100.0 + second
        note = f"pulling python:3.11 for {second} s"
        if notes.is_new(note):
            told.append(note)
    assert told == [f"pulling python:3.11 for {second} s" for second in (0, 30, 60)]


def test_a_note_without_numbers_is_told_once_until_another_comes() -> None:
    now = [0.0]
    notes = NoteFilter(lambda: now[0])
    told = []
    for note in ("", "Suspended", "Suspended", "", "Suspended", "Cancelling", "Suspended"):
        now[0] += 60
        told.append(notes.is_new(note))
    assert told == [False, True, False, False, True, True, True]


def test_notes_that_take_turns_are_each_told_every_half_minute() -> None:
    now = [0.0]
    notes = NoteFilter(lambda: now[0])
    told = []
    for second in range(60):
        now[0] = float(second)
        note = ("task #1: pulling a", "", "task #2: starting", "")[second % 4]
        if notes.is_new(note):
            told.append((second, note))
    assert told == [
        (0, "task #1: pulling a"),
        (2, "task #2: starting"),
        (32, "task #1: pulling a"),
        (34, "task #2: starting"),
    ]


@pytest.mark.parametrize(
    ("status", "reason", "done", "want"),
    [
        ("Unknown", "Running", 0, "Running: what it does"),
        ("Unknown", "Running", 1, "Running: what it does"),
        ("Unknown", "SchedulingGated", 1, "SchedulingGated: what it does"),
        ("Unknown", "StorageUnavailable", 1, "StorageUnavailable: what it does"),
        ("False", "InvalidSpec", 0, ""),
    ],
)
def test_what_is_worth_a_note(status: str, reason: str, done: int, want: str) -> None:
    condition = {
        "type": "Succeeded",
        "status": status,
        "reason": reason,
        "message": "what it does",
    }
    run = {
        "metadata": {"name": "a", "uid": "b"},
        "status": {"tasks": {"done": done}, "conditions": [condition]},
    }
    assert run_state(run).note == want
