"""docs/reference/responsibilities.md names only what is there."""

import re
from importlib import import_module
from pathlib import Path

import pytest

import securebench

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "responsibilities.md"
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| ---")
]
PLACES = sorted(
    {place for row in ROWS for place in re.findall(r"`([a-z_]+(?:\.\w+)+)`", row[-1])}
    | set(
        re.findall(
            r"`([a-z_]+\.[\w.]+)`", PAGE.read_text(encoding="utf-8").split("Not from that")[1]
        )
    )
)


def found(place):
    module, _, name = place.rpartition(".")
    try:
        return hasattr(import_module(f"securebench.{module}"), name)
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("place", PLACES)
def test_the_place_exists(place):
    assert found(place) or import_module(f"securebench.{place}")


def test_every_row_has_a_place_or_says_that_there_is_none():
    assert len(ROWS) > 40
    for row in ROWS:
        assert re.search(r"`\w+\.\w+|later|none|place", row[-1]), row


def test_the_facade_is_complete():
    named = {name for row in ROWS if len(row) == 2 for name in re.findall(r"`(\w+)`", row[0])}
    assert named == set(securebench.__all__)
