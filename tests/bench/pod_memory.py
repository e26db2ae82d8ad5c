"""Memory of Pods of this machine's node, read from the cgroups and /proc.

Page cache is left out: the kernel takes it back, and files that many Pods map are charged to the
first one. What counts is anonymous memory, tmpfs and the kernel's own for the cgroup.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from bench.cpu import CGROUPS, PROC, SHIM

SUPERVISE = "supervise"
"""Name of our process in task containers; all others there are the agent's."""
SANDBOX = "sandbox"
POD = "Pod itself"
"""What is charged to the Pod's cgroup and to none of its containers."""
KIB = 1024

_PLACE = re.compile(r"/pod(?P<pod>[0-9a-f-]{36})/(?P<container>[0-9a-f]{64})")
_SHIM_ID = re.compile(rb"\0-id\0([0-9a-f]{64})\0")


class Process(NamedTuple):
    """One process of a container.

    Attributes:
        name: At most 15 characters.
        anonymous: Bytes of its own memory; what it shares is split.
    """

    name: str
    anonymous: int


class PodMemory(NamedTuple):
    """Bytes of one Pod.

    Attributes:
        containers: By name; also ``SANDBOX`` and ``POD``.
        agent: Anonymous memory of the agent's processes, which is in its container's.
        shim: Of the Pod's containerd-shim, which is in no cgroup of the Pod.
    """

    containers: Mapping[str, int]
    agent: int
    shim: int

    @property
    def beside(self) -> int:
        """All that the Pod takes besides its agent's processes, without the shim."""
        return sum(self.containers.values()) - self.agent


def unreclaimable(cgroup: Path) -> int:
    """Return the bytes of a cgroup without page cache, in either version of cgroups."""
    lines = (line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
    stat = {name: int(value) for name, value in lines}
    if (cgroup / "memory.current").exists():
        return int((cgroup / "memory.current").read_text()) - stat["file"] + stat["shmem"]
    kernel = int((cgroup / "memory.kmem.usage_in_bytes").read_text())
    return stat["total_rss"] + stat.get("total_shmem", 0) + kernel


def pod_cgroups(root: Path = CGROUPS) -> dict[str, Path]:
    """Return the memory cgroups of Pods by uid, in either version of cgroups."""
    found = {}
    for depth in range(3):
        for stat in root.glob("*/" * depth + "kubepods/memory.stat"):
            for pod in (*stat.parent.glob("pod*"), *stat.parent.glob("*/pod*")):
                found[pod.name.removeprefix("pod")] = pod
    return found


def processes(proc: Path = PROC) -> dict[str, list[Process]]:
    """Return the processes in containers of Pods, by container id."""
    found: defaultdict[str, list[Process]] = defaultdict(list)
    for folder in proc.glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            place = _PLACE.search((folder / "cgroup").read_text())
            if place is not None:
                name = (folder / "comm").read_text().strip()
                found[place["container"]].append(Process(name, _rollup(folder, "Pss_Anon")))
    return dict(found)


def shims(proc: Path = PROC) -> dict[str, int]:
    """Return the bytes of containerd's shims by the id of their sandbox; shared pages are split."""
    found = {}
    for folder in proc.glob("[0-9]*"):
        with suppress(OSError):
            if (folder / "comm").read_text().startswith(SHIM):
                sandbox = _SHIM_ID.search((folder / "cmdline").read_bytes())
                if sandbox is not None:
                    found[sandbox[1].decode()] = _rollup(folder, "Pss")
    return found


def pod_memory(
    cgroup: Path,
    names: Mapping[str, str],
    agent: str,
    running: Mapping[str, list[Process]],
    shim_bytes: Mapping[str, int],
) -> PodMemory:
    """Return the memory of one Pod.

    Args:
        cgroup: The Pod's.
        names: Of its containers, by id; the one that is missing is the sandbox.
        agent: Name of the container in which the agent works.
        running: Processes by container id.
        shim_bytes: By the id of the sandbox.
    """
    containers: defaultdict[str, int] = defaultdict(int)
    agent_bytes = shim = 0
    for container in _folders(cgroup):
        name = names.get(container.name, SANDBOX)
        containers[name] += unreclaimable(container)
        if name == SANDBOX:
            shim += shim_bytes.get(container.name, 0)
        if name == agent:
            own = (each for each in running.get(container.name, ()) if each.name != SUPERVISE)
            agent_bytes += sum(each.anonymous for each in own)
    containers[POD] = max(0, unreclaimable(cgroup) - sum(containers.values()))
    return PodMemory(dict(containers), agent_bytes, shim)


def _folders(cgroup: Path) -> Iterator[Path]:
    return (path for path in sorted(cgroup.iterdir()) if path.is_dir())


def _rollup(folder: Path, name: str) -> int:
    for line in (folder / "smaps_rollup").read_text().splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * KIB
    return 0
