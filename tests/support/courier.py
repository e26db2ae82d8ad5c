"""The courier as a program, with the Pod's volumes in a folder of a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from securebench.protocol.candidate import KINDS, CandidateBounds, Extraction, Problem
from support.supervise_build import VOLUMES_HERE, Edit, built
from support.waiting import until

SECONDS = 60
"""When a test fails because the program still runs."""


UNWANTED, TERM = (1 << number - 1 for number in (signal.SIGUSR1, signal.SIGTERM))


class Ended(NamedTuple):
    """How the courier ended: its exit code, its termination message and what it said."""

    code: int
    message: bytes
    said: str


class Output(NamedTuple):
    """A captured stream: its first bytes, the last ones of the rest, and its real length."""

    head: bytes
    tail: bytes
    total: int


class SealingPlaces(NamedTuple):
    """Where sealing takes from and where it puts the candidate."""

    workspace: Path
    candidate: Path
    output: Path


@dataclass(frozen=True, slots=True)
class Sealed:
    """What a termination message says of a candidate."""

    problem: Problem | None = None
    message: str = ""
    file: str | None = None
    digest: str = ""
    size_bytes: int = 0
    candidate_sha256: str = ""
    dropped_entries: int = 0
    dropped: tuple[tuple[str, str], ...] = ()


def courier(*edits: Edit) -> Path:
    """Return the program, built for volumes in its working folder."""
    return built(*edits, link=VOLUMES_HERE)


def run(volumes: Path, spec: str, *edits: Edit) -> Ended:
    """Run the courier and tell it at once to work."""
    with started(volumes, spec, *edits) as process:
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=SECONDS)
    log = volumes / "log"
    return Ended(process.returncode, log.read_bytes() if log.exists() else b"", said.decode())


@contextmanager
def started(volumes: Path, spec: str, *edits: Edit) -> Iterator[subprocess.Popen[bytes]]:
    """Start the courier; it takes signals, or has ended."""
    words = [str(courier(*edits)), "courier", "--spec", spec]
    with subprocess.Popen(words, cwd=volumes, stderr=subprocess.PIPE) as process:
        try:
            until(
                lambda: process.poll() is not None or _takes_signals(process.pid),
                "the courier takes no signals",
                SECONDS,
                step_seconds=0.0005,
            )
            yield process
        finally:
            process.kill()


def _takes_signals(pid: int) -> bool:
    """Tell whether Go's thread for signals is there: it takes SIGTERM and no unwanted one."""
    for status in Path(f"/proc/{pid}/task").glob("*/status"):
        with suppress(OSError):
            blocked = int(status.read_text().split("SigBlk:")[1].split()[0], 16)
            if blocked & UNWANTED and not blocked & TERM:
                return True
    return False


def seal_spec(extraction: Extraction, bounds: CandidateBounds, exclude: Collection[str]) -> str:
    """Return the specification of a sealing."""
    spec = {
        "version": 1,
        "limits": asdict(bounds),
        "seal": {
            "extraction": asdict(extraction),
            "exclude": list(exclude),
            "limit_bytes": KINDS[extraction.kind].limit(bounds),
        },
    }
    return json.dumps(spec)


def seal(
    places: SealingPlaces,
    extraction: Extraction,
    bounds: CandidateBounds,
    exclude: Collection[str],
    stdout: Output | None,
    *edits: Edit,
) -> Sealed:
    """Seal a candidate.

    Args:
        places: The agent's workspace, a folder for the candidate, and what supervise left.
        extraction: What the candidate is.
        bounds: How large it may be.
        exclude: Relative paths that never belong to a workspace candidate.
        stdout: What the command printed, None when nothing was captured.
        edits: Controls that are taken out of the courier.
    """
    with tempfile.TemporaryDirectory() as name:
        volumes = Path(name)
        (volumes / "producer").mkdir()
        (volumes / "workspace").symlink_to(places.workspace.absolute())
        (volumes / "candidate").symlink_to(places.candidate.absolute())
        (volumes / "output").mkdir()
        diff, modes = places.output / "diff", places.output / "modes"
        if os.path.lexists(diff):
            diff.rename(volumes / "output/diff")
        if modes.exists():
            (volumes / "output/modes").write_bytes(modes.read_bytes())
        if stdout is not None:
            _capture(volumes / "output", stdout)
        ended = run(volumes, seal_spec(extraction, bounds, exclude), *edits)
        if os.path.lexists(volumes / "output/diff"):
            (volumes / "output/diff").rename(diff)
    assert ended.code == 0, ended
    fields = json.loads(ended.message)
    problem = fields["problem"] and Problem(fields["problem"])
    losses = tuple((each["path"], each["reason"]) for each in fields.get("dropped", ()))
    names = Sealed.__dataclass_fields__.keys() - {"problem", "dropped"}
    return Sealed(problem=problem, dropped=losses, **{name: fields[name] for name in names})


def _capture(output: Path, stdout: Output) -> None:
    (output / "stdout").write_bytes(stdout.head)
    (output / "stdout.tail").write_bytes(stdout.tail)
    (output / "report.json").write_text(json.dumps({"v": 1, "stdout_bytes": stdout.total}))
