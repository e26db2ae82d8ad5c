"""Answers of the exec protocol about a run that is under way."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from securebench.protocol.exec_calls import LaunchNumbers


class FoundLaunches(NamedTuple):
    """Attempts of a run with their launches.

    Args:
        attempts: As docs/reference/protocol.md describes them.
        left_out: How many more there are, which made the answer too large.
        now: The operator's clock, seconds since the epoch; infinite if an earlier operator does
            not tell it.
    """

    attempts: tuple[Mapping[str, object], ...]
    left_out: int
    now: float = math.inf


class ActiveAttempts(NamedTuple):
    """Attempts in flight of a run.

    Args:
        attempts: As docs/reference/protocol.md describes them, in pack order.
        now: The operator's clock, seconds since the epoch.
    """

    attempts: tuple[Mapping[str, object], ...]
    now: float


class OutputPart(NamedTuple):
    """New bytes of a stream; may end in the middle of a line."""

    stream: str
    offset: int
    data: bytes


class AttemptOutput(NamedTuple):
    """What an attempt has printed since it was asked for.

    Args:
        attempt: Its number, 0 while none was begun.
        launch: Number of its last harness launch, 0 without one.
        is_finished: Whether every attempt of the task that was begun has its record.
        parts: New bytes, at most one part for each stream.
    """

    attempt: int
    launch: int
    is_finished: bool
    parts: tuple[OutputPart, ...]


class LivePart(NamedTuple):
    """New output of an agent since the last request.

    Args:
        launch: The launch that printed it.
        offset: Position in the launch's output.
        data: The bytes; may end in the middle of a line.
    """

    launch: LaunchNumbers
    offset: int
    data: bytes
