"""Bounds of a pack, whichever way it comes to the results volume."""

from __future__ import annotations

from securebench.benchmark.files.bundle import BundleLimits
from securebench.controller.volume_settings import VolumeSettings


def pack_limits(settings: VolumeSettings) -> BundleLimits:
    """Return the bounds of a pack that is pushed, pulled or copied."""
    return BundleLimits(settings.bounds.pack_files, settings.bounds.pack_bytes)
