"""supervise as a program on this machine: the real decoder and the real git, without a Pod."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from support.release import Raw
from support.supervise_build import Edit, built
from threats.kit.outcomes import not_applicable

STAGING_FAILED = 90
TIMED_OUT = 124
NOTHING: Raw = {"name": "main", "command": ["true"], "workdir": ""}
QUIET: Raw = {
    "streams": {"folder": "", "head_bytes": 0, "tail_bytes": 0},
    "temporary": "",
    "probes": [],
    "probe_timeout_seconds": 0,
    "max_processes": 0,
}
KIBIBYTE = 1024
_BOUNDED = ("sh", "-c", 'ulimit -d "$1"; shift; exec "$@"', "sh")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run of supervise ended.

    Attributes:
        code: Its exit code.
        seconds: How long it took.
        report: Its message, empty where none was kept.
    """

    code: int
    seconds: float
    report: Raw = field(default_factory=dict)


def supervise(*edits: Edit) -> Path:
    """Return supervise, built once a session; edits take controls out of it."""
    if shutil.which("go") is None:
        not_applicable("no Go compiler is here to build supervise")
    return built(*edits)


def run_supervise(
    spec: Mapping[str, object],
    *edits: Edit,
    seconds: float = 60,
    memory_bytes: int | None = None,
) -> Ended:
    """Run ``supervise run``; one phase that does nothing where the specification names none.

    Args:
        spec: Without the version.
        edits: Controls that are taken out of supervise.
        seconds: When the test fails because it still runs.
        memory_bytes: More of it ends the program; it and its commands have as much each.
    """
    text = json.dumps({"version": 1, **QUIET, "phases": [NOTHING], **spec})
    words = [str(supervise(*edits)), "run", "--spec", text]
    if memory_bytes is not None:
        words = [*_BOUNDED, str(memory_bytes // KIBIBYTE), *words]
    begun = time.monotonic()
    done = subprocess.run(words, stderr=subprocess.DEVNULL, cwd="/", timeout=seconds, check=False)
    return Ended(done.returncode, time.monotonic() - begun, _report(spec))


def _report(spec: Mapping[str, object]) -> Raw:
    streams = spec.get("streams")
    if not isinstance(streams, Mapping):
        return {}
    path = Path(str(streams["folder"])) / "report.json"
    report: Raw = json.loads(path.read_bytes()) if path.exists() else {}
    return report
