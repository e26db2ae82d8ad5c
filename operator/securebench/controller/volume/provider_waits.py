"""Reads which launches the model provider makes wait, as a run's gateway says. Blocks."""

from __future__ import annotations

from securebench.controller.volume.store import RunStore
from securebench.core.sizes import KIB
from securebench.protocol.gateway import (
    MAX_LISTED_WAITS,
    WAITS_FILE,
    ProviderWait,
    ProviderWaits,
    decode,
)

WAITS_BYTES = 16 * KIB
"""The file has less than 4 KiB; what is longer is none."""
_STATUSES = range(600)
_END_OF_TIME = 253_402_300_800.0
"""After the year 9999, which no time that is written has, in seconds since the epoch."""


def read_waits(store: RunStore) -> ProviderWaits:
    """Return what the run's gateway says; nobody waits where it says nothing that has sense.

    Raises:
        OSError: The volume failed.
    """
    try:
        with (store.gateway_folder / WAITS_FILE).open("rb") as file:
            text = file.read(WAITS_BYTES + 1)
        waits = decode(ProviderWaits, text if len(text) <= WAITS_BYTES else b"")
    except (FileNotFoundError, ValueError):
        return ProviderWaits()
    is_sound = len(waits.longest) <= min(MAX_LISTED_WAITS, waits.launches)
    return waits if is_sound and all(map(_is_sound, waits.longest)) else ProviderWaits()


def _is_sound(wait: ProviderWait) -> bool:
    times = (wait.since, wait.since if wait.until is None else wait.until)
    return wait.status in _STATUSES and all(0 <= each < _END_OF_TIME for each in times)
