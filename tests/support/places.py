"""Where the shared volume has the artifacts of a run."""

from __future__ import annotations

from pathlib import Path

from securebench.controller.capture import CandidateFolder
from securebench.controller.volume.artifacts import VolumeArtifacts, folder_of
from securebench.controller.volume.store import RunStore
from securebench.run.artifacts import Artifact, Lanes, LaunchPart, Part
from securebench.run.layout import launch_part
from securebench.run.plan.model import LaunchKey

CANDIDATE = LaunchPart("run", 0, 1, 1, Part.CANDIDATE)


def place(store: RunStore, artifact: Artifact) -> Path:
    return store.root / folder_of(artifact)


def launch_folder(run_uid: str, launch: LaunchKey) -> str:
    """Return the folder of a launch, relative to the volume's root."""
    return folder_of(launch_part(run_uid, launch, Part.CANDIDATE)).rpartition("/")[0]


def launch_place(store: RunStore, launch: LaunchKey) -> Path:
    return store.root / launch_folder(store.uid, launch)


def gateway_place(store: RunStore) -> Path:
    return place(store, store.gateway)


def lanes_place(store: RunStore, task: int) -> Path:
    return place(store, Lanes(store.uid, task))


def candidate_in(root: Path) -> tuple[CandidateFolder, Path]:
    """Return the folder of a candidate on a volume, and where that is."""
    folder = root / folder_of(CANDIDATE)
    folder.mkdir(parents=True, exist_ok=True)
    return CandidateFolder(VolumeArtifacts(root), CANDIDATE), folder
