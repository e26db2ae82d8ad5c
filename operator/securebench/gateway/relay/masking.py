"""The key never goes to the agent, whatever the provider sends back."""

from __future__ import annotations

from securebench.core.secret_forms import MINIMUM_BYTES, any_of, base64_forms, filled


class KeyMask:
    """Replaces a key in a stream by a filler of the same length.

    Found are the key itself and the characters of base64 that follow from the key alone, at each of
    its three offsets. Pieces of the stream may end anywhere; only what may be the beginning of the
    key is held back.

    Args:
        key: The provider's key.
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
        known, count = self._pattern.subn(filled, data)
        self.found += count
        return known

    def _suspicious(self, data: bytes) -> int:
        sizes = range(min(self._longest, len(data)), 0, -1)
        return next((size for size in sizes if data[-size:] in self._beginnings), 0)
