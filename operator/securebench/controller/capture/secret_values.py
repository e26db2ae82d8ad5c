"""Finds and masks the secret values that a tester exposes to an agent.

A value is found as it is and in the encodings that programs print by themselves. What an agent
splits, encrypts or spells otherwise stays: such a run's records say ``credentials: exposed``.

Source: A-182, threats 5.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from securebench.text import MINIMUM_BYTES, any_of, base64_forms, filled


class SecretMatcher:
    """The values of ``harness.env`` that entered a run's harness Pods.

    Args:
        values: As the Secret has them; blank space around them does not count.
        hides_all: Whether every byte is masked, because the values are not known.
    """

    def __init__(self, values: Iterable[bytes] = (), *, hides_all: bool = False) -> None:
        known = {value.strip() for value in values}
        forms = {form for value in known if len(value) >= MINIMUM_BYTES for form in _forms(value)}
        self._pattern = re.compile(rb"(?s).+") if hides_all else any_of(forms)
        self._is_empty = not forms and not hides_all

    def __bool__(self) -> bool:
        """Whether there is anything to look for."""
        return not self._is_empty

    def __repr__(self) -> str:
        """Return a text without any value."""
        return f"{type(self).__name__}(...)"

    def without(self, data: bytes) -> bytes:
        """Return data of the same length in which the values are filled up.

        Args:
            data: A whole text: what lies across the border of two pieces is not found.
        """
        result = bytearray(data)  # ``sub`` keeps an object per match until it joins them
        for match in self._pattern.finditer(data):
            result[match.start() : match.end()] = filled(match)
        return bytes(result)

    def without_text(self, text: str) -> str:
        """Return a text in which the values are filled up, as ``without`` does."""
        return self.without(text.encode()).decode("utf-8", "replace")


def _forms(value: bytes) -> Iterator[bytes]:
    yield value
    yield value[::-1]
    yield value.hex().encode()
    yield value.hex().upper().encode()
    yield quote(value, safe="").encode()
    yield json.dumps(value.decode("utf-8", "replace")).encode()[1:-1]
    yield base64.b64encode(value)
    yield base64.urlsafe_b64encode(value)
    yield from base64_forms(value)
