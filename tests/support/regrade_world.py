"""An operator in memory whose text verifiers judge what they mount, and runs that grade again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from securebench.cluster.port import ObjectKind
from securebench.run.plan.model import LaunchKey, Role, pod_name
from support.build import Status, question, write_pack
from support.operator_world import World
from support.pod_ends import graded, handed_in


class RegradeWorld(World):
    """What ``World`` is, with agents that answer and verifiers that judge.

    Attributes:
        answers: What the agent hands in, by the index of the task.
        ends: How the harness Pod of a task ends instead.
        harness_pods: Runs that had any.
    """

    def __init__(self, root: Path, **settings: Any) -> None:
        super().__init__(root, **settings)
        self.answers: Sequence[str] = "BA"
        self.ends: dict[int, Status] = {}
        self.harness_pods: set[str] = set()

    def rows(self, keys: Iterable[int], **changes: Any) -> None:
        """Write the pack anew: one task for each right choice."""
        rows = [
            question(f"t{number}") | {"eval": {"answer": key}} | changes
            for number, key in enumerate(keys)
        ]
        write_pack(self.root / "packs/smoke", rows)

    def ending(self, uid: str, launch: LaunchKey) -> Status:
        if launch.role is Role.VERIFIER:
            raw = self.cluster.objects(ObjectKind.POD)[pod_name(uid, launch)]
            return graded(self.root, uid, raw)
        self.harness_pods.add(uid)
        known = self.ends.get(launch.task)
        answer = self.answers[launch.task]
        return handed_in(self.root, uid, launch, answer) if known is None else known

    def finished(self, name: str = "nightly", **spec: Any) -> str:
        """Run a run to its end and return its uid."""
        uid = self.apply(name, **spec)
        self.work(uid)
        return uid

    def regraded(self, name: str = "again", run: str = "nightly", **spec: Any) -> str:
        """Grade a run again and return the uid of the run that did it."""
        return self.finished(name, regrade={"run": run}, **spec)

    def folder(self, uid: str) -> Path:
        return self.root / "runs" / uid

    def records(self, uid: str) -> list[dict[str, Any]]:
        lines = (self.folder(uid) / "candidates.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]

    def summary(self, uid: str) -> Mapping[str, Any]:
        found: Mapping[str, Any] = json.loads((self.folder(uid) / "summary.json").read_text())
        return found

    def grades(self, uid: str) -> list[bool | None]:
        return [record.get("passed") for record in self.records(uid)]
