"""Reads what a candidate left, each job in a process of its own, and says what that took.

Started as ``python -m support.memory_reading``; a job is one line ``["READER", "FOLDER"]``. The
answer has the growth of the process's peak resident memory in KiB (VmHWM: unlike ``ru_maxrss``, it
says nothing of processes before it) and the CPU seconds.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import securebench.controller.handlers  # noqa: F401 - what the operator has loaded
from securebench.controller.capture import CandidateFolder, SecretMatcher, _is_blank, hide_values
from securebench.controller.volume.results import _publish_records
from securebench.controller.volume.store import RunStore, file_digest, read_texts
from securebench.digests import PREFIX
from securebench.protocol.candidate import TEXT_FILE
from securebench.protocol.messages import Code
from securebench.protocol.volume import CANDIDATES, RECORD
from securebench.run.api.field_types import Outcome
from securebench.run.artifacts import Part
from securebench.run.plan.model import LaunchKey, Role, TaskLimits
from securebench.run.records.record import candidate_record
from securebench.run.records.record_line import record_line
from securebench.run.state.attempts import CommandReport, Finish, SealedPatch
from securebench.run.verification.patch import failed_step, seal_patch
from support.build import KEY, history_of, production, sealed, verification
from support.left import LeftIn
from support.manifest_samples import patch_task, run_plan
from support.places import launch_place
from support.records import CONTEXT

PLAN = replace(patch_task().verification.patch, policy={})
SECRET = "swordfish-value"
LAUNCH = LaunchKey(*KEY, Role.HARNESS, 1)
CHECK = LaunchKey(*KEY, Role.VERIFIER, 1)


def candidate_file(folder: Path) -> Path:
    """Return where the readers find a candidate."""
    return launch_place(_store(folder), LAUNCH) / Part.CANDIDATE / TEXT_FILE


def patch(folder: Path) -> object:
    """Judge a candidate as a capture does."""
    store = _store(folder)
    candidate = store.part(LAUNCH, Part.CANDIDATE)
    judged = seal_patch(PLAN, CandidateFolder(store.artifacts, candidate))
    return _is_blank(store, candidate), judged


def step(folder: Path) -> object:
    """Read what a check says of the paths that really changed."""
    report = verification(passed=False, command=CommandReport())
    return failed_step(PLAN, report, LeftIn(folder, Code.PHASE_FAILED + 5))


def streams(folder: Path) -> object:
    """Fill exposed values up in the streams of a harness."""
    return hide_values(_store(folder), LAUNCH, SecretMatcher([SECRET.encode()]))


def record(folder: Path) -> object:
    """Write the record of a refused or a verified patch."""
    store, task = _store(folder), patch_task(index=0)
    task = replace(task, verification=replace(task.verification, patch=PLAN))
    made = production(candidate=sealed(patch=SealedPatch()))
    finish = Finish(KEY, Outcome.SCORED, passed=True)
    report = verification(command=CommandReport(exit_code=0, phase="checks"))
    history = history_of(production=made, verification=report, launches=1)
    texts = read_texts(store, history)
    line = record_line(
        candidate_record(run_plan(task), task, history, finish, texts, CONTEXT), TaskLimits()
    )
    return store.write_record(KEY, line)


def export(folder: Path) -> object:
    """Write candidates.jsonl anew from one record that is there."""
    return _store(folder).export([(KEY, record_digest(folder))])


def publication(folder: Path) -> object:
    """Write what is published of candidates.jsonl."""
    return _publish_records(_store(folder).folder / CANDIDATES, folder / "published.jsonl", None)


def record_digest(folder: Path) -> str:
    """Return the digest of the record that is there, without reading it as a whole."""
    (path,) = folder.rglob(RECORD)
    return file_digest(path).removeprefix(PREFIX)


def _store(folder: Path) -> RunStore:
    store = RunStore(folder, "u")
    for launch in (LAUNCH, CHECK):
        store.make_launch_folders(launch)
    return store


def peak_kib() -> int:
    """Return the most memory that this process ever had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


READERS: Mapping[str, Callable[[Path], Any]] = {
    "patch": patch,
    "step": step,
    "streams": streams,
    "record": record,
    "export": export,
    "publication": publication,
}


def measured(reader: str, folder: str) -> str:
    """Run one reader and say what it took."""
    before, began = peak_kib(), time.process_time()
    READERS[reader](Path(folder))
    seconds = time.process_time() - began
    return json.dumps({"kib": peak_kib() - before, "seconds": seconds})


def main() -> None:
    """Read jobs, each in a process of its own; those share the loaded modules with this one."""
    for job in sys.stdin:
        child = os.fork()
        if not child:
            sys.stdout.write(measured(*json.loads(job)) + "\n")
            sys.stdout.flush()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            sys.exit(f"{job.strip()} failed")


if __name__ == "__main__":
    main()
