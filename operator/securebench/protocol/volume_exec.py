"""What command line and operator say to each other by exec, beside names and bytes."""

from __future__ import annotations

from typing import NamedTuple

MAX_ANSWER_BYTES = 64 * 1024**2
"""Most bytes of one ``get-run`` answer; the rest is asked for again."""


class Mark(NamedTuple):
    """A prefix that the asker has already.

    Args:
        offset: Its length in bytes.
        sha256: Hex SHA-256 of these bytes.
    """

    offset: int
    sha256: str


class LaunchNumbers(NamedTuple):
    """Which launch; tasks count from 0 in pack order, attempts and launches from 1."""

    task: int
    attempt: int
    launch: int
