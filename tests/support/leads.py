"""Leaders of a results volume."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from securebench.controller.volume.lead import VolumeLead, claim_epoch, revoke_earlier


def take_volume(
    root: Path, epoch: int, holder: str, require: Callable[[], None] = lambda: None
) -> VolumeLead:
    """Begin a leader's time on a volume in one go; arguments and errors as of the two steps."""
    lead = claim_epoch(root, epoch, holder, require)
    revoke_earlier(lead)
    return lead
