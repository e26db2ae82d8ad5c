"""Mask the provider's key in responses, so that the agent never sees it."""

from __future__ import annotations

from securebench.text import MINIMUM_BYTES, any_of, base64_forms, filled


class KeyMask:
    """Replaces a key in a stream with filler of the same length.

    It matches the key itself and its base64 encodings at all three offsets, as far as they depend
    on the key alone. Chunks may end anywhere; only a possible beginning of the key is held back.
    """

    def __init__(self, key: bytes) -> None:
        forms = {key, *base64_forms(key)} if len(key) >= MINIMUM_BYTES else set()
        self._pattern = any_of(forms)
        self._beginnings = frozenset(form[:size] for form in forms for size in range(1, len(form)))
        self._longest = max(map(len, self._beginnings), default=0)
        self._held = b""
        self.found = 0
        """How often the key was replaced."""

    def feed(self, data: bytes) -> bytes:
        """Return the bytes that can be passed on now."""
        masked = self.whole(self._held + data)
        cut = len(masked) - self._held_size(masked)
        self._held = masked[cut:]
        return masked[:cut]

    def rest(self) -> bytes:
        """Return the bytes held back, at the end of the stream."""
        held, self._held = self._held, b""
        return held

    def whole(self, data: bytes) -> bytes:
        """Mask a complete piece of data, such as a header value."""
        masked, count = self._pattern.subn(filled, data)
        self.found += count
        return masked

    def _held_size(self, data: bytes) -> int:
        sizes = range(min(self._longest, len(data)), 0, -1)
        return next((size for size in sizes if data[-size:] in self._beginnings), 0)
