"""A repository of the task image, what an agent does in it, and what the check makes of a patch."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from securebench.benchmark.families.base import PatchPlan
from securebench.run.state.attempts import SealedPatch
from securebench.run.verification.patch import seal_patch
from support.places import candidate_in
from support.release import Raw
from threats.kit.program import Ended, run_supervise

OWN_SETTINGS = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null", "LC_ALL": "C"}
AUTHOR = ("-c", "user.name=t", "-c", "user.email=t@t")
DIFF_BYTES = 1 << 20
CHECK_LINE = "touch checks-ran; grep -q fixed src/x.py"


def git(folder: Path, *words: str, is_checked: bool = True) -> str:
    """Run git as a careless program does: in the repository, with its own settings."""
    environment = {**os.environ, **OWN_SETTINGS}
    done = subprocess.run(
        ["git", *AUTHOR, *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        check=is_checked,
        timeout=60,
    )
    return done.stdout.decode(errors="replace")


def write(path: Path, text: str) -> None:
    """Write a file with the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def repository(folder: Path) -> Path:
    """Make a repository with one fault in ``src/x.py``, tests, and a link that leads out."""
    root = folder / "repo"
    write(root / "src/x.py", "broken\n")
    write(root / "tests/run.sh", "true\n")
    write(root / "README", "read me\n")
    (root / "docs").mkdir()
    (root / "docs/link").symlink_to("../../outside")
    write(folder / "outside/guarded", "guarded\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "base")
    return root


class Worked(NamedTuple):
    """What supervise made of an agent's work."""

    ended: Ended
    diff: str


def work(root: Path, script: str) -> Worked:
    """Let an agent work in a repository, and return the diff that supervise takes."""
    with tempfile.TemporaryDirectory() as folder:
        output, scratch = Path(folder, "output"), Path(folder, "scratch")
        output.mkdir()
        scratch.mkdir()
        asked = {
            "workdir": str(root),
            "scratch": str(scratch),
            "timeout_seconds": 30,
            "bytes": DIFF_BYTES,
        }
        phase = {
            "name": "harness",
            "command": ["sh", "-ec", script],
            "workdir": str(root),
            "timeout_seconds": 30,
            "env": {**OWN_SETTINGS, "SCRATCH": str(scratch)},
        }
        streams = {"folder": str(output), "head_bytes": 1 << 20, "tail_bytes": 0}
        ended = run_supervise({"diff": asked, "phases": [phase], "streams": streams})
        made = output / "diff"
        text = made.read_text() if made.exists() else ""
    assert ended.code == 0, ended
    return Worked(ended, text)


def plan(lists: Mapping[str, object] | None = None) -> PatchPlan:
    """Return how patches are judged."""
    return PatchPlan(lists or {}, "main", has_setup=False, has_test=False, has_control=False)


class Graded(NamedTuple):
    """What became of a patch: why it was refused by its text, or the check's exit code."""

    reason: str
    code: int | None
    report: Raw


def grade(
    root: Path,
    patch: str,
    *,
    lists: Mapping[str, object] | None = None,
    test_patch: str | None = None,
    command: str = CHECK_LINE,
    seconds: int = 30,
) -> Graded:
    """Judge a candidate patch as the operator does and apply it as the check does.

    Args:
        root: The repository; changed by a patch that is not refused by its text.
        patch: The candidate.
        lists: The task's ``candidate_policy``.
        test_patch: The hidden one.
        command: The checks, for a shell.
        seconds: Their time limit.
    """
    with tempfile.TemporaryDirectory() as place:
        candidate, folder = candidate_in(Path(place))
        (folder / "candidate.txt").write_text(patch)
        sealed = seal_patch(plan(lists), candidate)
        if sealed.problem:
            return Graded(sealed.problem, None, {})
        (folder / "output").mkdir()
        tests = {"test_patch": test_patch}
        (folder / "tests.json").write_text(json.dumps(tests))
        spec = _check(root, folder, sealed, has_test=test_patch is not None)
        phase = {
            "name": "checks",
            "command": ["sh", "-c", command],
            "workdir": str(root),
            "timeout_seconds": seconds,
            "env": {},
        }
        streams = {"folder": str(folder / "output"), "head_bytes": 1 << 20, "tail_bytes": 0}
        ended = run_supervise(
            {"repository": spec, "phases": [phase], "verdict": True, "streams": streams}
        )
        return Graded("", ended.code, ended.report)


def _check(root: Path, folder: Path, sealed: SealedPatch, *, has_test: bool) -> Raw:
    test = {"path": str(folder / "tests.json"), "field": "test_patch"}
    return {
        "workdir": str(root),
        "scratch": str(folder),
        "base_commit": "main",
        "timeout_seconds": 30,
        "setup_patch": None,
        "candidate": {"path": str(folder / "applied.patch"), "digest": sealed.applied_digest},
        "declared": {"path": str(folder / "declared.json"), "digest": sealed.declared_digest},
        "test_patch": test if has_test else None,
        "control": None,
    }
