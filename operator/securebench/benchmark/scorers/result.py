"""What a verifier gets and returns, and the version that binds scores to their algorithms."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from securebench.errors import ConfigError

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


class VerifierConfigurationError(ConfigError):
    """The row passed its schema, but its verifier cannot work with it (contract 14, VC)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationResult:
    """The verdict on one candidate.

    Args:
        passed: Whether the candidate is right; status and score follow from it.
        metadata: Raw facts of the decision; redacted before they enter a record.
        task_id: Id of the task, or None where the caller knows it.
    """

    passed: bool
    metadata: Mapping[str, object] = field(default_factory=dict)
    stdout: str = ""
    stderr: str = ""
    task_id: str | None = None

    @property
    def status(self) -> Literal["passed", "failed"]:
        """Return the verdict in words."""
        return "passed" if self.passed else "failed"

    @property
    def score(self) -> float:
        """Return 1.0 or 0.0; there is nothing between."""
        return 1.0 if self.passed else 0.0


VERIFIER_VERSION = "3"
"""Changes with every change of a verdict that any candidate could get (contract 15.6, 18)."""
