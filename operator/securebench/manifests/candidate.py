"""A sealed candidate as verifier Pods mount it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from securebench.manifests import layout, volumes
from securebench.plan.model import LaunchKey, Role, RunPlan

if TYPE_CHECKING:
    from securebench.manifests.frame import Manifest


class Sealed(Protocol):
    """A sealed candidate; ``securebench.engine.model.SealedCandidate`` is one."""

    @property
    def launch(self) -> int:
        """Launch that produced it."""
        ...

    @property
    def file(self) -> str | None:
        """Its file, or None."""
        ...

    @property
    def digest(self) -> str:
        """Digest of the file."""
        ...


def candidate_mount(plan: RunPlan, launch: LaunchKey, candidate: Sealed, path: str) -> Manifest:
    """Return the read-only mount of a candidate.

    Args:
        plan: The run.
        launch: The verifier's launch; the candidate may come from one of another number.
        candidate: What is judged.
        path: Folder in the container.
    """
    producer = LaunchKey(launch.task, launch.attempt, Role.HARNESS, candidate.launch)
    folder = layout.launch_folder(plan.identity.uid, producer)
    return volumes.mount(
        volumes.RESULTS, path, sub_path=f"{folder}/{layout.CANDIDATE_NAME}", read_only=True
    )


def candidate_spec(candidate: Sealed, folder: str) -> dict[str, str]:
    """Return where a candidate lies in a container, with the digest to compare.

    Args:
        candidate: It has a file.
        folder: Where it is mounted.
    """
    return {"path": f"{folder}/{candidate.file}", "digest": candidate.digest}
