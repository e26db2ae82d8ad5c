"""Measured values of several rounds: median and the whole spread."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import NamedTuple


class Spread(NamedTuple):
    """What several rounds gave."""

    median: float
    low: float
    high: float

    def text(self, digits: int = 2) -> str:
        """Return the median, with the whole spread behind it."""
        return f"{self.median:.{digits}f} ({self.low:.{digits}f} to {self.high:.{digits}f})"


def spread(values: Sequence[float]) -> Spread:
    """Return median, least and greatest of at least one value."""
    return Spread(statistics.median(values), min(values), max(values))


def ratios(ours: Sequence[float], floors: Sequence[float]) -> Spread:
    """Return the ratio to the floor, taken round by round: only one go compares."""
    return spread([mine / floor for mine, floor in zip(ours, floors, strict=True)])
