"""Packs on the volume, frozen as a new run does it."""

from pathlib import Path

from securebench.benchmark.files.bundle import BundleLimits
from securebench.controller.context import FrozenPack
from securebench.controller.packs import (
    FolderSource,
    ImageSource,
    PackSource,
    freeze,
)
from securebench.run.api.models import Pack

LIMITS = BundleLimits()


def stored_source(root: Path, pack: Pack, limits: BundleLimits = LIMITS) -> PackSource:
    """Return where the files of a pushed or pulled pack are."""
    if pack.image is not None:
        return ImageSource(root, pack.image, limits)
    assert pack.volume is not None
    return FolderSource(root, pack.volume.path, limits)


def freeze_stored(root: Path, pack: Pack, limits: BundleLimits = LIMITS) -> FrozenPack:
    """Freeze a pushed or pulled pack."""
    return freeze(root, pack, stored_source(root, pack, limits))
