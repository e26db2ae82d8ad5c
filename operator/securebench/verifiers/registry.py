"""Which family has which verifier (contract 14)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from securebench.names import CODE_COMPLETION, REPO_PATCH, TERMINAL_TASK
from securebench.verifiers import free_response, multiple_choice, short_answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from securebench.verifiers.result import VerificationResult


class TextVerifier(Protocol):
    """A scoring algorithm that runs no code of anybody."""

    def verify(
        self,
        candidate_text: str | None,
        public: Mapping[str, object],
        hidden: Mapping[str, object],
    ) -> VerificationResult:
        """Judge one candidate; raise VerifierConfigurationError for an unusable row."""
        ...

    def configuration_problem(
        self, public: Mapping[str, object], hidden: Mapping[str, object]
    ) -> str | None:
        """Return why the row cannot be judged, or None."""
        ...


@dataclass(frozen=True, slots=True)
class Verifier:
    """How a family is verified.

    Args:
        name: The family; also ``metadata.verifier`` of its results.
        scorer: The algorithm of a text family; None where a Pod has to run a check.
    """

    name: str
    scorer: TextVerifier | None

    @property
    def is_executing(self) -> bool:
        """Tell whether a check has to run in the task's image."""
        return self.scorer is None


_TEXT: Mapping[str, TextVerifier] = {
    module.NAME: module for module in (multiple_choice, short_answer, free_response)
}
_EXECUTING = frozenset({CODE_COMPLETION, REPO_PATCH, TERMINAL_TASK})


def text_verifier(family: str) -> TextVerifier | None:
    """Return the scoring algorithm of a text family, or None for every other name."""
    return _TEXT.get(family)


def verifier_for_task_type(name: str) -> Verifier | None:
    """Return the verifier of one of the six active families, or None."""
    if name in _EXECUTING or name in _TEXT:
        return Verifier(name=name, scorer=_TEXT.get(name))
    return None
