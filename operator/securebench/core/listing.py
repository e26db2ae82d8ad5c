"""Several texts in one line of a message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

MAX_LISTED: Final = 5
"""Texts that a message names where nothing else is said."""


def listed(texts: Sequence[str], limit: int = MAX_LISTED, *, separator: str = ", ") -> str:
    """Return the first few of some texts, and how many more there are.

    Args:
        texts: All of them.
        limit: How many are named.
        separator: Stands between them; one other than a comma also stands before the number.
    """
    rest = len(texts) - limit
    named = separator.join(texts[:limit])
    before = " " if separator == ", " else separator
    return f"{named}{before}and {rest} more" if rest > 0 else named
