"""Where a candidate comes from, and why there may be none (contract 13.1)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

CandidateKind = Literal["text", "code", "patch", "workspace", "none"]

TEXT_FILE = "candidate.txt"
WORKSPACE_FILE = "workspace.tar"
"""Names of sealed candidates."""

CHANGED_FILE = "changed.json"
"""Of a verification: the list of really changed paths, when they are not the declared ones."""

STREAMS = ("stdout", "stderr")

ORACLE_FOLDER = "/opt/securebench/oracle"
"""Mounted in an oracle's harness container; holds the task's reference answer as one file."""


class ExtractionMode(StrEnum):
    """Where a candidate comes from (contract 13.1)."""

    STDOUT = "stdout"
    FILE = "file"
    GIT_DIFF = "git_diff"
    WORKSPACE = "workspace"
    UNSUPPORTED = "unsupported"


class Problem(StrEnum):
    """Why there is no candidate: failure reasons of outcome ``agent`` (contract 13.1)."""

    MISSING = "candidate_missing"
    TOO_LARGE = "candidate_too_large"
    INVALID = "candidate_invalid"


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
