"""Sizes and volumes of Pods: requests, limits, what containers mount, how a workspace is laid out.

Every container and every emptyDir has a size. The kubelet compares the sum of all ephemeral-storage
limits of a Pod with what its containers and its emptyDirs hold together, so the limit of a task
container covers the emptyDirs that it mounts. Harness and check Pods lay a workspace out alike.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from securebench.protocol.candidate import KINDS
from securebench.protocol.messages import DigestedPath
from securebench.protocol.supervise import SOURCES
from securebench.run import layout
from securebench.run.api.field_types import quantity
from securebench.run.api.models import DEFAULT_MEMORY_LIMIT, DEFAULT_REQUESTS
from securebench.run.artifacts import Given, Lanes, Part, Taken
from securebench.run.plan.model import LaunchKey, PodPolicy, TaskLimits, TaskPlan
from securebench.sizes import GIB, MIB

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from securebench.benchmark.pack.lane_plan import LaneSet
    from securebench.run.plan.environment import Environment, EnvironmentLimits
    from securebench.run.plan.model import RunPlan
    from securebench.run.state.attempts import SealedCandidate

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

LOG_BYTES = GIB
"""All folders of logs together."""

CHANGES_BYTES = 16 * MIB
"""A list of really changed paths."""

ROOT_BYTES = GIB
"""What a check may write into its root file system."""

MARGIN_BYTES = 64 * MIB
"""Termination messages, reports, folders, rounding."""


def root_bytes(policy: PodPolicy, environment: Environment) -> int:
    """Return what a container may write into its root file system.

    Without a workspace that is also what would be in the workspace.
    """
    if not environment.writable_root:
        return 0
    if environment.limits.storage_bytes is not None:
        return environment.limits.storage_bytes
    return ROOT_BYTES if environment.workspace else ROOT_BYTES + workspace_bytes(policy)


def task_resources(
    policy: PodPolicy, limits: EnvironmentLimits, storage_bytes: int
) -> dict[str, object]:
    """Return requests and limits of a task container.

    Args:
        policy: Its requests and limits are kept; what they lack is filled in, a filled-in value
            never contradicts a given one.
        limits: The environment's own; no request is above one of them.
        storage_bytes: What the Pod's emptyDirs and the container's root may hold.
    """
    own = _own_limits(limits)
    found = {STORAGE: _mebibytes(storage_bytes), **policy.limits, **own}
    for name, default in DEFAULT_LIMITS.items():
        found.setdefault(name, max(default, policy.requests.get(name, default), key=quantity))
    requests = lowered(policy.requests, own)
    for name, default in {**DEFAULT_REQUESTS, STORAGE: STORAGE_REQUEST}.items():
        requests.setdefault(name, min(default, found[name], key=quantity))
    return container_resources(requests, found)


def _own_limits(limits: EnvironmentLimits) -> dict[str, str]:
    cpus, memory_bytes = limits.cpus, limits.memory_bytes
    found = {} if cpus is None else {CPU: f"{math.ceil(cpus * 1000)}m"}
    return found if memory_bytes is None else {**found, MEMORY: _mebibytes(memory_bytes)}


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
    if not SOURCES[task.extraction.mode].is_stream:
        return limits.stream_bytes
    return max(limits.stream_bytes, KINDS[task.extraction.kind].limit(limits))


def tail_bytes(limits: TaskLimits) -> int:
    """Return how much of the end of a stream is kept when it is longer than the beginning."""
    return limits.stream_bytes // 2


def output_bytes(limits: TaskLimits, head: int | None = None) -> int:
    """Return the size limit of the volume of captured streams.

    Args:
        limits: How much of a stream is kept.
        head: Bytes of the beginning that are kept, where that is more than of other streams.
    """
    return 2 * ((limits.stream_bytes if head is None else head) + tail_bytes(limits)) + MARGIN_BYTES


def _mebibytes(size_bytes: int) -> str:
    """Return a size as a Kubernetes quantity, rounded up."""
    return f"{-(-size_bytes // MIB)}Mi"


WORKSPACE = "workspace"
OUTPUT = "output"
LOGS = "logs"
BESIDE = "beside"
TEMPORARY = "temporary"
HOME = "home"
EGRESS_TOKEN = "egress-token"  # noqa: S105 - a volume's name
PROVIDER = "provider"
AUTHORITIES = "authorities"

READABLE = 0o444
"""For containers that are not root: without fsGroup such files belong to root."""


class OwnVolume(NamedTuple):
    """A volume of the Pod itself, at its place in a container; the Pod has it because of that.

    Attributes:
        volume: As the Pod has it.
        path: Absolute folder in the container.
        size_bytes: What the container may write there on the node's disk.
        sub_path: Part of the volume, relative; the whole volume when empty.
        read_only: Whether the container can only read it.
    """

    volume: dict[str, object]
    path: str
    size_bytes: int = 0
    sub_path: str = ""
    read_only: bool = False

    @property
    def mount(self) -> dict[str, object]:
        """The mount of the container."""
        name = str(self.volume["name"])
        return mount(name, self.path, sub_path=self.sub_path, read_only=self.read_only)


def empty_dir(name: str, size_bytes: int, path: str) -> OwnVolume:
    """Return a folder on the node's disk that lives as long as the Pod."""
    volume: dict[str, object] = {"name": name, "emptyDir": {"sizeLimit": _mebibytes(size_bytes)}}
    return OwnVolume(volume, path, size_bytes)


def service_account_token(
    name: str, path: str, audience: str, expiration_seconds: int
) -> OwnVolume:
    """Return a token of the Pod's service account for one audience; the kubelet renews it.

    Args:
        name: Name of the volume.
        path: Absolute path of the token's file in the container.
        audience: The only one that the token is good for.
        expiration_seconds: At least 600; the API server may give less.
    """
    folder, _, file = path.rpartition("/")
    token = {"path": file, "audience": audience, "expirationSeconds": expiration_seconds}
    projected = {"sources": [{"serviceAccountToken": token}]}
    return OwnVolume({"name": name, "projected": projected}, folder, read_only=True)


def secret_key(name: str, secret: str, key: str, path: str) -> OwnVolume:
    """Return one entry of a Secret as a file; the others of the Secret are left out."""
    folder, _, file = path.rpartition("/")
    items = [{"key": key, "path": file}]
    entry = {"secretName": secret, "items": items, "defaultMode": READABLE}
    return OwnVolume({"name": name, "secret": entry}, folder, read_only=True)


def config_map_key(name: str, config_map: str, path: str) -> OwnVolume:
    """Return the entry of a ConfigMap that has the file's name as that file."""
    folder, _, file = path.rpartition("/")
    entry = {"name": config_map, "items": [{"key": file, "path": file}]}
    return OwnVolume({"name": name, "configMap": entry}, folder, read_only=True)


def shared_memory(container: str) -> OwnVolume:
    """Return the memory of a task container's own /dev/shm, which no other container reaches."""
    limit = {"medium": "Memory", "sizeLimit": _mebibytes(SHARED_MEMORY_BYTES)}
    return OwnVolume({"name": f"shm-{container}", "emptyDir": limit}, layout.SHARED_MEMORY)


def workspace(policy: PodPolicy, path: str, name: str = WORKSPACE) -> OwnVolume:
    """Return a workspace at its place in a container."""
    return empty_dir(name, workspace_bytes(policy), path)


def temporary(name: str = TEMPORARY) -> OwnVolume:
    """Return a container's folder for everybody's temporary files."""
    return empty_dir(name, TEMPORARY_BYTES, layout.TEMPORARY)


def home(name: str = HOME) -> OwnVolume:
    """Return the home of a check."""
    return empty_dir(name, HOME_BYTES, layout.HOME)


def logs(folders: Iterable[str] = layout.LOG_FOLDERS) -> list[OwnVolume]:
    """Return folders of logs of a Harbor task, side by side in one volume; they are empty."""
    volume = empty_dir(LOGS, LOG_BYTES, "")
    return [volume._replace(path=path, sub_path=path.rpartition("/")[2]) for path in folders]


def output(size_bytes: int) -> OwnVolume:
    """Return the volume of captured streams, with what else supervise writes."""
    return empty_dir(OUTPUT, size_bytes, layout.OUTPUT)


def mount(
    volume: str, path: str, *, sub_path: str = "", read_only: bool = False
) -> dict[str, object]:
    """Return one mount of a container.

    Args:
        volume: Name of the volume.
        path: Absolute folder or file in the container.
        sub_path: Part of the volume, relative; the whole volume when empty.
        read_only: Whether the container can only read it.
    """
    result: dict[str, object] = {"name": volume, "mountPath": path}
    if sub_path:
        result["subPath"] = sub_path
    if read_only:
        result["readOnly"] = True
    return result


def lane_mount(plan: RunPlan, task: TaskPlan, lane: str, path: str) -> Taken:
    """Return a lane at its place in a container."""
    return Taken(Lanes(plan.identity.uid, task.index), path, lane)


def asset_mounts(plan: RunPlan, task: TaskPlan, lanes: LaneSet) -> list[Taken]:
    """Return the read-only public assets at their places in the workspace."""
    return [
        lane_mount(
            plan,
            task,
            f"{layout.LANE_PUBLIC}/{asset.lane_path}",
            task.environment.inside(asset.mount),
        )
        for asset in lanes.asset_mounts
    ]


def asset_places(lanes: LaneSet) -> list[str]:
    """Return where read-only public assets lie, relative to the workspace."""
    return [asset.mount for asset in lanes.asset_mounts]


def beside_mounts(places: Iterable[str], workspace: str, policy: PodPolicy) -> list[OwnVolume]:
    """Return the folders above mount points in the workspace, outermost first.

    Left to the container runtime they would belong to root, and the task could not write beside
    the mounts. The kubelet makes a missing sub-path with the mode of its volume, 0777, but only its
    last component: so each folder is one of a volume of their own, side by side. Nobody mounts that
    volume as a whole, so nobody can exchange them. Whoever writes there takes it for the workspace,
    so it adds nothing to the limits.

    Args:
        places: Mount points relative to the workspace.
        workspace: Where the container has the workspace.
        policy: Has the workspace's size.
    """
    parents: dict[str, None] = {}
    for place in places:
        parts = place.split("/")[:-1]
        parents |= dict.fromkeys("/".join(parts[: end + 1]) for end in range(len(parts)))
    volume = empty_dir(BESIDE, workspace_bytes(policy), "").volume
    return [
        OwnVolume(volume, f"{workspace.rstrip('/')}/{parent}", sub_path=str(number))
        for number, parent in enumerate(sorted(parents))
    ]


def candidate_mount(
    plan: RunPlan, launch: LaunchKey, candidate: SealedCandidate, path: str
) -> Taken:
    """Return a candidate at its place in a container.

    Args:
        plan: The run.
        launch: The verifier's launch; the candidate may come from one of another number.
        candidate: What is judged.
        path: Folder in the container.
    """
    producer = launch._replace(launch=candidate.launch)
    return Taken(layout.launch_part(plan.identity.uid, producer, Part.CANDIDATE), path)


def part_mount(plan: RunPlan, launch: LaunchKey, part: Part, path: str) -> Given:
    """Return the folder in which a container leaves a part of a launch."""
    return Given(layout.launch_part(plan.identity.uid, launch, part), path)


def candidate_file(candidate: SealedCandidate, folder: str) -> DigestedPath:
    """Return where a candidate lies in a container, with the digest to compare.

    Args:
        candidate: It has a file.
        folder: Where it is mounted.
    """
    return DigestedPath(f"{folder}/{candidate.file}", candidate.digest)
