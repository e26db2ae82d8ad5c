"""The port of artifacts on a volume that operator and Pods share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from securebench.controller.volume.folders import (
    INSTALLED_TOOLS,
    LAUNCHES,
    attempt_folder,
    run_folder,
    task_folder,
)
from securebench.digests import PREFIX
from securebench.run.artifacts import (
    Artifact,
    Attached,
    GatewayFiles,
    Given,
    Lanes,
    LaunchPart,
    MountProbe,
    Taken,
    TaskPrograms,
)

RESULTS: Final = "results"
"""Name of the volume in a Pod."""


def folder_of(artifact: Artifact) -> str:
    """Return the folder of an artifact, relative to the volume's root."""
    match artifact:
        case TaskPrograms(digest):
            return f"{INSTALLED_TOOLS}/{digest.removeprefix(PREFIX)}"
        case Lanes(run_uid, task):
            return f"{task_folder(run_uid, task)}/lanes"
        case LaunchPart(run_uid, task, attempt, launch, part):
            return f"{attempt_folder(run_uid, task, attempt)}/{LAUNCHES}/{launch}/{part}"
        case GatewayFiles(run_uid):
            return f"{run_folder(run_uid)}/gateway"
        case MountProbe(run_uid):
            return f"{run_folder(run_uid)}/probe"


@dataclass(frozen=True, slots=True)
class SharedVolume:
    """Pods mount the folders of their artifacts from the claim; what they write is there at once.

    Attributes:
        claim: Name of the PersistentVolumeClaim of the results volume.
    """

    claim: str

    def attach(self, wanted: Sequence[Taken | Given]) -> Attached:
        """Return what a Pod needs for the artifacts of its containers."""
        volume: dict[str, object] = {
            "name": RESULTS,
            "persistentVolumeClaim": {"claimName": self.claim},
        }
        return Attached([_mount(each) for each in wanted], [volume] if wanted else [])


def _mount(wanted: Taken | Given) -> dict[str, object]:
    folder = folder_of(wanted.artifact)
    match wanted:
        case Taken(_, path, part):
            sub_path = f"{folder}/{part}" if part else folder
            return {"name": RESULTS, "mountPath": path, "subPath": sub_path, "readOnly": True}
        case Given(_, path):
            return {"name": RESULTS, "mountPath": path, "subPath": folder}
