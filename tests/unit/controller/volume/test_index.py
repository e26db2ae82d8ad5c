from dataclasses import asdict, replace

import pytest
from pydantic import ValidationError

from securebench.controller.volume.registers import IndexEntry, RunIndex, index_entry

FIRST = IndexEntry(
    run="nightly",
    uid="uid-1",
    run_id="n",
    pack="geo",
    pack_digest="sha256:p",
    harness_digest="sha256:h",
    verifier_version="1",
    started_at="2026-01-01T00:00:00Z",
)


@pytest.fixture
def index(tmp_path):
    return RunIndex(tmp_path)


def test_an_empty_volume(index):
    assert index.entries() == []
    assert index.named("nightly") == []


def test_repeated_tries_are_counted(index):
    ordinals = [index.add(replace(FIRST, uid=f"uid-{n}")).run_ordinal for n in range(3)]
    assert ordinals == [1, 2, 3]


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"run": "other", "run_id": "m", "harness_digest": "x", "verifier_version": "2"}, 2),
        ({"pack_digest": "x"}, 1),
        ({"agent": "codex"}, 1),
        ({"model": "m"}, 1),
        ({"regrade_of": "uid-1"}, 1),
    ],
)
def test_tries_of_an_agent_are_counted_whatever_their_names_and_settings(index, change, want):
    index.add(FIRST)
    assert index.add(replace(FIRST, uid="uid-2", **change)).tries == want


@pytest.mark.parametrize(
    ("requesters", "want"),
    [
        (["ada", "ada"], (3, 3, 0)),
        (["ben", "ben"], (1, 1, 2)),
        (["", "ben"], (2, 2, 1)),
        ([], (1, 1, 0)),
    ],
)
def test_tries_of_other_users_are_counted_apart(index, requesters, want):
    for number, each in enumerate(requesters):
        index.add(replace(FIRST, uid=f"uid-{number}", requester=each))
    found = index.add(replace(FIRST, uid="uid-x", requester="ada"))
    assert (found.run_ordinal, found.tries, found.tries_by_others) == want


def test_tries_of_everybody_count_where_the_requester_is_unknown(index):
    for each in ("ada", "ben", ""):
        index.add(replace(FIRST, uid=f"uid-{each}", requester=each))
    found = index.add(replace(FIRST, uid="uid-x"))
    assert (found.run_ordinal, found.tries, found.tries_by_others) == (4, 4, 0)


def test_tries_behind_a_run_that_is_taken_over_count(index):
    index.add(replace(FIRST, uid="uid-1", requester="ben"))
    index.add(replace(FIRST, uid="uid-2", requester="eve"))
    found = index.add(replace(FIRST, uid="uid-3", requester="ada", behind=("ben",)))
    assert (found.tries, found.tries_by_others) == (2, 1)
    assert index_entry(asdict(found)) == found


def test_a_regrade_is_no_try(index):
    index.add(FIRST)
    index.add(replace(FIRST, uid="uid-2", regrade_of="uid-1"))
    assert index.add(replace(FIRST, uid="uid-3")).tries == 2


@pytest.mark.parametrize(
    "change",
    [{"run_id": "m"}, {"pack_digest": "x"}, {"harness_digest": "x"}, {"verifier_version": "2"}],
)
def test_a_try_with_another_binding_is_a_first_one(index, change):
    index.add(FIRST)
    assert index.add(replace(FIRST, uid="uid-2", **change)).run_ordinal == 1


def test_a_run_is_counted_once_however_often_it_starts(index):
    first = index.add(FIRST)
    index.add(replace(FIRST, uid="uid-2"))
    assert index.add(replace(FIRST, started_at="later")) == first
    assert [entry.uid for entry in index.entries()] == ["uid-1", "uid-2"]


def test_ends_are_noted(index):
    index.add(FIRST)
    index.add(replace(FIRST, uid="uid-2"))
    index.end("uid-2", "Completed")
    index.end("unknown", "Cancelled")
    assert [entry.outcome for entry in index.entries()] == ["", "Completed"]


def test_all_runs_of_a_name(index):
    index.add(FIRST)
    index.add(replace(FIRST, uid="uid-2"))
    index.add(replace(FIRST, uid="uid-3", run="other"))
    assert [entry.uid for entry in index.named("nightly")] == ["uid-1", "uid-2"]


def test_an_entry_is_checked():
    with pytest.raises(ValidationError):
        index_entry({"run": "nightly"})


def test_removed_results_are_marked_once(index):
    index.add(FIRST)
    index.mark_removed("uid-1", "2026-01-02T00:00:00Z")
    index.mark_removed("uid-1", "2026-01-03T00:00:00Z")
    index.mark_removed("unknown", "2026-01-03T00:00:00Z")
    assert [entry.removed_at for entry in index.entries()] == ["2026-01-02T00:00:00Z"]
    assert index.add(replace(FIRST, uid="uid-2")).run_ordinal == 2


def test_a_line_of_an_earlier_version_is_read():
    fields = {key: value for key, value in asdict(FIRST).items() if key != "removed_at"}
    assert index_entry(fields) == FIRST
