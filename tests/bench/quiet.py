"""Waits until the nodes have taken away what earlier Pods left.

Once a minute the kubelet stops and removes the sandboxes of Pods that have been deleted; for each
the container runtime calls the network plugin twice more. Without a pause, what is measured next
pays for that.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping

from bench.product import kubectl, samples
from scale.simulated_nodes import MANAGED

OPERATIONS = "kubelet_runtime_operations_total"
LONGEST_SECONDS = 240.0
STEP_SECONDS = 2.0


def sandboxes_left(metrics: Mapping[str, float]) -> float:
    """Return how many sandboxes of a node belong to no running Pod.

    Args:
        metrics: Samples of its kubelet. It counts from its own start, and failed attempts too: one
            that was restarted finds fewer, one whose sandboxes failed to start finds more.
    """
    made, removed = (
        metrics.get(f'{OPERATIONS}{{operation_type="{name}_podsandbox"}}', 0.0)
        for name in ("run", "remove")
    )
    return made - removed - metrics["kubelet_running_pods"]


def left_on_nodes() -> float:
    """Return the sandboxes without a running Pod on all nodes that have a kubelet."""
    listed = json.loads(kubectl("get", "nodes", "-l", f"!{MANAGED}", "-o", "json"))
    names = [node["metadata"]["name"] for node in listed["items"]]
    paths = [f"/api/v1/nodes/{name}/proxy/metrics" for name in names]
    return sum(max(sandboxes_left(samples(kubectl("get", "--raw", path))), 0) for path in paths)


async def rested(
    left: Callable[[], float] = left_on_nodes,
    longest: float = LONGEST_SECONDS,
    step: float = STEP_SECONDS,
) -> bool:
    """Wait until no sandbox is left; return False where some are after the longest wait.

    Args:
        left: How many there are.
        longest: Seconds.
        step: Seconds between two looks.
    """
    deadline = time.monotonic() + longest
    while left() > 0:
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(step)
    return True
