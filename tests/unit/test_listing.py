"""Texts in one line of a message."""

from __future__ import annotations

import pytest

from securebench.text import listed

NAMES = ["a", "b", "c"]


@pytest.mark.parametrize(
    ("names", "limit", "want"),
    [
        ([], 2, ""),
        (NAMES[:2], 2, "a, b"),
        (NAMES, 2, "a, b and 1 more"),
        (NAMES * 2, 2, "a, b and 4 more"),
    ],
)
def test_only_the_first_are_named(names: list[str], limit: int, want: str) -> None:
    assert listed(names, limit) == want


def test_texts_with_commas_have_another_separator() -> None:
    assert listed(NAMES, 2, separator="; ") == "a; b; and 1 more"
    assert listed(NAMES, 3, separator="; ") == "a; b; c"
