"""An operator in memory with BenchmarkSuites; their runs end when a test says so."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from securebench.agents.registry import harness_config, harness_digest
from securebench.benchmark.scorers.result import VERIFIER_VERSION
from securebench.clock import rfc3339
from securebench.cluster.port import ObjectKind, Raw
from securebench.controller.suite_loop import SuiteSupervisor
from securebench.controller.volume.folders import run_folder
from securebench.controller.volume.registers import IndexEntry, RunIndex
from securebench.names import REQUESTER_ANNOTATION, SUITE_CELL_ANNOTATION
from support.build import question, write_pack
from support.operator_world import World

HARNESSES = [
    {"name": name, "harness": {"type": "command", "config": {"command": f"echo {answer}"}}}
    for name, answer in (("a", "A"), ("b", "B"))
]
PACKS = [{"name": name, "pack": {"volume": {"path": name}}} for name in ("smoke", "other")]


def suite_spec(**spec: object) -> dict[str, object]:
    """Return a suite of two packs and two harnesses."""
    return {"matrix": {"packs": PACKS, "harnesses": HARNESSES}, **spec}


class SuiteWorld(World):
    """An operator with suites; no run of theirs is worked on."""

    def __init__(self, root: Path, **settings: object) -> None:
        super().__init__(root, **settings)
        write_pack(root / "packs/other", [question("c")])
        self.suites = SuiteSupervisor(self.context)
        self.written: tuple[str, ...] = ()
        self.made = 0

    def apply_suite(self, name: str = "nightly", **spec: object) -> None:
        """Create or change a suite, and let the operator know."""
        kind = ObjectKind.BENCHMARK_SUITE
        if name in self.cluster.objects(kind):
            self.cluster.edit(kind, name, {"spec": dict.fromkeys(self.written)})
            self.cluster.edit(kind, name, {"spec": suite_spec(**spec)})
            self._sign(name)
        else:
            self.made += 1
            body = {"metadata": {"name": name}, "spec": suite_spec(**spec)}
            self.runner.run(self.cluster.create(kind, body))
            uid = f"{self.made:08x}-1111-4000-8000-000000000000"
            self.cluster.edit(kind, name, {"metadata": {"uid": uid}})
            self._sign(name)
        self.written = tuple(spec)
        self.tell_suite(name)

    def _sign(self, name: str) -> None:
        """Do as the admission policies do: the suite names whoever changes what it runs."""
        body = {"metadata": {"annotations": {REQUESTER_ANNOTATION: self.user or None}}}
        self.cluster.edit(ObjectKind.BENCHMARK_SUITE, name, body)

    def annotate(self, value: str | None, name: str = "nightly") -> None:
        """Set or remove the annotation for a manual run."""
        annotations = {"securebench.dev/rerun": value}
        self.cluster.edit(
            ObjectKind.BENCHMARK_SUITE, name, {"metadata": {"annotations": annotations}}
        )
        self.tell_suite(name)

    def suite_uid(self, name: str = "nightly") -> str:
        """Return the uid of a suite."""
        suite: Any = self.cluster.objects(ObjectKind.BENCHMARK_SUITE)[name]
        return str(suite["metadata"]["uid"])

    def tell_suite(
        self, name: str = "nightly", kind: str = "MODIFIED", body: Raw | None = None
    ) -> None:
        """Deliver the event of a suite, by default as it is now, then those of runs."""
        body = body or self.cluster.objects(ObjectKind.BENCHMARK_SUITE)[name]

        async def tell() -> None:
            self.suites.observe(kind, body)

        self.runner.run(tell())
        self.settle()

    def settle(self, seconds: float = 0.1) -> None:
        """Let the loops work, and deliver what became of runs."""
        self.wait(seconds)
        self.deliver()
        self.wait(0.1)

    def deliver(self) -> None:
        """Deliver events of runs that are new, changed or gone."""
        there = self.cluster.objects(ObjectKind.BENCHMARK_RUN)

        async def tell() -> None:
            for raw in there.values():
                self.suites.observe_run("MODIFIED", raw)

        self.runner.run(tell())

    def run_names(self) -> list[str]:
        """Return the names of all runs."""
        return sorted(self.cluster.objects(ObjectKind.BENCHMARK_RUN))

    def going(self) -> dict[str, str]:
        """Return the runs that have not ended, by cell."""
        return {
            self.cell(raw): name
            for name, raw in self.cluster.objects(ObjectKind.BENCHMARK_RUN).items()
            if not raw.get("status")
        }

    def cell(self, raw: Mapping[str, Any]) -> str:
        """Return the cell of a run."""
        return str(raw["metadata"]["annotations"][SUITE_CELL_ANNOTATION])

    def begin(self, name: str) -> IndexEntry:
        """Do as if the operator had begun a run: its line is in the index."""
        raw: Any = self.cluster.objects(ObjectKind.BENCHMARK_RUN)[name]
        spec = raw["spec"]
        harness = harness_config(spec["harness"]["type"], spec["harness"]["config"])
        entry = IndexEntry(
            run=name,
            uid=raw["metadata"]["uid"],
            run_id=spec["runId"],
            pack=spec["pack"]["volume"]["path"],
            pack_digest=spec["pack"]["digest"],
            harness_digest=harness_digest(harness, spec["harness"].get("env", ())),
            verifier_version=VERIFIER_VERSION,
            started_at=rfc3339(self.clock.now()),
            agent=spec["harness"]["type"],
            requester=raw["metadata"]["annotations"].get(REQUESTER_ANNOTATION, ""),
        )
        return RunIndex(self.root).add(entry)

    def end(
        self,
        name: str,
        reason: str = "Completed",
        passed: Sequence[bool | None] = (True,),
        **record: object,
    ) -> None:
        """End a run with records, one task each, in the order in which a run's loop writes."""
        entry = self.begin(name)
        RunIndex(self.root).end(entry.uid, reason)
        digest = self.write_records(entry, passed, **record)
        status: dict[str, object] = {
            "results": {"sha256": digest},
            "conditions": [
                {
                    "type": "Succeeded",
                    "status": "True" if reason == "Completed" else "False",
                    "reason": reason,
                    "message": f"said {reason}",
                    "lastTransitionTime": rfc3339(self.clock.now()),
                    "observedGeneration": 1,
                }
            ],
        }
        folder = self.root / run_folder(entry.uid)
        (folder / "summary.json").write_text(json.dumps({"sha256": digest}))
        patch = self.cluster.patch_status(ObjectKind.BENCHMARK_RUN, name, {"status": status})
        self.runner.run(patch)
        self.settle()
        (folder / "status.json").write_text(json.dumps({"status": status}))

    def write_records(
        self, entry: IndexEntry, passed: Sequence[bool | None], **record: object
    ) -> str:
        """Write records and return the hex digest of the file."""
        lines = [
            {
                "task_id": f"t{index}",
                "attempt": 1,
                "passed": verdict,
                "outcome": "scored" if verdict is not None else "infrastructure",
                "pack_digest": entry.pack_digest,
                "verifier_version": entry.verifier_version,
                "digests": {"policy": "p", "row": f"r{index}"},
                **record,
            }
            for index, verdict in enumerate(passed)
        ]
        data = "".join(json.dumps(line) + "\n" for line in lines).encode()
        folder = self.root / run_folder(entry.uid)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "candidates.jsonl").write_bytes(data)
        return hashlib.sha256(data).hexdigest()

    def put_run(self, name: str, passed: Sequence[bool | None], *, is_sealed: bool = True) -> str:
        """Put a run of the first one's pack on the volume, under any name; return its uid."""
        index = RunIndex(self.root)
        like, number = index.entries()[0], len(index.entries())
        uid = f"{number:08x}-2222-4000-8000-000000000000"
        index.add(replace(like, run=name, uid=uid, outcome=""))
        if is_sealed:
            self.seal(uid, passed)
        return uid

    def seal(self, uid: str, passed: Sequence[bool | None]) -> None:
        """Seal records of a run on the volume, also in the place of others."""
        index = RunIndex(self.root)
        (entry,) = (each for each in index.entries() if each.uid == uid)
        digest = self.write_records(entry, passed)
        summary = self.root / run_folder(uid) / "summary.json"
        summary.write_text(json.dumps({"sha256": digest}))
        index.end(uid, "Completed")

    def end_all(self, **end: Any) -> None:
        """End whatever goes on until nothing does."""
        while going := self.going():
            for name in going.values():
                self.end(name, **end)

    def suite_status(self, name: str = "nightly") -> dict[str, Any]:
        """Return the status of a suite."""
        status: Any = self.cluster.objects(ObjectKind.BENCHMARK_SUITE)[name].get("status", {})
        return dict(status)

    def said(self, kind: str = "Ready", name: str = "nightly") -> tuple[str, str, str]:
        """Return status, reason and message of a condition of a suite."""
        conditions = self.suite_status(name).get("conditions", [])
        found = {each["type"]: each for each in conditions}.get(kind, {})
        return found.get("status", ""), found.get("reason", ""), found.get("message", "")

    def restart_suites(self) -> None:
        """Do as a new operator does: every object is delivered again."""
        self.runner.run(self.suites.close())
        self.suites = SuiteSupervisor(self.context)
        for name in self.cluster.objects(ObjectKind.BENCHMARK_SUITE):
            self.tell_suite(name)
        self.settle()
