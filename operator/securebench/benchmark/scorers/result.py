"""What a verifier returns, and how it says that it cannot work."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from securebench.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


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
