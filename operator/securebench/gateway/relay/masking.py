"""The key never goes to the agent, whatever the provider sends back."""

from __future__ import annotations

import base64
import re
from typing import Final

FILLER: Final = b"*"
MINIMUM_BYTES: Final = 8
"""Shorter keys are none: their bytes occur anywhere."""


class KeyMask:
    """Replaces a key in a stream by a filler of the same length.

    Found are the key itself and the characters of base64 that follow from the key alone, at each of
    its three offsets. Pieces of the stream may end anywhere; only what may be the beginning of the
    key is held back.

    Args:
        key: The provider's key.
    """

    def __init__(self, key: bytes) -> None:
        forms = _forms(key) if len(key) >= MINIMUM_BYTES else ()
        self._pattern = re.compile(b"|".join(map(re.escape, forms)) or rb"(?!)")
        self._beginnings = frozenset(form[:size] for form in forms for size in range(1, len(form)))
        self._longest = max(map(len, self._beginnings), default=0)
        self._held = b""
        self.found = 0
        """How often the key was replaced."""

    def feed(self, data: bytes) -> bytes:
        """Return what may be passed on now."""
        known = self.whole(self._held + data)
        cut = len(known) - self._suspicious(known)
        self._held = known[cut:]
        return known[:cut]

    def rest(self) -> bytes:
        """Return what was held back when nothing follows."""
        held, self._held = self._held, b""
        return held

    def whole(self, data: bytes) -> bytes:
        """Return data that stands for itself, a header value for instance, without the key."""
        known, count = self._pattern.subn(lambda match: FILLER * len(match[0]), data)
        self.found += count
        return known

    def _suspicious(self, data: bytes) -> int:
        sizes = range(min(self._longest, len(data)), 0, -1)
        return next((size for size in sizes if data[-size:] in self._beginnings), 0)


def _forms(key: bytes) -> tuple[bytes, ...]:
    encoded = {
        text[_FIRST[offset] : (offset + len(key)) // 3 * 4]
        for offset in range(3)
        for text in _encodings(b"\0" * offset + key)
    }
    return tuple(sorted({key, *encoded}, key=lambda form: (-len(form), form)))


def _encodings(data: bytes) -> tuple[bytes, bytes]:
    return base64.b64encode(data), base64.urlsafe_b64encode(data)


_FIRST: Final = (0, 2, 3)
"""Characters of base64 that also depend on the bytes before, per offset."""
