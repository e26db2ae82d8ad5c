"""What it costs to seal and to verify a run of 10,000 records: ``make scale`` prints it."""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

from securebench.attestation.envelope import pem_signer
from securebench.controller.sealing import write_summary
from securebench.controller.volume.journal import encode_all
from securebench.controller.volume.registers import IndexEntry, RunIndex
from securebench.controller.volume.results import write_statement
from securebench.controller.volume.store import RunStore
from securebench.protocol.volume import CANDIDATES, JOURNAL, first_link
from securebench.run.api.field_types import Outcome
from securebench.run.plan.model import AttemptKey, LaunchKey, Role
from securebench.run.state.attempts import Finish
from securebench.run.state.entries import (
    Entry,
    Finished,
    LaunchBegun,
    Produced,
    RunBound,
    RunEnded,
    Verified,
)
from securebench.run.state.history import whole_history
from support.build import NOW, production, verification
from support.sealed_runs import OPERATOR, check, handed_on, told

UID = "0b5c2f3e-0000-4000-8000-000000000000"


def record(task: int, size_bytes: int) -> bytes:
    return json.dumps({"task_id": f"task-{task}", "text": "x" * size_bytes}).encode()


def entries(records: int, size_bytes: int) -> Iterator[Entry]:
    """Yield the journal of a run whose attempts all had one launch of each role."""
    yield RunBound(UID, "sha256:plan")
    for task in range(records):
        key = AttemptKey(task, 1)
        yield LaunchBegun(LaunchKey(*key, Role.HARNESS, 1), NOW)
        yield Produced(key, production())
        yield LaunchBegun(LaunchKey(*key, Role.VERIFIER, 1), NOW)
        yield Verified(key, verification())
        digest = hashlib.sha256(record(task, size_bytes)).hexdigest()
        yield Finished(Finish(key, Outcome.SCORED, passed=True), digest, NOW)
    yield RunEnded("Completed", "all passed", NOW)


def ended_run(root: Path, records: int, size_bytes: int) -> RunStore:
    digest = "sha256:" + "7" * 64
    entry = IndexEntry("large", UID, "large", "pack", digest, digest, "1", "2026-01-01T00:00:00Z")
    store = RunStore(root, UID)
    store.create({"index": asdict(RunIndex(root).add(entry))})
    with (store.folder / CANDIDATES).open("wb") as file:
        file.writelines(record(task, size_bytes) + b"\n" for task in range(records))
    write_summary(store, whole_history(entries(records, size_bytes)), "")
    lines, _ = encode_all(entries(records, size_bytes), first_link(UID))
    (store.folder / JOURNAL).write_bytes(lines)
    return store


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Return what it took by the wall clock, and of CPU."""
    began, cpu = time.perf_counter(), time.process_time()
    work()
    return round(time.perf_counter() - began, 2), round(time.process_time() - cpu, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=4_096, help="of a record")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        store = ended_run(root, chosen.records, chosen.bytes)
        sealing = seconds(lambda: write_statement(store, pem_signer(OPERATOR.private)))
        folder = handed_on(root, UID, root / "sealed")
        rounds = [seconds(lambda: check(folder, OPERATOR.key)) for _ in range(3)]
        found = told(check(folder, OPERATOR.key))
    figures = {"records": chosen.records, "bytes": chosen.bytes, "seal": sealing, "verify": rounds}
    print(json.dumps({"statements": {**figures, "findings": found}}))


if __name__ == "__main__":
    main()
