from __future__ import annotations

import json
from pathlib import Path

import pytest

from securebench.sandbox.candidate.links import stays_inside

TABLE = Path(__file__).parents[4] / "images/supervise/testdata/links.json"
"""Read by supervise's test too."""

CASES = {case["name"]: case for case in json.loads(TABLE.read_bytes())}


@pytest.mark.parametrize("name", CASES)
def test_which_links_may_cross(name: str) -> None:
    case = CASES[name]
    assert stays_inside(case["path"], case["target"]) is case["stays"]
