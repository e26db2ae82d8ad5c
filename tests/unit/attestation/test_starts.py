import pytest

from securebench.attestation.starts import (
    NO_LINK,
    RunStart,
    appended,
    is_counted,
    read_starts,
    requesters_behind,
    resumed_runs,
    same_runs,
)


def start(name, **changes):
    known = {
        "run": name,
        "uid": f"uid-{name}",
        "run_id": "n",
        "pack": "geo",
        "pack_digest": "sha256:p",
        "harness_digest": "sha256:h",
        "verifier_version": "1",
        "started_at": "2026-01-01T00:00:00Z",
    }
    return RunStart(**(known | changes))


def listed(*starts):
    return appended(read_starts(b""), starts)


THREE = listed(start("a"), start("b"), start("c"))
LINES = THREE.splitlines(keepends=True)


def test_a_list_grows_behind_what_it_has():
    known = read_starts(LINES[0])
    assert LINES[0] + appended(known, [start("b"), start("c")]) == THREE
    found = read_starts(THREE)
    assert [line.start["run"] for line in found.lines] == ["a", "b", "c"]
    assert [line.number for line in found.lines] == [1, 2, 3]
    assert (found.size, found.faults) == (3, [])
    assert found.head == found.lines[-1].digest
    assert found.of_uid("uid-b") == found.lines[1]
    assert found.of_uid("uid-x") is None


def test_an_empty_list():
    found = read_starts(b"")
    assert (found.lines, found.size, found.faults, found.head) == ([], 0, [], NO_LINK)


@pytest.mark.parametrize(
    ("data", "want"),
    [
        (LINES[0] + LINES[2], ["line 2 does not follow line 1: lines are missing or moved"]),
        (b"".join(LINES[1:]), ["line 1 does not follow the beginning: lines are missing or moved"]),
        (
            LINES[1] + LINES[0] + LINES[2],
            [
                "line 1 does not follow the beginning: lines are missing or moved",
                "line 2 does not follow line 1: lines are missing or moved",
                "line 3 does not follow line 2: lines are missing or moved",
            ],
        ),
        (THREE.replace(b'"b"', b'"d"'), ["line 2 is damaged"]),
        (THREE[:-1], ["line 3 is damaged"]),
        (THREE[:-20], ["line 3 is damaged"]),
        (THREE + b"\n", ["line 4 is damaged"]),
        (THREE.replace(b"\n", b"\xff", 1), ["line 1 is damaged"]),
    ],
)
def test_what_was_changed_is_found(data, want):
    assert read_starts(data).faults == want


def test_lines_behind_a_damaged_one_follow_the_last_whole_one():
    damaged = b"".join([LINES[0], LINES[1].replace(b'"b"', b'"d"'), LINES[2]])
    more = appended(read_starts(damaged), [start("d")])
    assert read_starts(damaged + more).faults == ["line 2 is damaged"]


def test_runs_with_the_same_id_and_pack():
    other = start("x", run_id="m"), start("y", pack_digest="sha256:q")
    found = read_starts(listed(start("a"), *other, start("b")))
    assert [each["run"] for each in same_runs(found.lines, "n", "sha256:p")] == ["a", "b"]


def test_the_chain_of_resumed_runs():
    starts = (
        start("a", resumed_uid="uid-c"),
        start("b", resumed_uid="uid-a"),
        start("c", resumed_uid="uid-b"),
    )
    found = read_starts(listed(*starts)).lines
    assert [each["run"] for each in resumed_runs(found, "uid-c")] == ["b", "a"]
    assert list(resumed_runs(found, "uid-x")) == []
    unknown = read_starts(listed(start("a", resumed_uid="uid-gone"))).lines
    assert list(resumed_runs(unknown, "uid-a")) == []


@pytest.mark.parametrize(
    ("requester", "behind", "want"),
    [
        ("ada", {"ada"}, True),
        ("ben", {"ada"}, False),
        ("ben", {"ada", "ben"}, True),
        ("", {"ada"}, True),
        ("ben", {""}, True),
        ("ben", {"ada", ""}, True),
    ],
)
def test_whose_runs_count_as_tries(requester, behind, want):
    assert is_counted(requester, behind) is want


def test_who_is_behind_a_run():
    lines = read_starts(
        listed(
            start("a", requester="ada"),
            start("b", requester="ben", resumed_uid="uid-a"),
            start("c", requester="eve", regrade_of="uid-b"),
            start("d"),
        )
    ).lines
    starts = [line.start for line in lines]
    found = {each: requesters_behind(starts, f"uid-{each}") for each in "abcdx"}
    assert found == {
        "a": {"ada"},
        "b": {"ada", "ben"},
        "c": {"ada", "ben", "eve"},
        "d": {""},
        "x": {""},
    }
