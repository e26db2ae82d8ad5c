"""A sample of `make harbor-differential`: what the classes of Harbor read, kept as data."""

import json
from pathlib import Path

import pytest

from harbor_folders import ours
from harbor_folders.cases import write
from harbor_folders.compare import difference
from securebench.benchmark.harbor.keys import KEYS

FIRST, *CASES = map(json.loads, Path(__file__).with_name("recorded.jsonl").read_text().splitlines())
ENVIRONMENTS = ("environment", "verifier.environment", "steps[].verifier.environment")


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_a_folder_is_read_alike_or_refused(tmp_path, case):
    write(tmp_path / "task", case["files"])
    assert difference(case, ours.reading(tmp_path / "task")) == ""


def test_most_of_what_harbor_reads_is_read_here(tmp_path):
    read = 0
    accepted = [case for case in CASES if "read" in case]
    for number, case in enumerate(accepted):
        write(tmp_path / str(number), case["files"])
        read += "read" in ours.reading(tmp_path / str(number))
    assert read > 0.8 * len(accepted)


def test_the_table_has_every_key_of_the_classes():
    theirs = {key for key in FIRST["keys"] if not below_an_open_key(key)}
    old = {f"{place}.{name}" for place in ENVIRONMENTS for name in ("memory", "storage")}
    assert set(KEYS) - theirs == {"version", *old}
    assert theirs - set(KEYS) == set()


def below_an_open_key(key):
    return any(
        each.is_open and key.startswith((f"{name}.", f"{name}[]")) for name, each in KEYS.items()
    )


@pytest.mark.parametrize(
    ("theirs", "mine", "want"),
    [
        ({"read": {"a": 1}}, {"read": {"a": 1}}, ""),
        ({"read": {"a": 1}}, {"read": {"a": 1.0}}, ".a: harbor has 1, we have 1.0"),
        ({"read": {"a": [1]}}, {"read": {"a": []}}, ".a: harbor has [1], we have []"),
        ({"read": {"a": 1}}, {"read": {}}, ".a: harbor has 1, we have 'absent'"),
        ({"refused": "x"}, {"read": {}}, "harbor refuses it: x"),
        ({"read": {}}, {"refused": ["why"]}, ""),
        ({"read": {}}, {"refused": []}, "refused without a reason"),
    ],
)
def test_the_comparison_sees_a_difference(theirs, mine, want):
    assert difference(theirs, mine) == want
