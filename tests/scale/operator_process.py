"""The operator as a process of this machine, watched from outside."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import IO

from bench.product import samples
from scale.simulated_nodes import CLAIM, MANAGED, WITH_US
from securebench.controller.settings import VARIABLES

START_SECONDS = 60.0
WATCHED_SECONDS = 0.05
DOCKERFILE = Path(__file__).parents[2] / "images" / "operator" / "Dockerfile"

PER_SECOND = 1_000
"""Pods that the operator may create; by default 5, which a node that starts containers needs."""


def settings(root: Path, port: int) -> Mapping[str, object]:
    """Return the operator's settings: no bound of its own on creating Pods, metrics at a port."""
    return {
        "podImage": "securebench-pod:scale",
        "gatewayImage": "securebench-operator:scale",
        "volumeClaim": CLAIM,
        "runsAccount": "default",
        "dataRoot": str(root),
        "userNamespaces": "Never",
        "metricsPort": port,
        "healthPort": 0,
        "creation": {
            "perSecond": PER_SECOND,
            "burst": PER_SECOND,
            "maxStarting": None,
            "maxStartingPerRun": None,
        },
        "podTemplate": {
            "nodeSelectorKeys": [MANAGED],
            "tolerations": [{"key": MANAGED, "operator": "Exists"}],
        },
    }


def environment(space: str) -> Mapping[str, str]:
    """Return the variables that the operator's Pod would have in a namespace."""
    place = {
        "namespace": space,
        "node_name": "none",
        "node_address": "192.0.2.1",
        "pod_name": "scale",
        "pod_uid": "scale",
    }
    return {VARIABLES[key]: value for key, value in place.items()} | image_environment()


def image_environment() -> Mapping[str, str]:
    """Return the variables that the operator's image sets, which bound its memory."""
    lines = DOCKERFILE.read_text(encoding="utf-8").splitlines()
    words = [word for line in lines if line.startswith("ENV MALLOC_") for word in line.split()[1:]]
    return dict(word.split("=", 1) for word in words)


class OperatorProcess:
    """One operator of a namespace.

    Args:
        space: The namespace.
        root: Of the results volume.
        work: Folder for its settings and tools.
        log: Gets what it says.
    """

    def __init__(self, space: str, root: Path, work: Path, log: IO[str]) -> None:
        self._port = free_port()
        self._settings = work / "settings.yaml"
        self._settings.write_text(json.dumps(settings(root, self._port)))
        self._tools = work / "tools"
        self._tools.mkdir(exist_ok=True)
        program = self._tools / "supervise"
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        self._environment = environment(space)
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and return at once."""
        words = [*WITH_US, sys.executable, "-m", "scale.timed_operator"]
        words += [str(self._settings), str(self._tools)]
        self._process = subprocess.Popen(
            words, env=os.environ | self._environment, stderr=self._log, stdout=self._log, text=True
        )

    def wait_ready(self) -> None:
        """Wait until it shows metrics.

        Raises:
            SystemExit: It does not.
        """
        assert self._process is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise SystemExit(f"the operator ended; it said: {self.last_words()}")
            try:
                self.metrics()
            except OSError:
                time.sleep(WATCHED_SECONDS)
            else:
                return
        raise SystemExit(f"the operator did not start within {START_SECONDS:.0f} s")

    def last_words(self) -> str:
        """Return the last line of its log."""
        self._log.flush()
        lines = Path(self._log.name).read_text(encoding="utf-8", errors="replace").splitlines()
        return lines[-1] if lines else "nothing"

    def metrics(self) -> dict[str, float]:
        """Read its samples."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=30) as answer:
            return samples(answer.read().decode())

    def peak_mib(self) -> float:
        """Return the most memory that it ever had, MiB."""
        assert self._process is not None
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        line = next(each for each in status.splitlines() if each.startswith("VmHWM:"))
        return int(line.split()[1]) / 1024

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it by a signal and wait until it has ended; nothing where it has not been started."""
        if self._process is not None:
            self._process.send_signal(number)
            self._process.wait()
            self._process = None


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
