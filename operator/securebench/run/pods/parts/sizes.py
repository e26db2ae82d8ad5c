"""Requests, limits and sizes: every container and every emptyDir has them.

The kubelet compares the sum of all ephemeral-storage limits of a Pod with what its containers and
its emptyDirs hold together, so the limit of the task container covers the Pod's emptyDirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.protocol.candidate import ExtractionMode
from securebench.run.api.field_types import quantity
from securebench.run.api.models import DEFAULT_MEMORY_LIMIT, DEFAULT_REQUESTS
from securebench.run.plan.model import PodPolicy, TaskLimits, TaskPlan
from securebench.sizes import GIB, MIB

if TYPE_CHECKING:
    from collections.abc import Mapping

CPU = "cpu"
MEMORY = "memory"
STORAGE = "ephemeral-storage"

DEFAULT_LIMITS = {CPU: "4", MEMORY: DEFAULT_MEMORY_LIMIT}
"""Limits of a task container where the plan says nothing (memory: contract 10). Without a CPU
limit a namespace with a quota on CPU limits would refuse the Pod."""

COURIER_REQUESTS = {CPU: "10m", MEMORY: "32Mi", STORAGE: "16Mi"}
COURIER_LIMITS = {CPU: "1", MEMORY: "256Mi", STORAGE: "64Mi"}
"""Buffers, and the names of a workspace: at most 32 MiB of them for any number of files."""

VERIFIER_REQUESTS = {CPU: "50m", MEMORY: "64Mi", STORAGE: "16Mi"}
VERIFIER_LIMITS = {CPU: "1", MEMORY: "256Mi", STORAGE: "64Mi"}
"""Python, one candidate text and one answer."""

PROBE_REQUESTS = {CPU: "10m", MEMORY: "32Mi", STORAGE: "16Mi"}
PROBE_LIMITS = {CPU: "500m", MEMORY: "128Mi", STORAGE: "64Mi"}

SIDECAR_REQUESTS = {CPU: "10m", MEMORY: "32Mi", STORAGE: "16Mi"}
SIDECAR_LIMITS = {CPU: "1", MEMORY: "128Mi", STORAGE: "64Mi"}
"""A Go program and the buffers of as many connections as the sidecar accepts."""

GATEWAY_MILLICORES = 50
GATEWAY_MILLICORES_PER_POD = 4
GATEWAY_MILLICORES_MOST = 400
"""CPU request of a gateway: also its weight where a node's CPU is short, beside the agents that it
serves (decision 0091). Bounded, so that a small node has room for it."""

GATEWAY_REQUESTS = {MEMORY: "128Mi", STORAGE: "16Mi"}
GATEWAY_LIMITS = {CPU: "2", STORAGE: "128Mi"}
"""Its memory is a setting."""
GATEWAY_TEMPORARY_BYTES = 16 * MIB

STORAGE_REQUEST = "64Mi"
"""Reserved disk of a task container; its limit says what it may use."""

TEMPORARY_BYTES = GIB
HOME_BYTES = 256 * MIB
AGENT_HOME_BYTES = 512 * MIB
"""State and temporary files of an agent's CLI."""
SHARED_MEMORY_BYTES = 64 * MIB
"""As Docker gives; counts as memory of the container that writes it."""

CHANGES_BYTES = 16 * MIB
"""A list of really changed paths."""

ROOT_BYTES = GIB
"""What a check may write into its root file system."""

MARGIN_BYTES = 64 * MIB
"""Termination messages, reports, folders, rounding."""


def task_resources(policy: PodPolicy, storage_bytes: int) -> dict[str, object]:
    """Return requests and limits of a task container.

    Args:
        policy: Its requests and limits are kept; what they lack is filled in, a filled-in value
            never contradicts a given one.
        storage_bytes: What the Pod's emptyDirs and the container's root may hold.
    """
    limits = {STORAGE: mebibytes(storage_bytes), **policy.limits}
    for name, default in DEFAULT_LIMITS.items():
        limits.setdefault(name, max(default, policy.requests.get(name, default), key=quantity))
    requests = dict(policy.requests)
    for name, default in {**DEFAULT_REQUESTS, STORAGE: STORAGE_REQUEST}.items():
        requests.setdefault(name, min(default, limits[name], key=quantity))
    return container_resources(requests, limits)


def container_resources(
    requests: Mapping[str, str], limits: Mapping[str, str]
) -> dict[str, object]:
    """Return the ``resources`` of a container, in the order of their names."""
    return {"requests": dict(sorted(requests.items())), "limits": dict(sorted(limits.items()))}


def gateway_requests(parallelism: int) -> dict[str, str]:
    """Return the requests of the gateway of a run with so many Pods in flight."""
    wanted = GATEWAY_MILLICORES + GATEWAY_MILLICORES_PER_POD * parallelism
    return {CPU: f"{min(wanted, GATEWAY_MILLICORES_MOST)}m", **GATEWAY_REQUESTS}


def lowered(requests: Mapping[str, str], limits: Mapping[str, str]) -> dict[str, str]:
    """Return requests of which none is above its limit."""
    return {
        name: min(value, limits.get(name, value), key=quantity) for name, value in requests.items()
    }


def workspace_bytes(policy: PodPolicy) -> int:
    """Return the size limit of the workspace in bytes."""
    return int(quantity(policy.workspace_size))


def head_bytes(task: TaskPlan, limits: TaskLimits) -> int:
    """Return how much of the beginning of a harness's stdout is kept.

    A candidate on stdout is complete up to its own bound (contract 15.7).
    """
    if task.extraction.mode != ExtractionMode.STDOUT:
        return limits.stream_bytes
    bound = limits.patch_bytes if task.extraction.kind == "patch" else limits.text_bytes
    return max(limits.stream_bytes, bound)


def tail_bytes(limits: TaskLimits) -> int:
    """Return how much of the end of a stream is kept when it is longer than the beginning."""
    return limits.stream_bytes // 2


def output_bytes(head: int, limits: TaskLimits) -> int:
    """Return the size limit of the volume of captured streams."""
    return 2 * (head + tail_bytes(limits)) + MARGIN_BYTES


def mebibytes(size_bytes: int) -> str:
    """Return a size as a Kubernetes quantity, rounded up."""
    return f"{-(-size_bytes // MIB)}Mi"
