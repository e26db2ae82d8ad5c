"""Where a candidate comes from (contract 13.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ExtractionMode = Literal["stdout", "file", "git_diff", "workspace", "unsupported"]
CandidateKind = Literal["text", "code", "patch", "workspace", "none"]


@dataclass(frozen=True, slots=True)
class Extraction:
    """What the courier takes.

    Attributes:
        mode: Source of the candidate.
        kind: What the candidate is.
        path: Workspace-relative file; present exactly for mode ``file``.
    """

    mode: ExtractionMode
    kind: CandidateKind
    path: str | None = None
