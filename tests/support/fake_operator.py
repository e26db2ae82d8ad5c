"""A namespace with an operator in memory: a fake cluster, a volume, and the real exec_io."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from securebench.benchmark.files.bundle import BundleLimits
from securebench.benchmark.scorers.result import VERIFIER_VERSION
from securebench.client.volume import ExecResult
from securebench.cluster.port import ObjectKind, Raw, metadata
from securebench.controller.exec_io import Streams, Volume, serve
from securebench.controller.publish import succeeded
from securebench.controller.volume.journal import encode_all, first_link
from securebench.controller.volume.registers import IndexEntry, RunIndex
from securebench.controller.volume.results import publish
from securebench.controller.volume.store import RunStore
from securebench.errors import SecureBenchError, TransientClusterError
from securebench.run.api.models import BenchmarkRunSpec
from securebench.run.api.status import Reason
from securebench.run.plan.model import LaunchKey
from securebench.run.records.summary import record_facts, run_summary
from securebench.run.state.entries import Entry, RunBound
from support.fake_cluster import FakeCluster
from support.places import launch_folder
from support.stored_packs import freeze_stored

LIMITS = BundleLimits(files=100, size_bytes=1_000_000)

MANIFEST = """\
id: capitals
version: 1
defaults:
  family: short_answer
  environment: {image: "python:3.11-slim"}
"""

TESTER = """\
schema_version: "0.2"
run: {id: "My run", output_dir: out}
benchmark: {manifest: pack/manifest.yaml, tasks: pack/tasks.jsonl}
harness:
  type: command
  config: {command: "python3 answer.py"}
"""


class Namespace:
    """What a tester meets.

    Args:
        root: The results volume.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.cluster = FakeCluster()
        self.calls: list[tuple[str, ...]] = []
        self.failures: list[SecureBenchError] = []
        self._failing: str | None = None
        self.tamper: Callable[[bytes], bytes] = lambda data: data
        self.waits: list[float] = []
        (root / "packs").mkdir(parents=True)
        self.viewers_root = root / "of the Pod for viewers"
        self.viewers_root.mkdir()
        (self.viewers_root / "runs").symlink_to(root / "published")

    async def execute(self, command: Sequence[str], stdin: IO[bytes] | None) -> ExecResult:
        """Stand for pods/exec into the operator's container."""
        assert tuple(command[:3]) == ("securebench", "operator-io", "--")
        self.calls.append(tuple(command[3:]))
        await asyncio.sleep(0)
        if self.failures:
            raise self.failures.pop(0)
        if self._failing in command:
            self._failing = None
            raise TransientClusterError("the connection ended")
        data = b"" if stdin is None else self.tamper(stdin.read())
        result = _served(self.root, command[3:], data)
        await asyncio.sleep(0)
        return result

    async def execute_for_viewer(
        self, command: Sequence[str], _stdin: IO[bytes] | None
    ) -> ExecResult:
        """Stand for pods/exec into the Pod for viewers, which mounts one folder only."""
        assert tuple(command[:3]) == ("securebench", "viewer-io", "--")
        return _served(self.viewers_root, command[3:], b"")

    def fail_once(self, word: str) -> None:
        """Let the next call with this word break off."""
        self._failing = word

    async def sleep(self, seconds: float) -> None:
        """Stand for asyncio.sleep."""
        self.waits.append(seconds)
        await asyncio.sleep(0)

    def operations(self) -> list[str]:
        """Return the names of the exec calls so far."""
        return [call[0] for call in self.calls]

    def runs(self) -> list[Raw]:
        """Return the BenchmarkRuns."""
        return list(self.cluster.objects(ObjectKind.BENCHMARK_RUN).values())

    async def next_run(self) -> OperatorRun:
        """Wait until a run is there that was not there before."""
        known = {str(metadata(run)["name"]) for run in self.runs()}
        while True:
            for run in self.runs():
                if metadata(run)["name"] not in known:
                    return OperatorRun(self, run)
            await asyncio.sleep(0)


def _served(root: Path, arguments: Sequence[str], stdin: bytes) -> ExecResult:
    stdout, stderr = io.BytesIO(), io.BytesIO()
    streams = Streams(io.BytesIO(stdin), stdout, stderr)
    code = serve(arguments, volume=Volume(root, LIMITS), streams=streams)
    return ExecResult(code, stdout.getvalue(), stderr.getvalue())


class OperatorRun:
    """The operator's work on one run, step by step as a test wants it."""

    def __init__(self, namespace: Namespace, run: Raw) -> None:
        self._namespace = namespace
        self.run = run
        self.name = str(metadata(run)["name"])
        self.uid = str(metadata(run)["uid"])
        self.folder = namespace.root / "runs" / self.uid
        self.records: list[Mapping[str, object]] = []
        self.published = ""

    @property
    def spec(self) -> Raw:
        spec = self.run["spec"]
        assert isinstance(spec, Mapping)
        return spec

    def bind(self) -> None:
        """Put the run into the index."""
        annotations = metadata(self.run)["annotations"]
        assert isinstance(annotations, Mapping)
        RunIndex(self._namespace.root).add(
            IndexEntry(
                run=self.name,
                uid=self.uid,
                run_id=str(self.spec["runId"]),
                pack="capitals",
                pack_digest=str(self.spec["pack"]["digest"]),  # type: ignore[index]
                harness_digest=str(annotations["securebench.dev/harness-digest"]),
                verifier_version=VERIFIER_VERSION,
                started_at="2026-01-01T00:00:00Z",
            )
        )

    def freeze(self) -> None:
        """Bind the run to a frozen copy of its pack, as when it begins."""
        root, spec = self._namespace.root, BenchmarkRunSpec.parse(dict(self.spec))
        pack = freeze_stored(root, spec.pack, LIMITS)
        RunStore(root, self.uid).create({"spec": dict(self.spec), "pack_digest": pack.digest})

    def journal(self, *entries: Entry) -> None:
        """Replace the journal."""
        self.folder.mkdir(parents=True, exist_ok=True)
        bound = RunBound(self.uid, "sha256:1")
        lines, _ = encode_all([bound, *entries], first_link(self.uid))
        (self.folder / "journal.jsonl").write_bytes(lines)

    def print(self, launch: LaunchKey, stream: str, text: str) -> None:
        """Let a harness launch print more while it is watched."""
        producer = self._namespace.root / launch_folder(self.uid, launch) / "producer"
        producer.mkdir(parents=True, exist_ok=True)
        with (producer / f"live-{stream}").open("a") as file:
            file.write(text)

    def write(self, *records: Mapping[str, object]) -> None:
        """Replace candidates.jsonl."""
        self.records = list(records)
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = (json.dumps(record, sort_keys=True) + "\n" for record in records)
        (self.folder / "candidates.jsonl").write_text("".join(lines))

    async def status(
        self, reason: str, message: str = "", *, total: int = 3, active: int = 0
    ) -> None:
        """Publish a status and let everybody else work for a while."""
        state = succeeded(Reason(reason), message).status
        condition = {"type": "Succeeded", "status": state, "reason": reason, "message": message}
        verdicts = [item.get("passed") for item in self.records if item.get("passed") is not None]
        body = {
            "status": {
                "tasks": {"total": total, "done": len(self.records), "active": active},
                "score": {"passed": verdicts.count(True), "verified": len(verdicts)},
                "results": {"publishedSha256": self.published},
                "conditions": [condition],
            }
        }
        await self._namespace.cluster.patch_status(ObjectKind.BENCHMARK_RUN, self.name, body)
        for _ in range(50):
            await asyncio.sleep(0)

    async def end(self, reason: str = "Completed", message: str = "") -> None:
        """Seal the results and end the run."""
        summary = run_summary(str(self.spec["runId"]), map(record_facts, self.records)).to_json(
            f"runs/{self.uid}", f"runs/{self.uid}/candidates.jsonl"
        )
        (self.folder / "summary.json").write_text(json.dumps(summary))
        index = RunIndex(self._namespace.root)
        index.end(self.uid, reason)
        for entry in index.named(self.name)[-1:]:
            store = RunStore(self._namespace.root, self.uid)
            store.write_json("run.json", {"spec": {}})
            self.published = publish(store, entry, reason)
        await self.status(reason, message, total=len(self.records))


def record(task_id: str, *, passed: bool | None = True, outcome: str | None = "scored") -> Raw:
    """Return a record as the operator writes it, cut down to what the command line reads."""
    status = {True: "passed", False: "failed", None: "pending"}[passed]
    verdict = {} if passed is None else {"passed": passed, "score": float(passed)}
    return {
        "run_id": "My run",
        "task_id": task_id,
        "task_type": "short_answer",
        "attempt": 1,
        "verification_status": status,
        "outcome": outcome,
        "candidate_text": "x",
        **verdict,
    }


def write_tester(folder: Path) -> Path:
    """Write a tester YAML with its pack and return the YAML's path."""
    write_pack(folder)
    path = folder / "tester.yaml"
    path.write_text(TESTER)
    return path


def write_pack(folder: Path, *, tasks: Sequence[str] = ("a", "b", "c")) -> None:
    """Write a pack of short answers."""
    (folder / "pack").mkdir(parents=True, exist_ok=True)
    (folder / "pack" / "manifest.yaml").write_text(MANIFEST)
    rows = (
        json.dumps(
            {"id": name, "input": {"question": f"{name}?"}, "eval": {"accepted_answers": ["x"]}}
        )
        for name in tasks
    )
    (folder / "pack" / "tasks.jsonl").write_text("".join(f"{row}\n" for row in rows))


Script = Callable[[OperatorRun], Awaitable[None]]


async def complete(run: OperatorRun) -> None:
    """Run three tasks, the second finishing first."""
    run.bind()
    await run.status("Running")
    run.write(record("b", passed=False))
    await run.status("Running")
    run.write(record("a"), record("b", passed=False))
    await run.status("Running")
    run.write(record("a"), record("b", passed=False), record("c"))
    await run.end()
