"""CPU seconds of a node by who spent them, read from /proc and the cgroups.

The local node's daemons, containers and this program share one kernel, so that one look at /proc
sees them all. What is left of the machine's seconds is the kernel's and that of other work.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

HERTZ = os.sysconf("SC_CLK_TCK")

DAEMONS = {
    "containerd": "containerd and its plugins",
    "kube-apiserver": "API server",
    "kubelet": "kubelet",
    "cilium-agent": "Cilium",
    "etcd": "etcd",
    "kube-controller": "controller manager",
    "kube-scheduler": "scheduler",
}
"""What a daemon is called, by the 15 characters of its name that the kernel keeps."""

SHIM = "containerd-shim"
SHIMS = "shims and runc"
MACHINE = "all"
PODS = "Pods"
OPERATOR = "of Pods: operator"
CLIENT = "this program"
REST = "kernel and others"

PROC = Path("/proc")
CGROUPS = Path("/sys/fs/cgroup")
CGROUP_DEPTH = 4
"""Folders down to that of all Pods, in either version of cgroups."""


class Process(NamedTuple):
    """CPU seconds of one process.

    Attributes:
        name: At most 15 characters.
        parent: Its parent's id.
        own: Seconds of its threads.
        children: Seconds of its ended children that it has waited for, and of theirs.
    """

    name: str
    parent: int
    own: float
    children: float


def process(stat: str) -> Process:
    """Read ``/proc/<id>/stat``; the name may hold blanks and parentheses."""
    name = stat[stat.index("(") + 1 : stat.rindex(")")]
    fields = stat[stat.rindex(")") + 1 :].split()
    user, system, children_user, children_system = (int(each) / HERTZ for each in fields[11:15])
    return Process(name, int(fields[1]), user + system, children_user + children_system)


def machine_seconds(stat: str) -> float:
    """Read the busy seconds of all cores from ``/proc/stat``: no idle, no I/O wait, no guests."""
    user, nice, system, _, _, irq, softirq = (int(each) for each in stat.split()[1:8])
    return (user + nice + system + irq + softirq) / HERTZ


def cgroup_seconds(counter: Path) -> float:
    """Read a cgroup's counter, which keeps what ended children used."""
    text = counter.read_text()
    if counter.name == "cpuacct.usage":
        return int(text) / 1e9
    usage = next(line for line in text.splitlines() if line.startswith("usage_usec "))
    return int(usage.split()[1]) / 1e6


def pods_counter(root: Path = CGROUPS) -> Path:
    """Find the counter of the cgroup of all Pods, in either version of cgroups.

    Raises:
        SystemExit: There is none: the node's containers do not run on this machine.
    """
    for folder, _, files in _folders(root):
        if folder.name.startswith("kubepods"):
            # In version 1 a cpu.stat tells of throttling only.
            if "cpuacct.usage" in files:
                return folder / "cpuacct.usage"
            if "cpu.stat" in files and "usage_usec" in (folder / "cpu.stat").read_text():
                return folder / "cpu.stat"
    raise SystemExit(f"no cgroup of Pods below {root}: measure on the machine of the node")


def _folders(root: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    for path, folders, files in os.walk(root):
        folder = Path(path)
        folders.sort()
        if len(folder.relative_to(root).parts) >= CGROUP_DEPTH:
            folders.clear()
        yield folder, folders, files


class Reading(NamedTuple):
    """What was read at one moment, in seconds since the machine or a process started."""

    machine: float
    pods: float
    processes: Mapping[int, Process]


def read(counter: Path, proc: Path = PROC) -> Reading:
    """Read everything once.

    Args:
        counter: Of the cgroup of all Pods.
        proc: Where the kernel shows processes.
    """
    processes = {}
    for folder in proc.glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            processes[int(folder.name)] = process((folder / "stat").read_text())
    machine = machine_seconds((proc / "stat").read_text())
    return Reading(machine, cgroup_seconds(counter), processes)


def spent(before: Reading, after: Reading, operator: float = 0.0) -> dict[str, float]:
    """Return the seconds between two readings by who spent them.

    A shim hands what it and its container used to whoever adopted it, when it ends; what the ended
    containers used is known of the cgroup and taken off.

    Args:
        before: The first reading.
        after: The second one.
        operator: Seconds of the operator's process, which runs in a Pod that goes on.
    """
    pods = after.pods - before.pods
    seconds = Counter({PODS: pods})
    for pid, new in after.processes.items():
        old = before.processes.get(pid, new)
        if new.name in DAEMONS:
            seconds[DAEMONS[new.name]] += new.own - old.own + new.children - old.children
        if new.name == SHIM:
            seconds[SHIMS] += new.own - old.own
    for pid in {each.parent for each in after.processes.values() if each.name == SHIM}:
        if pid in before.processes and pid in after.processes:
            adopted = after.processes[pid].children - before.processes[pid].children
            seconds[SHIMS] += max(0.0, adopted - (pods - operator))
    mine = [reading.processes.get(os.getpid()) for reading in (before, after)]
    if mine[0] is not None and mine[1] is not None:
        seconds[CLIENT] = mine[1].own - mine[0].own + mine[1].children - mine[0].children
    machine = after.machine - before.machine
    rest = machine - sum(seconds.values())
    return {MACHINE: machine, OPERATOR: operator, **seconds, REST: rest}
