"""The catalogue is whole, and the page about it says what it says."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from chaos.kit.catalogue import GROUPS, TIERS, catalogue, kinds, markdown
from chaos.kit.table import Rows
from chaos.kit.verdict import Verdict
from securebench import reasons

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/resilience.md"
LEAST_KINDS = 40


def test_there_are_kinds_enough():
    assert len(kinds("memory")) >= LEAST_KINDS


@pytest.mark.parametrize("kind", catalogue().values(), ids=lambda kind: kind.name)
def test_a_kind_says_what_is_known_of_it(kind):
    assert kind.tier in TIERS
    assert kind.group in GROUPS
    assert set(kind.lost) <= {word for word in vars(reasons).values() if isinstance(word, str)}
    assert not kind.fault.endswith(".")


def test_the_page_has_the_catalogue():
    assert markdown() in PAGE.read_text(encoding="utf-8"), (
        "python -m chaos.kit.catalogue writes the tables of docs/resilience.md"
    )


def test_a_table_says_what_happened(tmp_path):
    rows = Rows()
    rows.add("pod-evicted", Verdict((), Counter(pod_lost=2), is_equal=True))
    rows.add("watch-cut", Verdict(("passed is None",), Counter(), is_equal=False))
    rows.leave_out("api-away", "no node")
    rows.write(tmp_path / "table.json")
    assert re.search(r'"lost": \{\s*"pod_lost": 2', (tmp_path / "table.json").read_text())
    assert rows.sums() == (
        "chaos: 2 kinds, 2 injections in 2 runs, records equal in 1, "
        "2 launches lost and repeated, 1 problems"
    )
