"""Redact verifier output before it is truncated and written.

Source: contract 8.1.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from typing import AnyStr, Generic, NamedTuple

from securebench.benchmark.resources import REDACTED, Lane, ResourceBundle

SUBSTRING_MINIMUM = 8
"""Minimum length, in characters, of a secret that is also replaced inside longer texts (contract
8.1)."""

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
STRUCTURAL_VALUES = frozenset({"needed_commands", "candidate_policy", "entry_point"})


class RedactedVerification(NamedTuple):
    """Verifier output without secrets."""

    stdout: str | bytes
    stderr: str | bytes
    metadata: dict[str, object]
    failure_message: str | None


def task_secrets(resources: ResourceBundle) -> frozenset[str]:
    """Return all strings in hidden values and evaluation inputs, except structural ones."""
    return frozenset(
        leaf
        for resource in resources
        if resource.visibility is not Lane.PUBLIC
        for leaf in _leaves(resource.name, resource.value, top=True)
        if leaf.strip()
    )


def redact_verification(
    task_secrets: Iterable[str],
    stdout: str | bytes,
    stderr: str | bytes,
    metadata: Mapping[str, object],
    failure_message: str | None,
) -> RedactedVerification:
    """Return verifier output without any secret of the task.

    Args:
        task_secrets: From ``task_secrets()``.
        stdout: Untruncated, as text or UTF-8; redaction must precede truncation.
        stderr: The same.
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


def redact_texts(task_secrets: Iterable[str], texts: Iterable[str]) -> list[str]:
    """Return texts without the secrets of their task."""
    secrets = _Secrets(task_secrets)
    return [secrets.redact_text(text) for text in texts]


class _Secrets:
    """The secrets of one task, indexed for matching."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._exact = frozenset(secret for secret in secrets if secret.strip())
        self._trimmed = frozenset(secret.strip() for secret in self._exact)
        inside = [secret for secret in self._exact if len(secret) >= SUBSTRING_MINIMUM]
        self._inside = _Index(inside)
        self._inside_bytes = _Index([each.encode("utf-8", "surrogatepass") for each in inside])

    def redact_output(self, text: str | bytes) -> str | bytes:
        shown = text if isinstance(text, str) else text.decode("utf-8", "replace")
        if shown.strip() in self._trimmed:
            return REDACTED
        return self.redact_text(text) if isinstance(text, str) else self._redact_bytes(text)

    def redact_text(self, text: str) -> str:
        if text in self._exact:
            return REDACTED
        result = StringIO()
        position = 0
        for start, end in _merged(self._inside.spans(text)):
            result.write(text[position:start])
            result.write(REDACTED)
            position = end
        result.write(text[position:])
        return result.getvalue() if position else text

    def _redact_bytes(self, data: bytes) -> bytes:
        view, result = memoryview(data), bytearray()
        position = 0
        for start, end in _merged(self._inside_bytes.spans(data)):
            result += view[position:start]
            result += REDACTED.encode()
            position = end
        return bytes(result + view[position:]) if position else data

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


FEW = 16
"""Secrets up to which one search for each is quicker than the index."""


class _Index(Generic[AnyStr]):
    """Secrets by how they begin, so that a text is read once however many there are.

    Args:
        secrets: Each of at least ``SUBSTRING_MINIMUM`` characters or bytes.
    """

    def __init__(self, secrets: Sequence[AnyStr]) -> None:
        self._secrets: frozenset[AnyStr] = frozenset(secrets)
        lengths: dict[AnyStr, set[int]] = {}
        for secret in self._secrets:
            lengths.setdefault(secret[:SUBSTRING_MINIMUM], set()).add(len(secret))
        self._lengths: Mapping[AnyStr, list[int]] = {
            begin: sorted(found, reverse=True) for begin, found in lengths.items()
        }

    def spans(self, text: AnyStr) -> Iterable[tuple[int, int]]:
        """Return where secrets stand in a text, in the order of their beginnings."""
        if len(self._secrets) <= FEW:
            return heapq.merge(*(_occurrences(secret, text) for secret in self._secrets))
        return self._indexed(text)

    def _indexed(self, text: AnyStr) -> Iterator[tuple[int, int]]:
        for start in range(len(text) - SUBSTRING_MINIMUM + 1):
            for length in self._lengths.get(text[start : start + SUBSTRING_MINIMUM], ()):
                if text[start : start + length] in self._secrets:
                    yield start, start + length  # a shorter one adds nothing to the union
                    break


def _occurrences(secret: AnyStr, text: AnyStr) -> Iterator[tuple[int, int]]:
    start = text.find(secret)
    while start >= 0:
        end = start + len(secret)
        yield start, end
        start = text.find(secret, start + 1)


def _merged(spans: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Merge overlapping spans; the input is sorted.

    Replacing longer secrets first would leave the remainder of a shorter secret that overlaps
    them; the union of all spans leaves nothing.
    """
    first = last = 0
    for start, end in spans:
        if start < last:
            last = max(end, last)
            continue
        if last:
            yield first, last
        first, last = start, end
    if last:
        yield first, last


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
