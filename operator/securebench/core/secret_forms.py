"""Forms in which a secret shows itself in text, and what takes their place."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Final

FILLER: Final = b"*"
"""Takes the place of each byte: lengths and bounds still hold."""

MINIMUM_BYTES: Final = 8
"""Shorter values are left alone: their bytes occur anywhere (contract 8.1 draws the same line)."""

_FIRST: Final = (0, 2, 3)
"""Characters of base64 that also depend on the bytes before, by how many of these there are."""


def base64_forms(value: bytes) -> set[bytes]:
    """Return the characters of base64 that follow from a value alone, at each of its offsets."""
    return {
        text[_FIRST[offset] : (offset + len(value)) // 3 * 4]
        for offset in range(3)
        for encode in (base64.b64encode, base64.urlsafe_b64encode)
        for text in (encode(b"\0" * offset + value),)
    }


def any_of(forms: Iterable[bytes]) -> re.Pattern[bytes]:
    """Return the pattern that finds each of some forms, the longest first; of none, nothing."""
    longest_first = sorted(set(forms), key=lambda form: (-len(form), form))
    return re.compile(b"|".join(map(re.escape, longest_first)) or rb"(?!)")


def filled(found: re.Match[bytes]) -> bytes:
    """Return what takes the place of a form that was found."""
    return FILLER * len(found[0])
