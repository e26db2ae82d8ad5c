"""``securebench probe``: the kubelet's question whether the operator still looks at its runs.

It loads next to nothing: the kubelet starts it every few seconds.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from securebench.protocol import HEARTBEAT_FIELD


def probe(heartbeat: Path, max_age_seconds: float) -> int:
    """Look at the operator's heartbeat.

    Args:
        heartbeat: File that the operator writes after every list: ``{"lists_at": seconds}``.
        max_age_seconds: Oldest last list that counts as alive.

    Returns:
        Exit code 0 or 1.
    """
    try:
        listed_at = float(json.loads(heartbeat.read_bytes())[HEARTBEAT_FIELD])
    except (OSError, ValueError, KeyError, TypeError) as error:
        sys.stderr.write(f"no heartbeat: {type(error).__name__}\n")
        return 1
    age = time.time() - listed_at
    if age > max_age_seconds:
        sys.stderr.write(f"the last list is {age:.0f} s old\n")
        return 1
    return 0
