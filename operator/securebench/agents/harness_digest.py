"""The digest that binds results to their harness (contract 15.6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.agents.registry import forwarded
from securebench.core.digests import json_digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from securebench.agents.harness_config import HarnessConfig


def harness_digest(
    harness: HarnessConfig, env: Iterable[str] = (), *, audit: bool = False, answers: str = ""
) -> str:
    """Return ``sha256:`` and the hex digest over type, variable names, config and domains.

    Results of an audit differ from all others, so that no resume joins them.

    Args:
        harness: With its defaults filled in, so that a spelled-out default changes nothing.
        env: Names of ``harness.env``; order and repetitions do not matter, values are not read
            and keys of a provider that its gateway keeps do not count.
        audit: Whether the run examines a pack.
        answers: Digest of the reference answers that an oracle hands in, or empty.
    """
    content: dict[str, object] = {
        "type": harness.type,
        "env": sorted(set(forwarded(harness.type, env))),
        "config": harness.filled_config(),
        "domains": list(harness.effective_domains),
    }
    if audit:
        content |= {"audit": True, "answers": answers}
    return json_digest(content)
