"""Reads what a run's gateway says of its model provider: waits, and use of the budget. Blocks."""

from __future__ import annotations

from typing import NamedTuple

from securebench.controller.volume.store import RunStore
from securebench.core.sizes import KIB
from securebench.protocol.gateway import (
    MAX_LISTED_WAITS,
    USAGE_FILE,
    WAITS_FILE,
    ProviderWait,
    ProviderWaits,
    RunUsage,
    decode,
)

STATE_BYTES = 16 * KIB
"""Longest file that is read; the gateway writes less than 4 KiB."""
_STATUSES = range(600)
_END_OF_TIME = 253_402_300_800.0
"""After the year 9999, which no time that is written has, in seconds since the epoch."""


class GatewayState(NamedTuple):
    """What the files of a run's gateway say; the defaults where they say nothing valid.

    Args:
        waits: Launches that the model provider makes wait.
        tokens_used: Tokens of the run's budget that are used.
    """

    waits: ProviderWaits = ProviderWaits()
    tokens_used: int = 0


def read_gateway_state(store: RunStore) -> GatewayState:
    """Return what the files of the run's gateway say.

    Raises:
        OSError: The volume failed.
    """
    return GatewayState(_waits(_content(store, WAITS_FILE)), _tokens(_content(store, USAGE_FILE)))


def _waits(text: bytes) -> ProviderWaits:
    try:
        waits = decode(ProviderWaits, text)
    except ValueError:
        return ProviderWaits()
    is_sound = len(waits.longest) <= min(MAX_LISTED_WAITS, waits.launches)
    return waits if is_sound and all(map(_is_sound, waits.longest)) else ProviderWaits()


def _is_sound(wait: ProviderWait) -> bool:
    times = (wait.since, wait.since if wait.until is None else wait.until)
    return wait.status in _STATUSES and all(0 <= each < _END_OF_TIME for each in times)


def _tokens(text: bytes) -> int:
    try:
        usage = decode(RunUsage, text)
    except ValueError:
        return 0
    return max(usage.tokens, 0)


def _content(store: RunStore, name: str) -> bytes:
    """Return the content of a gateway's file; empty for one that is missing or too long."""
    try:
        with (store.gateway_folder / name).open("rb") as file:
            text = file.read(STATE_BYTES + 1)
    except FileNotFoundError:
        return b""
    return text if len(text) <= STATE_BYTES else b""
