"""The digest that binds results to their harness (contract 15.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.digests import json_digest

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
    return json_digest(content)
