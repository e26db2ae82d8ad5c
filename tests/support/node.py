"""The local node from outside: processes of its Pods, and its daemons."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from support.release import ROOT, CommandError, call
from support.waiting import until

CLUSTER = ROOT / "tests" / "cluster" / "cluster"
PATIENCE_SECONDS = 120.0


class Process(NamedTuple):
    """A process of a Pod.

    Attributes:
        pid: On this machine.
        words: Its command line.
    """

    pid: int
    words: tuple[bytes, ...]

    def has(self, word: bytes) -> bool:
        """Whether a word stands in its command line."""
        return word in self.words


def is_local() -> bool:
    """Whether the cluster is the local node, not kind."""
    return os.environ.get("SECUREBENCH_CLUSTER") == "node"


def processes(uid: str) -> Iterator[Process]:
    """Yield the processes of the Pod with this uid; none for an empty one."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
            groups = (folder / "cgroup").read_text()
        except OSError:
            continue
        if uid and (uid in groups or uid.replace("-", "_") in groups):
            yield Process(int(folder.name), tuple(words))


def kill_process(uid: Callable[[], str], is_meant: Callable[[Process], bool]) -> None:
    """Kill -9 a process of a Pod, as soon as there is one.

    Args:
        uid: Returns the Pod's, or an empty text while there is none; asked again where the Pod has
            no such process.
        is_meant: Which process.
    """

    def is_killed() -> bool:
        for process in processes(uid()):
            if is_meant(process):
                os.kill(process.pid, signal.SIGKILL)
                return True
        return False

    until(is_killed, "no process of the Pod was found on this machine")


def restart_daemon(name: str, seconds: float) -> None:
    """Kill a daemon of the local node, start it again after so long, and wait for the node."""
    call(str(CLUSTER), "restart", name, f"{seconds:g}", seconds=seconds + PATIENCE_SECONDS)
    until(_is_ready, f"the node is not Ready after a restart of {name}")


def _is_ready() -> bool:
    jsonpath = 'jsonpath={.items[*].status.conditions[?(@.type=="Ready")].status}'
    try:
        return call("kubectl", "get", "nodes", "-o", jsonpath, "--request-timeout=5s") == b"True"
    except CommandError:
        return False
