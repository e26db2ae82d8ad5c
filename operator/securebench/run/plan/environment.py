"""In what one side of a task works: the agent's, or its verifier's.

A task's plan holds the agent's environment; each verification derives its own from it. The Pod
builders know nothing else of an image, of folders and of limits.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One side of a task.

    Attributes:
        image: Image of its containers, as written.
        workspace: Absolute folder that is a volume of the Pod.
        workdir: Absolute working folder of its commands.
        timeout_seconds: Time limit of its command, or None.
        starts_filled: Whether the workspace begins with what the image has there.
        writable_root: Whether its commands may change the image's own files.
    """

    image: str
    workspace: str
    workdir: str
    timeout_seconds: float | None = None
    starts_filled: bool = False
    writable_root: bool = False

    def inside(self, place: str) -> str:
        """Return the absolute path of a place in the workspace."""
        return f"{self.workspace.rstrip('/')}/{place}"
