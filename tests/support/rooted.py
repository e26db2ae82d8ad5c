"""An agent that changes its root file system, and the script that grades it, on this machine.

Both are containers of folders: root without capabilities, below its own mounts. supervise and the
courier are real, the image is a few programs of this machine.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from securebench.protocol.candidate import CandidateBounds, Extraction, ExtractionMode, Problem
from securebench.protocol.messages import DigestedPath, encode_spec
from securebench.protocol.supervise import SOURCES, Phase, RunSpec, StreamsSpec, root_changes
from support import courier
from support.supervise_build import Edit

SECONDS = 60
BOUNDS = CandidateBounds(workspace_bytes=1 << 26, workspace_files=500)
SOURCE = SOURCES[ExtractionMode.ROOT]
OWN = "/opt/securebench/own"
PROGRAMS = [
    "bash",
    "sh",
    "env",
    "cat",
    "ls",
    "ln",
    "mkdir",
    "mv",
    "rm",
    "cp",
    "chmod",
    "touch",
    "truncate",
    "setpriv",
]
SECRET = "secret"
"""In ``/tests/expected``."""

_IMAGE = """set -e
cd "$1"; shift
mkdir -p usr/bin usr/lib etc proc dev tests logs/verifier app srv/held opt/securebench/own
ln -s usr/bin bin; ln -s usr/lib lib
echo kept > app/kept
for each; do
  program=$(readlink -f "$(command -v "$each")")
  cp "$program" "usr/bin/$each"
  for library in $(ldd "$program" | grep -o '/[^ ]*'); do
    mkdir -p ".$(dirname "$library")"
    [ -e ".$library" ] || cp -L "$library" ".$library"
  done
done
"""
_ENTER = """set -e
mount -t proc proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mount --bind "$1/own" "$1/root/opt/securebench/own"
if [ -d "$1/tests" ]; then
  mount --bind "$1/tests" "$1/root/tests"
  mount --bind "$1/logs" "$1/root/logs/verifier"
  mount --bind "$1/held" "$1/root/srv/held"
fi
exec unshare --root="$1/root" --wd=/opt/securebench/own \
  ./setpriv --bounding-set=-all --inh-caps=-all ./supervise run --spec "$2"
"""


class Handed(NamedTuple):
    """What the courier sealed, and where."""

    sealed: courier.Sealed
    archive: Path


class Graded(NamedTuple):
    """What a script left.

    Attributes:
        reward: Its file, without blanks around; empty if there is none.
        dropped: How many changes were not made.
        code: Exit code of supervise.
    """

    reward: str
    dropped: int
    code: int


@cache
def _image() -> Path:
    if os.geteuid():
        pytest.skip("not applicable: only root makes containers")
    folder = Path(tempfile.mkdtemp(prefix="image-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    subprocess.run(["bash", "-c", _IMAGE, "image", str(folder), *PROGRAMS], check=True)
    return folder


def works(
    folder: Path, script: str, *edits: Edit, forged: bytes = b"", bounds: CandidateBounds = BOUNDS
) -> Handed:
    """Run a script as an agent and seal what it changed.

    Args:
        folder: Of the test.
        script: For bash.
        edits: Controls that are taken out of supervise and the courier.
        forged: An archive of the agent's own making, in place of supervise's.
        bounds: Of the candidate.
    """
    spec = SOURCE.added(_spec(Phase("harness", ("bash", "-c", script), "")), "", bounds)
    here = folder / "agent"
    message = _run(here, spec, edits)
    assert (message["code"], message["exit_code"]) == (0, 0), (message, _said(here))
    if forged:
        (here / "own/output/root.tar").write_bytes(forged)
    volumes = folder / "sealing"
    for name in ("workspace", "candidate", "producer"):
        (volumes / name).mkdir(parents=True)
    (volumes / "output").symlink_to(here / "own/output")
    extraction = Extraction(ExtractionMode.ROOT, "root")
    ended = courier.run(volumes, courier.seal_spec(extraction, bounds, SOURCE.excluded), *edits)
    assert ended.code == 0, ended
    fields = json.loads(ended.message)
    problem = fields["problem"] and Problem(fields["problem"])
    sealed = courier.Sealed(problem, fields["message"], fields["file"], fields["digest"])
    return Handed(sealed, volumes / "candidate/root.tar")


def graded(folder: Path, handed: Handed, script: str, *edits: Edit) -> Graded:
    """Run a test script beside a candidate.

    Args:
        folder: Of the test.
        handed: The candidate.
        script: For bash; its tests have ``/tests/expected``, ``/srv/held`` is a mount of a file.
        edits: Controls that are taken out of supervise.
    """
    here = folder / "verifier"
    for name in ("tests", "logs", "held", "own"):
        (here / name).mkdir(parents=True)
    (here / "tests/expected").write_text(f"{SECRET}\n")
    (here / "tests/test.sh").write_text(script)
    (here / "held/file").write_text("held\n")
    shutil.copy(handed.archive, here / "own/root.tar")
    candidate = DigestedPath(f"{OWN}/root.tar", handed.sealed.digest)
    spec = _spec(Phase("tests", ("bash", "/tests/test.sh"), ""))
    message = _run(here, replace(spec, changes=root_changes(candidate)), edits)
    reward = here / "logs/reward.txt"
    text = reward.read_text().strip() if reward.exists() else ""
    return Graded(text, message.get("dropped_entries", 0), message["code"])


def _spec(phase: Phase) -> RunSpec:
    streams = StreamsSpec(f"{OWN}/output", 10_000, 10_000)
    return RunSpec(streams, "", (), 0, 0, phases=(phase,), open_modes=(f"{OWN}/output",))


def _run(here: Path, spec: RunSpec, edits: tuple[Edit, ...]) -> dict[str, object]:
    (here / "own/output").mkdir(parents=True)
    shutil.copytree(_image(), here / "root", symlinks=True)
    for program in (courier.courier(*edits), Path(shutil.which("setpriv") or "")):
        shutil.copy(program, here / "own")
    (here / "own/log").touch()
    words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", _ENTER, "sh"]
    subprocess.run(
        [*words, str(here), encode_spec(spec)],
        env={"PATH": os.environ["PATH"]},
        timeout=SECONDS,
        check=False,
    )
    return json.loads((here / "own/log").read_text())


def _said(here: Path) -> str:
    return (here / "own/output/stderr").read_text()
