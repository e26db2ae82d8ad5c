"""The candidate as a producer hands it to a verifier (contract 13)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class CandidateArtifact:
    """What a producer made.

    Attributes:
        metadata: ``candidate_kind``, ``candidate_extraction`` and what else applies.
    """

    text: str | None = None
    patch: str | None = None
    workspace: str | None = None
    stdout: str = ""
    stderr: str = ""
    metadata: Mapping[str, object] = field(default_factory=dict)

    def for_kind(self, kind: str) -> str:
        """Return what the verifier of a kind of candidate gets; empty where there is nothing."""
        match kind:
            case "patch":
                return self.patch or ""
            case "workspace":
                return self.workspace or ""
            case _:
                return self.text or ""
