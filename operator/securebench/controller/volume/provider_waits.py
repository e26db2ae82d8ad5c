"""Reads what a run's gateway says of its model provider: waits, and use of the budget. Blocks."""

from __future__ import annotations

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
"""The files have less than 4 KiB; what is longer is none."""
_STATUSES = range(600)
_END_OF_TIME = 253_402_300_800.0
"""After the year 9999, which no time that is written has, in seconds since the epoch."""


def read_waits(store: RunStore) -> ProviderWaits:
    """Return what the run's gateway says; nobody waits where it says nothing that has sense.

    Raises:
        OSError: The volume failed.
    """
    try:
        waits = decode(ProviderWaits, _state(store, WAITS_FILE))
    except ValueError:
        return ProviderWaits()
    is_sound = len(waits.longest) <= min(MAX_LISTED_WAITS, waits.launches)
    return waits if is_sound and all(map(_is_sound, waits.longest)) else ProviderWaits()


def read_tokens_used(store: RunStore) -> int:
    """Return what the run's gateway says is used of the budget; 0 where it says nothing of sense.

    Raises:
        OSError: The volume failed.
    """
    try:
        usage = decode(RunUsage, _state(store, USAGE_FILE))
    except ValueError:
        return 0
    return max(usage.tokens, 0)


def _state(store: RunStore, name: str) -> bytes:
    """Return the content of a gateway's file; empty for one that is missing or too long."""
    try:
        with (store.gateway_folder / name).open("rb") as file:
            text = file.read(STATE_BYTES + 1)
    except FileNotFoundError:
        return b""
    return text if len(text) <= STATE_BYTES else b""


def _is_sound(wait: ProviderWait) -> bool:
    times = (wait.since, wait.since if wait.until is None else wait.until)
    return wait.status in _STATUSES and all(0 <= each < _END_OF_TIME for each in times)
