"""Reads and writes what launches of a run wait for. Blocks."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from securebench.controller.volume.store import RunStore
from securebench.protocol.launch_waits import (
    MAX_WAITS_BYTES,
    SharedWait,
    decode_waits,
    encode_waits,
)
from securebench.protocol.volume import LAUNCH_WAITS


def read_launch_waits(folder: Path) -> tuple[SharedWait, ...]:
    """Return the waits in a run's folder; none where its file is missing, too long or damaged.

    Raises:
        OSError: The volume failed.
    """
    try:
        with (folder / LAUNCH_WAITS).open("rb") as file:
            text = file.read(MAX_WAITS_BYTES + 1)
    except FileNotFoundError:
        return ()
    if len(text) > MAX_WAITS_BYTES:
        return ()
    try:
        return decode_waits(text)
    except ValueError:
        return ()


def write_launch_waits(store: RunStore, waits: Iterable[SharedWait]) -> None:
    """Replace the file of a run's waits.

    Raises:
        OSError: Another leader has the volume, or it failed.
    """
    store.write_json(LAUNCH_WAITS, encode_waits(waits))
