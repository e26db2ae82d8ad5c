"""The digest that binds results to their harness (contract 15.6)."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.harnesses.config import Harness


def harness_digest(harness: Harness, env: Iterable[str] = ()) -> str:
    """Return ``sha256:`` and the hex digest over type, variable names, config and domains.

    Args:
        harness: With its defaults filled in, so that a spelled-out default changes nothing.
        env: Names of ``harness.env``; order and repetitions do not matter, values are not read.
    """
    content = {
        "type": harness.type,
        "env": sorted(set(env)),
        "config": harness.filled_config(),
        "domains": list(harness.effective_domains),
    }
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
