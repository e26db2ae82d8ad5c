"""The programs of the Pod for viewers; it mounts published results alone, where runs would lie.

Source: decision 0038.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from securebench.benchmark.files.bundle import BundleLimits
from securebench.controller.exec.exec_io import Streams, serve
from securebench.controller.exec.exec_packs import Volume
from securebench.controller.volume.results import READY
from securebench.controller.volume_settings import DATA_ROOT
from securebench.run.layout import RUNS

_READY_SECONDS = 60.0
"""The operator makes the folder when it starts. Until then the kubelet mounts one of its own, and
only a new start of the container mounts the right one."""

_PAUSE_SECONDS = 0.5


def viewer_io(arguments: Sequence[str], root: Path = DATA_ROOT) -> int:
    """Answer one call of a viewer, as the operator's Pod does for testers."""
    streams = Streams(sys.stdin.buffer, sys.stdout.buffer, sys.stderr.buffer)
    return serve(arguments, volume=Volume(root, BundleLimits()), streams=streams)


def wait_for_viewers(
    root: Path = DATA_ROOT,
    *,
    pause: Callable[[], object] = signal.pause,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> int:
    """Keep the Pod running, once it is known to mount the operator's folder.

    Returns:
        1 when the folder is not the operator's; otherwise this ends by a signal only.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    late = clock() + _READY_SECONDS
    while not (root / RUNS / READY).exists():
        if clock() > late:
            sys.stderr.write("the folder of published results is not there yet\n")
            return 1
        sleep(_PAUSE_SECONDS)
    while True:
        pause()
