"""An operator in memory whose run has an agent, a provider and a gateway."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from securebench.cluster.port import ObjectKind
from securebench.protocol.gateway import LaunchReport, RelayReport, encode
from securebench.run.plan.model import LaunchKey, Role
from support.build import (
    Status,
    collect_message,
    ended,
    pod_status,
    running,
    seal_message,
    supervise_message,
    write_pack,
)
from support.operator_world import World

READY = {"type": "Ready", "status": "True"}
RELAY = RelayReport(requests=2, input_tokens=100, output_tokens=5)

CODEX = {"type": "codex", "config": {"model": "gpt-5.5"}}
CODEX_OVERLAYS = {"codex": {"images": {"0.170.0": "overlay-codex:1"}, "latest": "0.170.0"}}
PATCH = "diff --git a/src/x b/src/x\n--- a/src/x\n+++ b/src/x\n@@ -1 +1 @@\n-a\n+b\n"
REPOSITORY_ROW = {
    "id": "fix",
    "family": "repo_patch",
    "input": {"repo": "a/b", "base_commit": "0" * 40, "instructions": "Make it b."},
    "environment": {"image": "small:1", "workdir": "/testbed"},
    "eval": {
        "tests": {
            "source": "command",
            "command": "pytest",
            "candidate_policy": {"allow_paths": ["src"]},
        }
    },
}


class AgentWorld(World):
    """Its gateway says what each launch asked.

    Args:
        root: Of the volume.
        harness: Of the run.
        key: Name of the provider's key.
        settings: Of the operator, with the overlays of the agent.
    """

    def __init__(
        self, root: Path, *, harness: Mapping[str, Any], key: str, **settings: object
    ) -> None:
        super().__init__(root, **settings)
        self.harness = harness
        self.key = key

    def begin(self, **spec: object) -> str:
        """Create the run and let its gateway become ready; return its uid."""
        labels = {"securebench.dev/usable-by-runs": "gateway"}
        secret = {"metadata": {"name": "key", "labels": labels}, "data": {self.key: "eA=="}}
        self.runner.run(self.cluster.create(ObjectKind.SECRET, secret))
        uid = self.apply(harness=self.harness, provider={"secretRef": {"name": "key"}}, **spec)
        name = f"sb-{uid.replace('-', '')[:12]}-gateway-1"
        status = pod_status("Running", running("gateway"), conditions=[READY])
        self.cluster.set_pod_status(name, status)
        self.wait(0.1)
        return uid

    def ending(self, uid: str, launch: LaunchKey) -> Status:
        status = super().ending(uid, launch)
        if launch.role is Role.HARNESS:
            self.report(uid, launch)
            status["initContainerStatuses"].append(ended("egress-proxy"))
        return status

    def report(self, uid: str, launch: LaunchKey) -> None:
        """Write the gateway's last word on a launch."""
        for name, raw in self.cluster.objects(ObjectKind.POD).items():
            if "gateway" not in name and self.launch(name) == launch:
                report = LaunchReport(name, raw["metadata"]["uid"], closed=True, relay=RELAY)
                folder = self.root / "runs" / uid / "gateway/launches"
                (folder / f"{name}.json").write_bytes(encode(report))


class RepositoryWorld(AgentWorld):
    """codex changes the repository of one repo_patch task, and its tests pass."""

    def __init__(self, root: Path, **settings: object) -> None:
        super().__init__(
            root, harness=CODEX, key="OPENAI_API_KEY", overlays=CODEX_OVERLAYS, **settings
        )
        write_pack(root / "packs/smoke", [REPOSITORY_ROW])

    def ending(self, uid: str, launch: LaunchKey) -> Status:
        if launch.role is Role.VERIFIER:
            check = ended("check", 0, message=supervise_message(phase="checks"))
            return pod_status("Succeeded", ended("courier", message=collect_message()), check)
        status = super().ending(uid, launch)
        place = f"runs/{uid}/tasks/{launch.task}/attempts/1/launches/{launch.launch}/candidate"
        (self.root / place / "candidate.txt").write_text(PATCH)
        digest = f"sha256:{hashlib.sha256(PATCH.encode()).hexdigest()}"
        courier = ended("courier", 0, message=seal_message(digest=digest))
        others = [each for each in status["initContainerStatuses"] if each["name"] != "courier"]
        return status | {"initContainerStatuses": [courier, *others]}
