"""What is taken as the candidate (contract 12.2, 13.1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from securebench.agents.harness_config import GIT_DIFF, CommandHarness
from securebench.benchmark.families.registry import FAMILIES
from securebench.protocol.extraction import Extraction

if TYPE_CHECKING:
    from securebench.agents.harness_config import HarnessConfig
    from securebench.benchmark.families.base import CandidateKind

TEXT_FILE = "candidate.txt"
CODE_FILE = "candidate.py"


def extraction_for(family: str, harness: HarnessConfig) -> Extraction:
    """Return where the candidate of a family comes from.

    Args:
        family: Task type; nothing is taken for one without a contract.
        harness: A command hands in on stdout unless it names a file, works on a workspace or asks
            for the diff of a checkout; the provider CLIs' stdout is never a candidate.
    """
    known = FAMILIES.get(family)
    if known is None:
        return Extraction(mode="unsupported", kind="none", path=None)
    kind = known.candidate_kind
    if isinstance(harness, CommandHarness):
        return _from_command(kind, harness)
    return _from_provider(kind)


def _from_command(kind: CandidateKind, harness: CommandHarness) -> Extraction:
    if harness.artifact_path is not None:
        text_kind: CandidateKind = "text" if kind == "workspace" else kind
        return Extraction(mode="file", kind=text_kind, path=harness.artifact_path)
    if kind == "workspace":
        return Extraction(mode="workspace", kind=kind, path=None)
    if kind == "patch" and harness.extraction == GIT_DIFF:
        return Extraction(mode="git_diff", kind=kind, path=None)
    return Extraction(mode="stdout", kind=kind, path=None)


def _from_provider(kind: CandidateKind) -> Extraction:
    if kind == "workspace":
        return Extraction(mode="workspace", kind=kind, path=None)
    if kind == "patch":
        return Extraction(mode="git_diff", kind=kind, path=None)
    return Extraction(mode="file", kind=kind, path=CODE_FILE if kind == "code" else TEXT_FILE)
