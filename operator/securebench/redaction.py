"""Redaction of what a verifier says, before it is truncated and written.

Source: contract 8.1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from securebench.resources import REDACTED, Lane, ResourceBundle

SUBSTRING_MINIMUM = 8
"""Characters from which a secret is also replaced inside longer texts (contract 8.1)."""

EXPECTED_ANSWER = "expected_answer"
FRAMEWORK_WORDS = frozenset(
    {
        "verifier",
        "phase",
        "failure_reason",
        "match_strategy",
        "rubric_type",
        "containment_profile",
        "isolation",
        "image",
        "image_id",
    }
)
STRUCTURAL_KEYS = frozenset({"source", "type", "workdir", "mount", "path", "isolation"})
STRUCTURAL_VALUES = frozenset({"needed_commands", "candidate_policy"})


class RedactedVerification(NamedTuple):
    """Verifier output without secrets."""

    stdout: str
    stderr: str
    metadata: dict[str, object]
    failure_message: str | None


def task_secrets(resources: ResourceBundle) -> frozenset[str]:
    """Return the string leaves of hidden values and evaluation inputs, without structure."""
    return frozenset(
        leaf
        for resource in resources
        if resource.visibility is not Lane.PUBLIC
        for leaf in _leaves(resource.name, resource.value, top=True)
        if leaf.strip()
    )


def redact_verification(
    task_secrets: Iterable[str],
    stdout: str,
    stderr: str,
    metadata: Mapping[str, object],
    failure_message: str | None,
) -> RedactedVerification:
    """Return verifier output in which no secret of the task stands.

    Args:
        task_secrets: What ``task_secrets()`` gave for the task.
        stdout: Whole text; redaction comes before truncation.
        stderr: Whole text.
        metadata: JSON object; keys are kept, values are redacted at any depth.
        failure_message: One sentence, or None.
    """
    secrets = _Secrets(task_secrets)
    redacted = {
        key: value if key in FRAMEWORK_WORDS else secrets.redact_entry(key, value)
        for key, value in metadata.items()
    }
    return RedactedVerification(
        stdout=secrets.redact_output(stdout),
        stderr=secrets.redact_output(stderr),
        metadata=redacted,
        failure_message=None if failure_message is None else secrets.redact_text(failure_message),
    )


class _Secrets:
    """The secrets of one task, ready for comparison."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._exact = frozenset(secret for secret in secrets if secret.strip())
        self._trimmed = frozenset(secret.strip() for secret in self._exact)
        self._inside = tuple(secret for secret in self._exact if len(secret) >= SUBSTRING_MINIMUM)

    def redact_output(self, text: str) -> str:
        return REDACTED if text.strip() in self._trimmed else self.redact_text(text)

    def redact_text(self, text: str) -> str:
        if text in self._exact:
            return REDACTED
        pieces: list[str] = []
        position = 0
        for start, end in _merged(self._occurrences(text)):
            pieces += (text[position:start], REDACTED)
            position = end
        return "".join((*pieces, text[position:]))

    def redact_entry(self, key: str, value: object) -> object:
        return REDACTED if key == EXPECTED_ANSWER else self.redact_value(value)

    def redact_value(self, value: object) -> object:
        if isinstance(value, str):
            return self.redact_text(value)
        if isinstance(value, Mapping):
            return {key: self.redact_entry(key, item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.redact_value(item) for item in value]
        return value

    def _occurrences(self, text: str) -> Iterator[tuple[int, int]]:
        for secret in self._inside:
            start = text.find(secret)
            while start >= 0:
                end = start + len(secret)
                yield start, end
                start = text.find(secret, end)


def _merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return sorted spans in which overlapping ones are one.

    Replacing longer secrets first would leave the rest of a shorter secret that overlaps
    them; a union of the places leaves nothing.
    """
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _leaves(key: str, value: object, *, top: bool = False) -> Iterator[str]:
    if key in STRUCTURAL_VALUES:
        return
    if isinstance(value, str):
        if top or key not in STRUCTURAL_KEYS:
            yield value
    elif isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(name, item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves("", item)
